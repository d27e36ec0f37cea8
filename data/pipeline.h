// Datasets that are made of other datasets: the results of BatchDataset's pipeline methods (data/dataset.h includes
// this file), AnyDataset, ConcatDataset and random_split.
#pragma once

#include <any>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include <gradus/data/dataset.h>

namespace gradus::data::datasets {

/// A dataset with a method get_stacked(indices). It returns the same batch as Stack makes of get_batch(indices), but
/// faster, because it makes no tensors of single samples.
template <class Source>
concept StackedDataset = requires(Source& source, const Indices& indices) {
  { source.get_stacked(indices) } -> std::same_as<Example<>>;
};
/// A transform with a method apply_stacked(batch), which has the same result as apply on each sample before Stack.
template <class Transform>
concept StackedTransform = requires(const Transform& transform, Example<> batch) {
  { transform.apply_stacked(std::move(batch)) } -> std::same_as<Example<>>;
};
/// A transform of one sample. Other transforms, such as Stack, take a whole batch.
template <class Transform, class Sample>
concept SampleTransform = requires(Transform& transform, Sample sample) {
  transform.apply(std::move(sample));
};

}  // namespace gradus::data::datasets

namespace gradus::data::detail {

/// The samples that a Subset takes from its source. Selections are thread-safe, and copies share their state: an order
/// that was drawn, or the samples that a filter has accepted so far.
struct Selection {
  /// The index in the source of sample `place` of the Subset. Throws an IndexError if there is none.
  std::function<size_t(size_t place)> at;
  std::function<std::optional<size_t>()> size;
  std::function<std::string()> describe;  ///< the Subset's line in explain(); reads no samples
};
using SourceSize = std::function<std::optional<size_t>()>;

/// Selects the listed samples.
Selection select_listed(Indices indices);
/// Selects `count` samples starting at `first`, or fewer if the source ends before.
Selection select_range(size_t first, size_t count, SourceSize source_size);
/// Selects all samples in a random order. The first use draws the order.
Selection select_shuffled(uint64_t seed, SourceSize source_size);
/// Selects the samples for which accepts(index) is true. Calls it once for each index, in order, and only when the
/// answer is needed.
Selection select_accepted(std::function<bool(size_t)> accepts, SourceSize source_size);

inline std::vector<std::string> with_line(std::vector<std::string> lines, std::string line) {
  lines.push_back(std::move(line));
  return lines;
}
/// Applies `stack` to these samples, or calls get_stacked if `source` has it. Without indices, returns an empty batch
/// (0, …), whose other sizes are those of sample 0.
template <class Source, class Stack>
typename Stack::OutputBatchType stacked(Source& source, Stack& stack, const Indices& indices) {
  if constexpr (datasets::StackedDataset<Source>) {
    return source.get_stacked(indices);
  } else if (!indices.empty()) {
    return stack.apply_batch(source.get_batch(indices));
  } else {
    auto batch = stack.apply_batch(source.get_batch({0}));
    batch.data = batch.data.narrow(0, 0, 0);
    if constexpr (requires { batch.target; }) batch.target = batch.target.narrow(0, 0, 0);
    return batch;
  }
}

/// Returns a copy of a sample. Tensors are cloned, so that changes in a batch do not reach the cached samples.
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

/// Permutes 0 … total - 1 at random by `seed` and splits the result into parts. `lengths` are the sizes of the parts,
/// which add up to `total`, or fractions, which add up to 1. Samples left over by rounding go to the first parts, one
/// to each (torch.utils.data.random_split). Anything else is a ValueError.
std::vector<Indices> split_indices(size_t total, const std::vector<double>& lengths, uint64_t seed);

}  // namespace gradus::data::detail

namespace gradus::data::datasets {

/// The result of map(): applies a transform to the samples or batches of `Source`.
template <class Source, class Transform>
class MapDataset : public BatchDataset<MapDataset<Source, Transform>, typename Transform::OutputBatchType> {
 public:
  using OutputBatchType = typename Transform::OutputBatchType;

  MapDataset(Source source, Transform transform) : source_(std::move(source)), transform_(std::move(transform)) {}

  OutputBatchType get_batch(const Indices& indices) override {
    if constexpr (Transform::kStacks) {
      return detail::stacked(source_, transform_, indices);
    } else if constexpr (SampleTransform<Transform, typename Transform::InputType>) {
      auto input = source_.get_batch(indices);
      OutputBatchType output;
      output.reserve(input.size());
      for (size_t i = 0; i < input.size(); ++i)
        output.push_back(
            detail::with_sample(indices[i], stage(), [&] { return transform_.apply(std::move(input[i])); }));
      return output;
    } else {
      auto input = source_.get_batch(indices);
      // A transform of batches (MixUp) draws from the generator of the batch's first sample.
      const detail::SampleScope scope(indices.empty() ? 0 : indices[0], stage());
      return transform_.apply_batch(std::move(input));
    }
  }

  // This is a template, because clang 14 would instantiate any other member with the class.
  template <StackedTransform Stacked = Transform>
  Example<> get_stacked(const Indices& indices) requires(StackedDataset<Source>) {
    return transform_.apply_stacked(source_.get_stacked(indices));
  }

  std::optional<size_t> size() const override { return source_.size(); }
  uint64_t stage() const override { return source_.stage() + 1; }
  std::vector<std::string> plan() const override {
    return detail::with_line(source_.plan(), "map " + detail::describe(transform_));
  }
  const Source& dataset() const { return source_; }
  const Transform& transform() const { return transform_; }

 private:
  Source source_;
  Transform transform_;
};

/// Samples of a source in a certain order (torch.utils.data.Subset). filter, shuffle, take and skip return a Subset.
/// The numbers that a random transform of the source draws depend on the sample's index in the source, not on its place
/// in the Subset.
template <class Source>
class Subset : public BatchDataset<Subset<Source>, typename Source::BatchType> {
 public:
  Subset(Source source, Indices indices) : Subset(std::move(source), detail::select_listed(std::move(indices))) {}

  /// The result of BatchDataset::filter.
  template <class Predicate>
  static Subset filtered(Source source, Predicate predicate) {
    static_assert(
        requires { typename Source::BatchType::value_type; }, "filter samples before they are stacked");
    auto accepts = [source, predicate = std::move(predicate)](size_t index) mutable {
      const detail::EpochScope scope(0, 0);
      auto sample = source.get_batch({index});
      return static_cast<bool>(predicate(std::as_const(sample[0])));
    };
    auto selection = detail::select_accepted(std::move(accepts), [source] { return source.size(); });
    return {std::move(source), std::move(selection)};
  }
  /// The result of BatchDataset::shuffle.
  static Subset shuffled(Source source, uint64_t seed) {
    auto selection = detail::select_shuffled(seed, [source] { return source.size(); });
    return {std::move(source), std::move(selection)};
  }
  /// The result of BatchDataset::take and skip.
  static Subset range_of(Source source, size_t first, size_t count) {
    auto selection = detail::select_range(first, count, [source] { return source.size(); });
    return {std::move(source), std::move(selection)};
  }

  typename Source::BatchType get_batch(const Indices& places) override { return source_.get_batch(selected(places)); }
  Example<> get_stacked(const Indices& places) requires(StackedDataset<Source>) {
    return source_.get_stacked(selected(places));
  }

  std::optional<size_t> size() const override { return selection_.size(); }
  uint64_t stage() const override { return source_.stage(); }
  std::vector<std::string> plan() const override { return detail::with_line(source_.plan(), selection_.describe()); }
  const Source& dataset() const { return source_; }

 private:
  Subset(Source source, detail::Selection selection) : source_(std::move(source)), selection_(std::move(selection)) {}

  Indices selected(const Indices& places) const {
    Indices indices;
    indices.reserve(places.size());
    for (size_t place : places) indices.push_back(selection_.at(place));
    return indices;
  }

  Source source_;
  detail::Selection selection_;
};

/// The result of cache().
template <class Source>
class CacheDataset : public BatchDataset<CacheDataset<Source>, typename Source::BatchType> {
 public:
  using BatchType = typename Source::BatchType;
  using ExampleType = typename BatchType::value_type;  // not after Stack, whose batches are not vectors

  CacheDataset(Source source, uint64_t seed)
      : source_(std::move(source)), seed_(seed), kept_(std::make_shared<Kept>()) {}

  BatchType get_batch(const Indices& indices) override {
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

  // Adds samples to the cache. Does not hold the lock while it reads the source: two threads may then read the same
  // sample, but they get equal data.
  void read_missing(const Indices& indices) {
    Indices missing;
    {
      std::lock_guard lock(kept_->mutex);
      for (size_t index : indices)
        if (!kept_->samples.count(index)) missing.push_back(index);
    }
    if (missing.empty()) return;
    const detail::EpochScope scope(seed_, 0);
    BatchType samples = source_.get_batch(missing);
    std::lock_guard lock(kept_->mutex);
    for (size_t i = 0; i < missing.size(); ++i) kept_->samples.try_emplace(missing[i], std::move(samples[i]));
  }

  Source source_;
  uint64_t seed_;
  std::shared_ptr<Kept> kept_;
};

// ---- Datasets composed of datasets, as in torch.utils.data ----

/// Holds a dataset of any type that returns this type of batches, for pipelines that are chosen at run time. Copies
/// contain a copy of the dataset:
///
///   data::datasets::AnyDataset<> train = digits;
///   if (augment) train = train.map(data::transforms::RandomAffine(10));
template <class Batch = std::vector<Example<>>>
class AnyDataset : public BatchDataset<AnyDataset<Batch>, Batch> {
 public:
  template <class Inner>
  requires(!std::is_same_v<std::remove_cvref_t<Inner>, AnyDataset>)
      AnyDataset(Inner dataset)  // NOLINT(google-explicit-constructor)
      : held_(std::move(dataset)), source_(&source_of<Inner>), stack_(&stack_of<Inner>) {}

  Batch get_batch(const Indices& indices) override { return source_(held_).get_batch(indices); }
  /// Returns a stacked batch. Uses get_stacked of the inner dataset if it is a StackedDataset.
  Example<> get_stacked(const Indices& indices) requires(std::is_same_v<Batch, std::vector<Example<>>>) {
    return stack_(held_, indices);
  }
  std::optional<size_t> size() const override { return source_(held_).size(); }
  uint64_t stage() const override { return source_(held_).stage(); }
  std::vector<std::string> plan() const override { return source_(held_).plan(); }

 private:
  template <class Inner>
  static BatchSource<Batch>& source_of(std::any& held) {
    return *std::any_cast<Inner>(&held);
  }
  template <class Inner>
  static Example<> stack_of(std::any& held, const Indices& indices) {
    if constexpr (std::is_same_v<Batch, std::vector<Example<>>>) {
      transforms::Stack<> stack;
      return detail::stacked(*std::any_cast<Inner>(&held), stack, indices);
    } else return {};
  }

  mutable std::any held_;  // mutable, because source_ serves both const and other methods
  BatchSource<Batch>& (*source_)(std::any& held);
  Example<> (*stack_)(std::any& held, const Indices& indices);
};

template <class Inner>
AnyDataset(Inner) -> AnyDataset<typename Inner::BatchType>;

/// Concatenates datasets: ConcatDataset(a, b, c) of different types whose batches are vectors of the same type, or
/// ConcatDataset(std::vector<D>{…}). A dataset of unknown size is a ValueError.
template <class Batch = std::vector<Example<>>>
class ConcatDataset : public BatchDataset<ConcatDataset<Batch>, Batch> {
 public:
  template <class First, class... Rest>
  requires(std::is_same_v<typename First::BatchType, Batch> &&
           (std::is_same_v<typename Rest::BatchType, Batch> && ...) &&
           !(sizeof...(Rest) == 0 && std::is_same_v<First, ConcatDataset>)) explicit ConcatDataset(First first,
                                                                                                   Rest... rest) {
    add(std::move(first));
    (add(std::move(rest)), ...);
  }
  template <class Part>
  explicit ConcatDataset(std::vector<Part> parts) {
    GRADUS_CHECK(!parts.empty(), ValueError, "ConcatDataset needs at least one dataset");
    for (Part& part : parts) add(std::move(part));
  }

  Batch get_batch(const Indices& indices) override {
    // Calls get_batch of each part once, for all of its samples in the batch.
    std::vector<Indices> wanted(parts_.size()), places(parts_.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      GRADUS_CHECK(indices[i] < ends_.back(), IndexError, "sample ", indices[i], " of a dataset of ", ends_.back());
      size_t part = 0;  // bisection would need a further header, which every program would compile
      while (indices[i] >= ends_[part]) ++part;
      wanted[part].push_back(indices[i] - (part ? ends_[part - 1] : 0));
      places[part].push_back(i);
    }
    Batch batch(indices.size());
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (wanted[part].empty()) continue;
      Batch samples = parts_[part].get_batch(wanted[part]);
      for (size_t i = 0; i < samples.size(); ++i) batch[places[part][i]] = std::move(samples[i]);
    }
    return batch;
  }

  std::optional<size_t> size() const override { return ends_.back(); }
  uint64_t stage() const override {
    uint64_t stage = 0;
    for (const auto& part : parts_) stage = std::max(stage, part.stage());
    return stage;
  }
  std::vector<std::string> plan() const override {
    std::vector<std::string> lines = {"concatenation of " + std::to_string(parts_.size())};
    for (const auto& part : parts_) {
      bool first = true;
      for (const std::string& line : part.plan()) lines.push_back((std::exchange(first, false) ? "- " : "  ") + line);
    }
    return lines;
  }

 private:
  void add(AnyDataset<Batch> part) {
    const std::optional<size_t> size = part.size();
    GRADUS_CHECK(size.has_value(), ValueError, "ConcatDataset needs datasets whose size is known");
    ends_.push_back(*size + (ends_.empty() ? 0 : ends_.back()));
    parts_.push_back(std::move(part));
  }

  std::vector<AnyDataset<Batch>> parts_;
  std::vector<size_t> ends_;  // end of each part, as an index into the whole dataset
};

template <class First, class... Rest>
ConcatDataset(First, Rest...) -> ConcatDataset<typename First::BatchType>;
template <class Part>
ConcatDataset(std::vector<Part>) -> ConcatDataset<typename Part::BatchType>;

/// Splits a dataset at random into parts that do not overlap: random_split(dataset, {50000, 10000}) or, with fractions,
/// random_split(dataset, {0.8, 0.2}). The split depends only on `seed`, by default the default generator's seed.
template <class Source, class Number>
std::vector<Subset<Source>> random_split(const Source& dataset, const std::vector<Number>& lengths,
                                         std::optional<uint64_t> seed = std::nullopt) {
  const std::optional<size_t> total = dataset.size();
  GRADUS_CHECK(total.has_value(), ValueError, "random_split needs a dataset whose size is known");
  std::vector<Subset<Source>> parts;
  for (Indices& indices :
       detail::split_indices(*total, {lengths.begin(), lengths.end()}, seed.value_or(default_generator().seed())))
    parts.emplace_back(dataset, std::move(indices));
  return parts;
}
template <class Source, class Number>
std::vector<Subset<Source>> random_split(const Source& dataset, std::initializer_list<Number> lengths,
                                         std::optional<uint64_t> seed = std::nullopt) {
  return random_split(dataset, std::vector<Number>(lengths), seed);
}

}  // namespace gradus::data::datasets
