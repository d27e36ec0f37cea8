#include <gradus/data/sample.h>

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

}  // namespace detail
}  // namespace gradus::data
