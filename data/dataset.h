// Datasets and lazy pipelines, with the interface of torch::data::datasets:
//
//   auto train = data::datasets::MNIST(root).map(data::transforms::Normalize<>(0.1307, 0.3081))
//                                           .map(data::transforms::Stack<>());
//
// Nothing is read or computed before get_batch asks for it.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gradus/data/example.h>
#include <gradus/data/sample.h>

namespace gradus::data::datasets {

template <class Source, class Transform>
class MapDataset;

/// What a loader reads batches from. `Self` is the derived class, so that map() knows the whole pipeline's type.
template <class Self, class Batch = std::vector<Example<>>>
class BatchDataset {
 public:
  using BatchType = Batch;
  /// Number of transforms before this dataset's samples.
  static constexpr uint64_t kStage = 0;

  virtual ~BatchDataset() = default;
  /// The batch of the samples with these indices, in this order.
  virtual Batch get_batch(const std::vector<size_t>& indices) = 0;
  /// Number of samples, where it is known.
  virtual std::optional<size_t> size() const = 0;

  /// This dataset (a copy, or moved from an rvalue) with `transform` applied to its batches.
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) & {
    return MapDataset<Self, Transform>(static_cast<Self&>(*this), std::move(transform));
  }
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) && {
    return MapDataset<Self, Transform>(std::move(static_cast<Self&>(*this)), std::move(transform));
  }
};

/// A dataset that makes one sample at a time. Derived classes write get and size. Loaders copy a dataset for each of
/// their workers and call each copy from one thread.
template <class Self, class SingleExample = Example<>>
class Dataset : public BatchDataset<Self, std::vector<SingleExample>> {
 public:
  using ExampleType = SingleExample;
  virtual ExampleType get(size_t index) = 0;

  std::vector<ExampleType> get_batch(const std::vector<size_t>& indices) override {
    std::vector<ExampleType> batch;
    batch.reserve(indices.size());
    for (size_t index : indices)
      batch.push_back(gradus::data::detail::with_sample(index, 0, [&] { return get(index); }));
    return batch;
  }
};

/// A dataset that can make a stacked batch at once, faster than by stacking samples, with the same bits.
template <class Source>
concept StackedDataset = requires(Source& source, const std::vector<size_t>& indices) {
  { source.get_stacked(indices) } -> std::same_as<Example<>>;
};
/// A transform that may as well be applied to a stacked batch.
template <class Transform>
concept StackedTransform = requires(const Transform& transform, Example<> batch) {
  { transform.apply_stacked(std::move(batch)) } -> std::same_as<Example<>>;
};
/// A transform of one sample; others (Stack) take the whole batch.
template <class Transform, class Sample>
concept SampleTransform = requires(Transform& transform, Sample sample) {
  transform.apply(std::move(sample));
};

/// What map() returns: `Source` with a transform of its samples or of its batches behind it.
template <class Source, class Transform>
class MapDataset : public BatchDataset<MapDataset<Source, Transform>, typename Transform::OutputBatchType> {
 public:
  using OutputBatchType = typename Transform::OutputBatchType;
  static constexpr uint64_t kStage = Source::kStage + 1;

  MapDataset(Source source, Transform transform) : source_(std::move(source)), transform_(std::move(transform)) {}

  OutputBatchType get_batch(const std::vector<size_t>& indices) override {
    if constexpr (Transform::kStacks && StackedDataset<Source>) {
      return source_.get_stacked(indices);
    } else {
      auto input = source_.get_batch(indices);
      if constexpr (SampleTransform<Transform, typename Transform::InputType>) {
        OutputBatchType output;
        output.reserve(input.size());
        for (size_t i = 0; i < input.size(); ++i)
          output.push_back(gradus::data::detail::with_sample(indices[i], kStage,
                                                             [&] { return transform_.apply(std::move(input[i])); }));
        return output;
      } else {
        return transform_.apply_batch(std::move(input));
      }
    }
  }

  Example<> get_stacked(const std::vector<size_t>& indices) requires(
      StackedDataset<Source>&& StackedTransform<Transform>) {
    return transform_.apply_stacked(source_.get_stacked(indices));
  }

  std::optional<size_t> size() const override { return source_.size(); }
  const Source& dataset() const { return source_; }
  const Transform& transform() const { return transform_; }

 private:
  Source source_;
  Transform transform_;
};

}  // namespace gradus::data::datasets
