// What map() puts behind a dataset, with the names of torch::data::transforms.
#pragma once

#include <functional>
#include <vector>

#include <gradus/data/example.h>

namespace gradus::data::transforms {

/// A transform of one sample at a time. Derived classes write apply; random ones draw from data::sample_generator().
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

/// Any function of a sample: map(Lambda<Example<>>([](Example<> e) { …; return e; })).
template <class Input, class Output = Input>
class Lambda : public Transform<Input, Output> {
 public:
  explicit Lambda(std::function<Output(Input)> function) : function_(std::move(function)) {}
  Output apply(Input input) override { return function_(std::move(input)); }

 private:
  std::function<Output(Input)> function_;
};

/// A function of the input alone; the target passes through. Derived classes write operator().
template <class Target = Tensor>
class TensorTransform : public Transform<Example<Tensor, Target>, Example<Tensor, Target>> {
 public:
  virtual Tensor operator()(Tensor input) = 0;
  Example<Tensor, Target> apply(Example<Tensor, Target> example) override {
    example.data = (*this)(std::move(example.data));
    return example;
  }
};

/// Any function of the input alone.
template <class Target = Tensor>
class TensorLambda : public TensorTransform<Target> {
 public:
  explicit TensorLambda(std::function<Tensor(Tensor)> function) : function_(std::move(function)) {}
  Tensor operator()(Tensor input) override { return function_(std::move(input)); }

 private:
  std::function<Tensor(Tensor)> function_;
};

namespace detail {
/// (image - mean[c]) / deviation[c] for images (…, C, H, W); one mean and deviation serve all channels.
Tensor normalize(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& deviation);
/// One tensor of one more dimension.
Tensor stack(const std::vector<const Tensor*>& tensors);
void check_normalize(const std::vector<double>& mean, const std::vector<double>& deviation);
}  // namespace detail

/// (x - mean) / deviation by channel, for float images (C, H, W).
template <class Target = Tensor>
class Normalize : public TensorTransform<Target> {
 public:
  Normalize(double mean, double deviation) : Normalize(std::vector<double>{mean}, std::vector<double>{deviation}) {}
  Normalize(std::vector<double> mean, std::vector<double> deviation)
      : mean_(std::move(mean)), deviation_(std::move(deviation)) {
    detail::check_normalize(mean_, deviation_);
  }
  Tensor operator()(Tensor input) override { return detail::normalize(input, mean_, deviation_); }
  /// The same for a batch (N, C, H, W).
  Example<> apply_stacked(Example<> batch) const {
    batch.data = detail::normalize(batch.data, mean_, deviation_);
    return batch;
  }

 private:
  std::vector<double> mean_, deviation_;
};

/// A transform of a whole batch. Derived classes write apply_batch.
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

/// Makes one example of a vector of them: data (N, …) and target (N, …).
template <class SingleExample = Example<>>
class Stack : public BatchTransform<std::vector<SingleExample>, SingleExample> {
 public:
  static constexpr bool kStacks = true;

  SingleExample apply_batch(std::vector<SingleExample> examples) override {
    std::vector<const Tensor*> data, target;
    for (const SingleExample& example : examples) {
      data.push_back(&example.data);
      target.push_back(&example.target);
    }
    return {detail::stack(data), detail::stack(target)};
  }
};

}  // namespace gradus::data::transforms
