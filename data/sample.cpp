#include <gradus/data/sample.h>

#include <gradus/data/random_streams.h>

#include <string>

namespace gradus::data {
namespace {

struct ThreadState {
  bool in_epoch = false, in_sample = false;
  uint64_t seed = 0, epoch = 0;
  Generator generator;
};

ThreadState& state() {
  thread_local ThreadState state;
  return state;
}

// Rethrows `error` with `prefix` if it is a Kind.
template <class Kind>
void rethrow_if(const std::exception& error, const std::string& prefix) {
  if (dynamic_cast<const Kind*>(&error)) throw Kind(prefix + error.what());
}

}  // namespace

Generator& sample_generator() {
  ThreadState& thread = state();
  return thread.in_sample ? thread.generator : default_generator();
}

namespace detail {

EpochScope::EpochScope(uint64_t seed, uint64_t epoch) {
  ThreadState& thread = state();
  outer_in_epoch_ = thread.in_epoch, outer_seed_ = thread.seed, outer_epoch_ = thread.epoch;
  thread.in_epoch = true, thread.seed = seed, thread.epoch = epoch;
}

EpochScope::~EpochScope() {
  ThreadState& thread = state();
  thread.in_epoch = outer_in_epoch_, thread.seed = outer_seed_, thread.epoch = outer_epoch_;
}

SampleScope::SampleScope(size_t index, uint64_t stage) {
  ThreadState& thread = state();
  outer_in_sample_ = thread.in_sample;
  outer_seed_ = thread.generator.seed(), outer_offset_ = thread.generator.offset();
  thread.in_sample = thread.in_epoch;
  if (!thread.in_sample) return;
  thread.generator.set_state(random_bits64(thread.seed, sample_stream(thread.epoch), index), stage << 32);
}

SampleScope::~SampleScope() {
  ThreadState& thread = state();
  thread.in_sample = outer_in_sample_;
  thread.generator.set_state(outer_seed_, outer_offset_);
}

void rethrow_for_sample(size_t index) {
  const std::string prefix = "sample " + std::to_string(index) + ": ";
  try {
    throw;
  } catch (const std::exception& error) {
    rethrow_if<IoError>(error, prefix);
    rethrow_if<ValueError>(error, prefix);
    rethrow_if<IndexError>(error, prefix);
    rethrow_if<ShapeError>(error, prefix);
    rethrow_if<DTypeError>(error, prefix);
    rethrow_if<DeviceError>(error, prefix);
    rethrow_if<AutogradError>(error, prefix);
    rethrow_if<OutOfMemoryError>(error, prefix);
    throw Error(prefix + error.what());
  }
}

}  // namespace detail
}  // namespace gradus::data
