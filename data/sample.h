// Example, a sample of a dataset, and the random numbers with which a sample is made: random transforms draw from a
// generator that belongs to the sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradus/autograd/node.h>
#include <gradus/core/error.h>
#include <gradus/core/runtime/random.h>
#include <gradus/core/scope.h>

namespace gradus::data {

/// Places of samples in a dataset, counted from 0.
using Indices = std::vector<size_t>;

/// The target type of an Example that has no target.
namespace example {
using NoTarget = void;
}

/// An input of a model and its desired output, or a batch of both (torch::data::Example).
template <class Data = Tensor, class Target = Tensor>
struct Example {
  Example() = default;
  Example(Data data_, Target target_) : data(std::move(data_)), target(std::move(target_)) {}

  Data data;
  Target target;
};

/// An input without a target.
template <class Data>
struct Example<Data, example::NoTarget> {
  Example() = default;
  Example(Data data_) : data(std::move(data_)) {}  // NOLINT(google-explicit-constructor)
  operator Data&() { return data; }                // NOLINT(google-explicit-constructor)
  operator const Data&() const { return data; }    // NOLINT(google-explicit-constructor)

  Data data;
};

using TensorExample = Example<Tensor, example::NoTarget>;

/// Returns the generator of the sample that this thread is making. Its numbers depend only on the loader's seed, the
/// epoch and the index of the sample, not on the number of workers or the order of samples. Outside of a sample,
/// returns the default generator.
Generator& sample_generator();

// Offsets into the stream of random numbers that belongs to a seed (Philox, core/runtime/random.h). They are so large
// that no generator reaches them, because generators count their offset up from 0.

/// The random order of an epoch's samples: element i decides exchange i of the Fisher-Yates shuffle.
constexpr uint64_t order_stream(uint64_t epoch) { return (uint64_t{1} << 63) | epoch; }
/// The seeds of the generators of an epoch's samples: element i belongs to sample i.
constexpr uint64_t sample_stream(uint64_t epoch) { return (uint64_t{1} << 62) | epoch; }
/// The random choices from a shuffle buffer during an epoch (TarShardsOptions): element i decides choice i.
constexpr uint64_t shuffle_buffer_stream(uint64_t epoch) { return (uint64_t{1} << 60) | epoch; }
/// Shape and noise of digit number `index` of SyntheticDigits.
constexpr uint64_t digit_stream(uint64_t index) { return (uint64_t{1} << 61) | index; }

namespace detail {

/// An epoch of a loader.
struct Epoch {
  uint64_t seed, number;
};

/// While an EpochScope exists, this thread makes samples of this epoch. Opened by a loader for each batch. Scopes can
/// be nested: a cache reads its source in an EpochScope of epoch 0.
class EpochScope : ScopedValue<std::optional<Epoch>> {
 public:
  EpochScope(uint64_t seed, uint64_t epoch);
};

/// While a SampleScope exists, this thread makes this sample, and sample_generator() belongs to it if the thread is in
/// an EpochScope. Each `stage` has different random numbers, so that two random transforms of a pipeline do not draw
/// the same ones. Scopes can be nested.
class SampleScope : ScopedValue<Generator*> {
 public:
  SampleScope(size_t index, uint64_t stage);

 private:
  Generator generator_;
};

/// Calls make() in a SampleScope and returns its result. If make() throws, the message of the exception begins with the
/// index of the sample.
template <class Make>
auto with_sample(size_t index, uint64_t stage, const Make& make) {
  const SampleScope scope(index, stage);
  try {
    return make();
  } catch (const std::exception&) { rethrow_with_prefix("sample " + std::to_string(index) + ": "); }
}

// The functions below draw the next number from sample_generator().

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
