// Transforms for map(), with the names of torch::data::transforms. Transforms of images (affine, crop, flip, colour, …)
// are in data/transforms/image_transforms.h. explain() shows the result of describe() if a transform has it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include <gradus/data/example.h>

namespace gradus::data::detail {
// Lines of explain().

/// "Normalize" for gradus::data::transforms::Normalize<gradus::Tensor>; "function" for a lambda.
std::string short_name(const std::type_info& type);
/// "MNIST, 60000 samples"
std::string plan_line(const std::type_info& type, std::optional<size_t> size);
std::string join_lines(const std::vector<std::string>& lines);
/// Formats numbers as a person would write them: "0.5, 1, -3".
std::string join_numbers(const std::vector<double>& numbers);

/// A transform's own description, or its name.
template <class Transform>
std::string describe(const Transform& transform) {
  if constexpr (requires { transform.describe(); }) return transform.describe();
  else return short_name(typeid(Transform));
}

}  // namespace gradus::data::detail

namespace gradus::data::transforms {

/// A transform of one sample at a time. Derived classes implement apply; random ones draw from
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

/// Applies any function of a sample: map(Lambda<Example<>>([](Example<> e) { …; return e; })).
template <class Input, class Output = Input>
class Lambda : public Transform<Input, Output> {
 public:
  explicit Lambda(std::function<Output(Input)> function) : function_(std::move(function)) {}
  Output apply(Input input) override { return function_(std::move(input)); }

 private:
  std::function<Output(Input)> function_;
};

/// Transforms only the input and passes the target through. Derived classes implement operator().
template <class Target = Tensor>
class TensorTransform : public Transform<Example<Tensor, Target>, Example<Tensor, Target>> {
 public:
  virtual Tensor operator()(Tensor input) = 0;
  Example<Tensor, Target> apply(Example<Tensor, Target> example) override {
    example.data = (*this)(std::move(example.data));
    return example;
  }
};

/// Applies any function of the input.
template <class Target = Tensor>
class TensorLambda : public TensorTransform<Target> {
 public:
  explicit TensorLambda(std::function<Tensor(Tensor)> function) : function_(std::move(function)) {}
  Tensor operator()(Tensor input) override { return function_(std::move(input)); }

 private:
  std::function<Tensor(Tensor)> function_;
};

namespace detail {
/// (image - mean[c]) / deviation[c] for images (…, C, H, W); a single mean and deviation apply to all channels.
Tensor normalize(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& deviation);
/// Stacks tensors along a new first dimension.
Tensor stack(const std::vector<const Tensor*>& tensors);
void check_normalize(const std::vector<double>& mean, const std::vector<double>& deviation);
}  // namespace detail

/// (x - mean) / deviation for each channel of float images (C, H, W).
template <class Target = Tensor>
class Normalize : public TensorTransform<Target> {
 public:
  Normalize(double mean, double deviation) : Normalize(std::vector<double>{mean}, std::vector<double>{deviation}) {}
  Normalize(std::vector<double> mean, std::vector<double> deviation)
      : mean_(std::move(mean)), deviation_(std::move(deviation)) {
    detail::check_normalize(mean_, deviation_);
  }
  Tensor operator()(Tensor input) override { return detail::normalize(input, mean_, deviation_); }
  /// Normalises a batch (N, C, H, W).
  Example<> apply_stacked(Example<> batch) const {
    batch.data = detail::normalize(batch.data, mean_, deviation_);
    return batch;
  }
  std::string describe() const;

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

/// Applies any function of a whole batch.
template <class InputBatch, class OutputBatch = InputBatch>
class BatchLambda : public BatchTransform<InputBatch, OutputBatch> {
 public:
  explicit BatchLambda(std::function<OutputBatch(InputBatch)> function) : function_(std::move(function)) {}
  OutputBatch apply_batch(InputBatch batch) override { return function_(std::move(batch)); }

 private:
  std::function<OutputBatch(InputBatch)> function_;
};

/// Converts a batch to one object; implement it as a class or as a function.
template <class T, class BatchType = std::vector<T>>
using Collation = BatchTransform<BatchType, T>;
template <class T, class BatchType = std::vector<T>>
using Collate = BatchLambda<BatchType, T>;

/// Stacks a vector of examples to one example: data (N, …) and, if there are targets, target (N, …).
template <class SingleExample = Example<>>
class Stack : public BatchTransform<std::vector<SingleExample>, SingleExample> {
 public:
  static constexpr bool kStacks = true;

  SingleExample apply_batch(std::vector<SingleExample> examples) override {
    std::vector<const Tensor*> data, target;
    for (const SingleExample& example : examples) {
      data.push_back(&example.data);
      if constexpr (kHasTarget) target.push_back(&example.target);
    }
    if constexpr (kHasTarget) return {detail::stack(data), detail::stack(target)};
    else return {detail::stack(data)};
  }

 private:
  static constexpr bool kHasTarget = !std::is_same_v<SingleExample, TensorExample>;
};

/// Blends every sample with its neighbour in the batch (Zhang et al.: "mixup: Beyond empirical risk minimization",
/// 2018; torchvision.transforms.v2.MixUp). Used after Stack:
///   x' = λ x + (1 - λ) roll(x, 1),  y' = λ onehot(y) + (1 - λ) roll(onehot(y), 1),  λ ~ Beta(alpha, alpha)
/// Input: data (N, …) float32, target (N) int64 in [0, num_classes) (else an IndexError). The result's target is (N,
/// num_classes) float32, probabilities for cross_entropy. λ is drawn once per batch, from the generator of its first
/// sample.
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

/// Calls a function passed to map(), which takes the sample or only its data.
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

template <class Function, class Sample>
class SampleFunction : public Transform<Sample, decltype(call_on(std::declval<Function&>(), std::declval<Sample>()))> {
 public:
  explicit SampleFunction(Function function) : function_(std::move(function)) {}
  auto apply(Sample sample) -> typename SampleFunction::OutputType override {
    return call_on(function_, std::move(sample));
  }
  std::string describe() const { return data::detail::describe(function_); }

 private:
  Function function_;
};

template <class Function, class Batch>
class BatchFunction
    : public BatchTransform<Batch, decltype(call_on(std::declval<Function&>(), std::declval<Batch>()))> {
 public:
  explicit BatchFunction(Function function) : function_(std::move(function)) {}
  auto apply_batch(Batch batch) -> typename BatchFunction::OutputBatchType override {
    return call_on(function_, std::move(batch));
  }
  std::string describe() const { return data::detail::describe(function_); }

 private:
  Function function_;
};

}  // namespace detail

template <class Target>
std::string Normalize<Target>::describe() const {
  return "Normalize(mean " + data::detail::join_numbers(mean_) + "; deviation " +
         data::detail::join_numbers(deviation_) + ")";
}

// These instances are compiled only once.
extern template class Normalize<>;
extern template class Stack<>;

}  // namespace gradus::data::transforms
