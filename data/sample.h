// Which sample is being made on this thread: random transforms draw from it, and errors name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include <gradus/core/rethrow.h>
#include <gradus/core/runtime/random.h>

namespace gradus::data {

/// The generator of the sample that is being made on this thread. Its numbers depend on the loader's seed, the epoch
/// and the sample's index, and on nothing else: neither the number of workers nor the order of samples changes them.
/// Outside of a sample, the default generator.
Generator& sample_generator();

namespace detail {

/// The pass over a dataset that this thread works for; the loader opens it. Scopes nest: a cache reads its source as if
/// in the first epoch.
class EpochScope {
 public:
  EpochScope(uint64_t seed, uint64_t epoch);
  ~EpochScope();
  EpochScope(const EpochScope&) = delete;
  EpochScope& operator=(const EpochScope&) = delete;

 private:
  bool outer_in_epoch_;
  uint64_t outer_seed_, outer_epoch_;
};

/// The sample that this thread works on; datasets open it around each. Draws of a sample start anew in every scope of
/// another `stage`, so that two random transforms of a pipeline draw different numbers. Scopes nest.
class SampleScope {
 public:
  SampleScope(size_t index, uint64_t stage);
  ~SampleScope();
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

 private:
  bool outer_in_sample_;
  uint64_t outer_seed_, outer_offset_;  // of the sample's generator
};

/// make() for the sample `index`; an exception names the sample.
template <class Make>
auto with_sample(size_t index, uint64_t stage, const Make& make) {
  const SampleScope scope(index, stage);
  try {
    return make();
  } catch (const std::exception&) { rethrow_with_prefix("sample " + std::to_string(index) + ": "); }
}

}  // namespace detail
}  // namespace gradus::data
