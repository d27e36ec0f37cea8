// The sample that this thread is making: random transforms draw from its generator, and errors name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include <gradus/core/error.h>
#include <gradus/core/runtime/random.h>

namespace gradus::data {

/// Returns the generator of the sample that this thread is making. Its numbers depend only on the loader's seed, the
/// epoch and the index of the sample, not on the number of workers or the order of samples. Outside of a sample,
/// returns the default generator.
Generator& sample_generator();

namespace detail {

/// The epoch that this thread works for, opened by the loader. Scopes can be nested: a cache reads its source as if in
/// the first epoch.
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

/// The sample that this thread works on, opened by datasets. Each `stage` has its own random numbers, so that two
/// random transforms of a pipeline draw different ones. Scopes can be nested.
class SampleScope {
 public:
  SampleScope(size_t index, uint64_t stage);
  ~SampleScope();
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

 private:
  bool outer_in_sample_;
  uint64_t outer_seed_, outer_offset_;  // state of the enclosing sample's generator
};

/// Returns make() for the sample `index`. If it throws, the exception's message names the sample.
template <class Make>
auto with_sample(size_t index, uint64_t stage, const Make& make) {
  const SampleScope scope(index, stage);
  try {
    return make();
  } catch (const std::exception&) { rethrow_with_prefix("sample " + std::to_string(index) + ": "); }
}

}  // namespace detail
}  // namespace gradus::data
