// The steps of pipelines, made by the methods of BatchDataset (data/dataset.h includes this file).
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include <gradus/data/dataset.h>
#include <gradus/data/transforms/transforms.h>

namespace gradus::data::detail {

/// Which samples of a source a dataset selects. Copies share what they have found out, and are thread-safe.
struct Selection {
  std::function<size_t(size_t place)> at;  ///< the index in the source; a place out of range is an IndexError
  std::function<std::optional<size_t>()> size;
  std::function<std::string()> describe;  ///< a line for explain(); reads no samples
};
using SourceSize = std::function<std::optional<size_t>()>;

/// Selects the listed samples.
Selection select_listed(std::vector<size_t> indices);
/// Selects `count` samples starting at `first`, or as many as the source has.
Selection select_range(size_t first, size_t count, SourceSize source_size);
/// Selects all samples in random order, which is drawn on first use.
Selection select_shuffled(uint64_t seed, SourceSize source_size);
/// Selects the samples that `accepts` accepts. Calls it once for each sample, in order, when the answer is needed.
Selection select_accepted(std::function<bool(size_t)> accepts, SourceSize source_size);

}  // namespace gradus::data::detail

namespace gradus::data::datasets {

/// A dataset that can make a stacked batch directly, which is faster than stacking samples and gives identical results.
template <class Source>
concept StackedDataset = requires(Source& source, const std::vector<size_t>& indices) {
  { source.get_stacked(indices) } -> std::same_as<Example<>>;
};
/// A transform that can also be applied to a stacked batch.
template <class Transform>
concept StackedTransform = requires(const Transform& transform, Example<> batch) {
  { transform.apply_stacked(std::move(batch)) } -> std::same_as<Example<>>;
};
/// A transform of one sample. Other transforms (Stack) take the whole batch.
template <class Transform, class Sample>
concept SampleTransform = requires(Transform& transform, Sample sample) {
  transform.apply(std::move(sample));
};

namespace detail {
/// Applies Stack to these samples. An empty batch has the shape of the first sample: (0, …).
template <class Source, class Stack>
typename Stack::OutputBatchType stacked(Source& source, Stack& stack, const std::vector<size_t>& indices) {
  if (!indices.empty()) return stack.apply_batch(source.get_batch(indices));
  auto batch = stack.apply_batch(source.get_batch({0}));
  batch.data = batch.data.narrow(0, 0, 0);
  if constexpr (requires { batch.target; }) batch.target = batch.target.narrow(0, 0, 0);
  return batch;
}
}  // namespace detail

/// The result of map(): applies a transform to the samples or batches of `Source`.
template <class Source, class Transform>
class MapDataset : public BatchDataset<MapDataset<Source, Transform>, typename Transform::OutputBatchType> {
 public:
  using OutputBatchType = typename Transform::OutputBatchType;

  MapDataset(Source source, Transform transform) : source_(std::move(source)), transform_(std::move(transform)) {}

  OutputBatchType get_batch(const std::vector<size_t>& indices) override {
    if constexpr (Transform::kStacks && StackedDataset<Source>) {
      return source_.get_stacked(indices);
    } else if constexpr (Transform::kStacks) {
      return detail::stacked(source_, transform_, indices);
    } else if constexpr (SampleTransform<Transform, typename Transform::InputType>) {
      auto input = source_.get_batch(indices);
      OutputBatchType output;
      output.reserve(input.size());
      for (size_t i = 0; i < input.size(); ++i)
        output.push_back(gradus::data::detail::with_sample(indices[i], stage(),
                                                           [&] { return transform_.apply(std::move(input[i])); }));
      return output;
    } else {
      auto input = source_.get_batch(indices);
      // A transform of batches (MixUp) draws from the generator of the batch's first sample.
      const gradus::data::detail::SampleScope scope(indices.empty() ? 0 : indices[0], stage());
      return transform_.apply_batch(std::move(input));
    }
  }

  template <StackedTransform Stacked = Transform>  // clang 14 instantiates non-templates with the class
  Example<> get_stacked(const std::vector<size_t>& indices) requires(StackedDataset<Source>) {
    return transform_.apply_stacked(source_.get_stacked(indices));
  }

  std::optional<size_t> size() const override { return source_.size(); }
  uint64_t stage() const override { return source_.stage() + 1; }
  std::vector<std::string> plan() const override {
    std::vector<std::string> lines = source_.plan();
    lines.push_back("map " + gradus::data::detail::describe(transform_));
    return lines;
  }
  const Source& dataset() const { return source_; }
  const Transform& transform() const { return transform_; }

 private:
  Source source_;
  Transform transform_;
};

/// Selects samples of a source in a certain order (torch.utils.data.Subset); filter, shuffle, take and skip also return
/// this. Copies share the selection. A sample draws the random numbers of its index in the source.
template <class Source>
class Subset : public BatchDataset<Subset<Source>, typename Source::BatchType> {
 public:
  Subset(Source source, std::vector<size_t> indices)
      : Subset(std::move(source), gradus::data::detail::select_listed(std::move(indices))) {}
  Subset(Source source, gradus::data::detail::Selection selection)
      : source_(std::move(source)), selection_(std::move(selection)) {}

  typename Source::BatchType get_batch(const std::vector<size_t>& places) override {
    return source_.get_batch(selected(places));
  }
  Example<> get_stacked(const std::vector<size_t>& places) requires(StackedDataset<Source>) {
    return source_.get_stacked(selected(places));
  }

  std::optional<size_t> size() const override { return selection_.size(); }
  uint64_t stage() const override { return source_.stage(); }
  std::vector<std::string> plan() const override {
    std::vector<std::string> lines = source_.plan();
    lines.push_back(selection_.describe());
    return lines;
  }
  const Source& dataset() const { return source_; }

 private:
  std::vector<size_t> selected(const std::vector<size_t>& places) const {
    std::vector<size_t> indices;
    indices.reserve(places.size());
    for (size_t place : places) indices.push_back(selection_.at(place));
    return indices;
  }

  Source source_;
  gradus::data::detail::Selection selection_;
};

namespace detail {
/// Copies a tensor.
inline Tensor copy_of(const Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; }
template <class T>
T copy_of(const T& value) {
  return value;
}
template <class Data, class Target>
Example<Data, Target> copy_of(const Example<Data, Target>& example) {
  if constexpr (std::is_void_v<Target>) return {copy_of(example.data)};
  else return {copy_of(example.data), copy_of(example.target)};
}
}  // namespace detail

/// The result of cache().
template <class Source>
class CacheDataset : public BatchDataset<CacheDataset<Source>, typename Source::BatchType> {
 public:
  using BatchType = typename Source::BatchType;
  using ExampleType = typename BatchType::value_type;  // batches must be vectors: cache before Stack

  CacheDataset(Source source, uint64_t seed)
      : source_(std::move(source)), seed_(seed), kept_(std::make_shared<Kept>()) {}

  BatchType get_batch(const std::vector<size_t>& indices) override {
    read_missing(indices);
    BatchType batch;
    batch.reserve(indices.size());
    std::lock_guard lock(kept_->mutex);
    for (size_t index : indices) batch.push_back(detail::copy_of(kept_->samples.at(index)));
    return batch;
  }

  std::optional<size_t> size() const override { return source_.size(); }
  uint64_t stage() const override { return source_.stage(); }
  std::vector<std::string> plan() const override {
    std::vector<std::string> lines = source_.plan();
    std::lock_guard lock(kept_->mutex);
    lines.push_back("cache in memory, " + std::to_string(kept_->samples.size()) + " kept so far");
    return lines;
  }

 private:
  struct Kept {
    std::mutex mutex;
    std::unordered_map<size_t, ExampleType> samples;
  };

  // Reads without holding the lock: two threads may read the same sample and get equal data.
  void read_missing(const std::vector<size_t>& indices) {
    std::vector<size_t> missing;
    {
      std::lock_guard lock(kept_->mutex);
      for (size_t index : indices)
        if (!kept_->samples.count(index)) missing.push_back(index);
    }
    if (missing.empty()) return;
    const gradus::data::detail::EpochScope scope(seed_, 0);
    BatchType samples = source_.get_batch(missing);
    std::lock_guard lock(kept_->mutex);
    for (size_t i = 0; i < missing.size(); ++i) kept_->samples.try_emplace(missing[i], std::move(samples[i]));
  }

  Source source_;
  uint64_t seed_;
  std::shared_ptr<Kept> kept_;
};

namespace detail {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class Source, class Transform>
auto mapped(Source source, Transform transform) {
  using Batch = typename Source::BatchType;
  if constexpr (requires { typename Transform::OutputBatchType; }) {
    return MapDataset<Source, Transform>(std::move(source), std::move(transform));
  } else if constexpr (IsVector<Batch>::value) {
    using Adapted = transforms::detail::SampleFunction<Transform, typename Batch::value_type>;
    return MapDataset<Source, Adapted>(std::move(source), Adapted(std::move(transform)));
  } else {
    using Adapted = transforms::detail::BatchFunction<Transform, Batch>;
    return MapDataset<Source, Adapted>(std::move(source), Adapted(std::move(transform)));
  }
}

template <class Source, class Predicate>
auto filtered(Source source, Predicate predicate) {
  static_assert(IsVector<typename Source::BatchType>::value, "filter samples before they are stacked");
  auto accepts = [source, predicate = std::move(predicate)](size_t index) mutable {
    const gradus::data::detail::EpochScope scope(0, 0);
    auto sample = source.get_batch({index});
    return static_cast<bool>(predicate(std::as_const(sample[0])));
  };
  auto selection = gradus::data::detail::select_accepted(std::move(accepts), [source] { return source.size(); });
  return Subset<Source>(std::move(source), std::move(selection));
}

template <class Source>
auto shuffled(Source source, uint64_t seed) {
  auto selection = gradus::data::detail::select_shuffled(seed, [source] { return source.size(); });
  return Subset<Source>(std::move(source), std::move(selection));
}

template <class Source>
auto range_of(Source source, size_t first, size_t count) {
  auto selection = gradus::data::detail::select_range(first, count, [source] { return source.size(); });
  return Subset<Source>(std::move(source), std::move(selection));
}

}  // namespace detail
}  // namespace gradus::data::datasets
