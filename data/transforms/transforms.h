// Transforms for BatchDataset::map(), with the names of torch::data::transforms. Transforms of images (affine, crop,
// flip, colour, …) are in data/transforms/image_transforms.h. If a transform has a method describe(),
// BatchDataset::explain() shows its result.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include <gradus/data/sample.h>

namespace gradus::data::detail {
// Text for BatchDataset::explain().

/// The name of a class without namespaces and template arguments, such as "Normalize". "function" for a lambda.
std::string short_name(const std::type_info& type);
/// Returns the numbers as text: "0.5, 1, -3".
std::string join_numbers(const std::vector<double>& numbers);

/// Returns transform.describe() if the transform has this method, or else the name of its class.
template <class Transform>
std::string describe(const Transform& transform) {
  if constexpr (requires { transform.describe(); }) return transform.describe();
  else return short_name(typeid(Transform));
}

}  // namespace gradus::data::detail

namespace gradus::data::transforms {

/// A transform of one sample at a time. Derived classes implement apply. Random transforms draw from
/// data::sample_generator().
template <class Input, class Output>
class Transform {
 public:
  using InputType = Input;
  using OutputType = Output;
  using OutputBatchType = std::vector<Output>;
  static constexpr bool kStacks = false;

  virtual ~Transform() = default;
  virtual OutputType apply(InputType input) = 0;
};

/// A transform that calls a function of a sample: map(Lambda<Example<>>([](Example<> e) { …; return e; })).
template <class Input, class Output = Input>
class Lambda : public Transform<Input, Output> {
 public:
  explicit Lambda(std::function<Output(Input)> function, std::string description = "Lambda")
      : function_(std::move(function)), description_(std::move(description)) {}
  Output apply(Input input) override { return function_(std::move(input)); }
  /// Returns the text for BatchDataset::explain().
  const std::string& describe() const { return description_; }

 private:
  std::function<Output(Input)> function_;
  std::string description_;
};

/// A transform of a sample's data that keeps its target. Derived classes implement operator().
template <class Target = Tensor>
class TensorTransform : public Transform<Example<Tensor, Target>, Example<Tensor, Target>> {
 public:
  virtual Tensor operator()(Tensor input) = 0;
  Example<Tensor, Target> apply(Example<Tensor, Target> example) override {
    example.data = (*this)(std::move(example.data));
    return example;
  }
};

/// A TensorTransform that calls a function of the data.
template <class Target = Tensor>
class TensorLambda : public TensorTransform<Target> {
 public:
  explicit TensorLambda(std::function<Tensor(Tensor)> function) : function_(std::move(function)) {}
  Tensor operator()(Tensor input) override { return function_(std::move(input)); }

 private:
  std::function<Tensor(Tensor)> function_;
};

namespace detail {
/// Returns (image - mean[c]) / deviation[c] for images (…, C, H, W). A single mean and deviation apply to all channels.
Tensor normalize(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& deviation);
/// Stacks tensors along a new first dimension.
Tensor stack(const TensorList& tensors);
}  // namespace detail

/// Computes (x - mean) / deviation for each channel of float32 images (C, H, W). Takes a mean and a deviation for each
/// channel, or one of both for all channels. Different numbers of means and deviations, or a deviation that is not
/// above 0, are a ValueError.
template <class Target = Tensor>
class Normalize : public TensorTransform<Target> {
 public:
  Normalize(double mean, double deviation) : Normalize(std::vector<double>{mean}, std::vector<double>{deviation}) {}
  Normalize(std::vector<double> mean, std::vector<double> deviation)
      : mean_(std::move(mean)), deviation_(std::move(deviation)) {
    GRADUS_CHECK(!mean_.empty() && mean_.size() == deviation_.size(), ValueError,
                 "Normalize needs as many means as deviations, got ", mean_.size(), " and ", deviation_.size());
    for (double value : deviation_)
      GRADUS_CHECK(value > 0, ValueError, "Normalize needs deviations above 0, got ", value);
  }
  Tensor operator()(Tensor input) override { return detail::normalize(input, mean_, deviation_); }
  /// Normalises a batch (N, C, H, W).
  Example<> apply_stacked(Example<> batch) const {
    batch.data = detail::normalize(batch.data, mean_, deviation_);
    return batch;
  }
  std::string describe() const {
    return "Normalize(mean " + data::detail::join_numbers(mean_) + "; deviation " +
           data::detail::join_numbers(deviation_) + ")";
  }

 private:
  std::vector<double> mean_, deviation_;
};

/// A transform of a whole batch. Derived classes implement apply_batch.
template <class InputBatch, class OutputBatch>
class BatchTransform {
 public:
  using InputType = void;
  using InputBatchType = InputBatch;
  using OutputBatchType = OutputBatch;
  static constexpr bool kStacks = false;

  virtual ~BatchTransform() = default;
  virtual OutputBatch apply_batch(InputBatch batch) = 0;
};

/// A transform that calls a function of a whole batch.
template <class InputBatch, class OutputBatch = InputBatch>
class BatchLambda : public BatchTransform<InputBatch, OutputBatch> {
 public:
  explicit BatchLambda(std::function<OutputBatch(InputBatch)> function, std::string description = "BatchLambda")
      : function_(std::move(function)), description_(std::move(description)) {}
  OutputBatch apply_batch(InputBatch batch) override { return function_(std::move(batch)); }
  /// Returns the text for BatchDataset::explain().
  const std::string& describe() const { return description_; }

 private:
  std::function<OutputBatch(InputBatch)> function_;
  std::string description_;
};

/// LibTorch's names for transforms of a batch to a single object: derive from Collation, or pass a function to Collate.
template <class T, class BatchType = std::vector<T>>
using Collation = BatchTransform<BatchType, T>;
template <class T, class BatchType = std::vector<T>>
using Collate = BatchLambda<BatchType, T>;

/// Stacks a vector of N examples to one example with data (N, …) and, if the examples have targets, target (N, …).
template <class SingleExample = Example<>>
class Stack : public BatchTransform<std::vector<SingleExample>, SingleExample> {
 public:
  static constexpr bool kStacks = true;

  SingleExample apply_batch(std::vector<SingleExample> examples) override {
    TensorList data, target;
    for (SingleExample& example : examples) {
      data.push_back(std::move(example.data));
      if constexpr (kHasTarget) target.push_back(std::move(example.target));
    }
    if constexpr (kHasTarget) return {detail::stack(data), detail::stack(target)};
    else return {detail::stack(data)};
  }

 private:
  static constexpr bool kHasTarget = !std::is_same_v<SingleExample, TensorExample>;
};

/// Blends every sample with its neighbour in the batch (Zhang et al.: "mixup: Beyond empirical risk minimization",
/// 2018; torchvision.transforms.v2.MixUp). It is applied after Stack:
///   x' = λ x + (1 - λ) roll(x, 1),  y' = λ onehot(y) + (1 - λ) roll(onehot(y), 1),  λ ~ Beta(alpha, alpha)
/// Input: data (N, …) float32, target (N) int64 in [0, num_classes) (else an IndexError). The result's target is (N,
/// num_classes) float32, probabilities for cross_entropy. λ is drawn once for each batch, from the generator of the
/// batch's first sample.
class MixUp : public BatchTransform<Example<>, Example<>> {
 public:
  explicit MixUp(int64_t num_classes, double alpha = 1.0);
  Example<> apply_batch(Example<> batch) override;
  std::string describe() const;

 private:
  int64_t classes_;
  double alpha_;
};

namespace detail {

/// Calls a function that was passed to map(). It takes the sample or only the sample's data.
template <class Function, class Sample>
auto call_on(Function& function, Sample sample) {
  if constexpr (std::is_invocable_v<Function&, Sample>) {
    return function(std::move(sample));
  } else {
    static_assert(
        requires { function(std::move(sample.data)); }, "map() takes a function of the sample or of its data");
    sample.data = function(std::move(sample.data));
    return sample;
  }
}

/// The transform that map() makes of a function. `Base` is Lambda, or BatchLambda for a function of a batch.
template <template <class, class> class Base, class Input, class Function>
auto lambda_of(Function function) {
  using Output = decltype(call_on(function, std::declval<Input>()));
  std::string description = data::detail::describe(function);
  auto call = [function = std::move(function)](Input input) mutable { return call_on(function, std::move(input)); };
  return Base<Input, Output>(std::move(call), std::move(description));
}

}  // namespace detail

// These instances are compiled in transforms.cpp.
extern template class Normalize<>;
extern template class Stack<>;

}  // namespace gradus::data::transforms
