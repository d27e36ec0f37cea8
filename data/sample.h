// The sample that this thread is making: random transforms draw from its generator, and errors name it. Also where in
// the Philox stream (core/runtime/random.h) each part of this room draws.
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

// Offsets in the Philox stream. They are so large that no generator reaches them by counting from zero.

/// The order of an epoch's samples: element i determines the i-th exchange.
constexpr uint64_t order_stream(uint64_t epoch) { return (uint64_t{1} << 63) | epoch; }
/// Seeds of the samples' generators: element i belongs to sample i.
constexpr uint64_t sample_stream(uint64_t epoch) { return (uint64_t{1} << 62) | epoch; }
/// Positions in the shuffle buffer of an epoch: element i determines the i-th position.
constexpr uint64_t shuffle_buffer_stream(uint64_t epoch) { return (uint64_t{1} << 60) | epoch; }
/// Shape and noise of a drawn digit.
constexpr uint64_t digit_stream(uint64_t index) { return (uint64_t{1} << 61) | index; }

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

// Each call draws the next number of the current sample's generator.

/// A number in [low, high), or `low` if the bounds are equal.
inline double draw_uniform(double low, double high) {
  const RandomState draw = sample_generator().next();
  return random_uniform<double>(draw.seed, draw.offset, 0, low, high);
}
/// An integer in [low, high); low < high.
inline int64_t draw_integer(int64_t low, int64_t high) {
  const RandomState draw = sample_generator().next();
  return random_integer(draw.seed, draw.offset, 0, low, high);
}
/// True with probability p.
inline bool draw_chance(double p) { return draw_uniform(0, 1) < p; }
/// A standard normal number.
inline double draw_normal() {
  const RandomState draw = sample_generator().next();
  return random_normal(draw.seed, draw.offset, 0);
}

}  // namespace detail
}  // namespace gradus::data
