#include <gradus/data/sample.h>

namespace gradus::data {
namespace {

thread_local std::optional<detail::Epoch> current_epoch;
thread_local Generator* current_generator = nullptr;  // the generator of the sample that this thread is making

}  // namespace

Generator& sample_generator() { return current_generator ? *current_generator : default_generator(); }

namespace detail {

EpochScope::EpochScope(uint64_t seed, uint64_t epoch) : ScopedValue(current_epoch, Epoch{seed, epoch}) {}

SampleScope::SampleScope(size_t index, uint64_t stage)
    : ScopedValue(current_generator, current_epoch ? &generator_ : nullptr) {
  if (!current_epoch) return;
  const auto [seed, epoch] = *current_epoch;
  generator_.set_state(random_bits64(seed, sample_stream(epoch), index), stage << 32);
}

}  // namespace detail
}  // namespace gradus::data
