// Datasets and lazy pipelines, with the interface of torch::data::datasets:
//
//   auto train = data::datasets::MNIST(root).map(data::transforms::RandomAffine(10))
//                                           .map(data::transforms::Normalize<>(0.1307, 0.3081))
//                                           .map(data::transforms::Stack<>());
//   std::puts(train.explain().c_str());
//
// A pipeline describes work: nothing is read or computed before a sample, or a size that depends on samples, is
// requested. A custom dataset derives from Dataset and implements two methods:
//
//   struct Squares : data::datasets::Dataset<Squares> {
//     data::Example<> get(size_t i) override { return {tensor(float(i)), tensor(float(i * i))}; }
//     std::optional<size_t> size() const override { return 100; }
//   };
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <gradus/data/example.h>
#include <gradus/data/sample.h>
#include <gradus/data/transforms/transforms.h>

namespace gradus::data::datasets {

namespace detail {
// Results of the pipeline methods. Their bodies are in data/pipeline.h.
template <class Source, class Transform>
auto mapped(Source source, Transform transform);
template <class Source, class Predicate>
auto filtered(Source source, Predicate predicate);
template <class Source>
auto shuffled(Source source, uint64_t seed);
template <class Source>
auto range_of(Source source, size_t first, size_t count);
}  // namespace detail

template <class Source>
class CacheDataset;

/// What every dataset with this batch type can do. Derive from BatchDataset instead.
template <class Batch>
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Returns the batch of the samples with these indices, in this order. It may be empty, as a rank's part of a small
  /// batch.
  virtual Batch get_batch(const std::vector<size_t>& indices) = 0;
  /// Number of samples, if known.
  virtual std::optional<size_t> size() const = 0;
  /// The lines of BatchDataset::explain().
  virtual std::vector<std::string> plan() const = 0;
  /// Number of transforms before this dataset. The stage selects the stream of random numbers that a
  /// transform draws from.
  virtual uint64_t stage() const { return 0; }
};

/// Base of everything a loader can read batches from. `Self` is the derived class, so that pipelines know their whole
/// type.
///
/// Methods that make pipelines copy this dataset, or move it from an rvalue.
template <class Self, class Batch = std::vector<Example<>>>
class BatchDataset : public BatchSource<Batch> {
 public:
  using BatchType = Batch;

  /// Returns one sample. Only for datasets whose batches are vectors.
  auto get(size_t index) { return std::move(this->get_batch({index}).at(0)); }

  /// Applies `transform` to every sample, or after Stack to the batch. A transform is a class of
  /// data/transforms/transforms.h or data/transforms/image_transforms.h, or any function of the sample (Example<>) or
  /// of its data (Tensor).
  template <class Transform>
  auto map(Transform transform) const& {
    return detail::mapped(self(), std::move(transform));
  }
  template <class Transform>
  auto map(Transform transform) && {
    return detail::mapped(std::move(self()), std::move(transform));
  }

  /// Keeps only the samples that predicate(sample) accepts, in their order. The source is read as far as needed to find
  /// the requested sample; size() reads all of it. Results are remembered and shared by copies. While the predicate
  /// runs, random transforms behave as in epoch 0 with seed 0, so that the selection does not change.
  template <class Predicate>
  auto filter(Predicate predicate) const& {
    return detail::filtered(self(), std::move(predicate));
  }
  template <class Predicate>
  auto filter(Predicate predicate) && {
    return detail::filtered(std::move(self()), std::move(predicate));
  }

  /// Keeps every requested sample in memory. Copies share the cache, and each consumer gets its own copy of a sample.
  /// Random transforms before the cache draw once, from `seed`, so that a resumed run sees the same samples.
  auto cache(uint64_t seed = 0) const& { return CacheDataset<Self>(self(), seed); }
  auto cache(uint64_t seed = 0) && { return CacheDataset<Self>(std::move(self()), seed); }

  /// The samples in a random order that depends only on `seed` and is the same in every epoch. (RandomSampler uses a
  /// different order in each epoch.)
  auto shuffle(uint64_t seed = 0) const& { return detail::shuffled(self(), seed); }
  auto shuffle(uint64_t seed = 0) && { return detail::shuffled(std::move(self()), seed); }

  /// The first `count` samples, or all if there are fewer.
  auto take(size_t count) const& { return detail::range_of(self(), 0, count); }
  auto take(size_t count) && { return detail::range_of(std::move(self()), 0, count); }
  /// All samples except the first `count`.
  auto skip(size_t count) const& { return detail::range_of(self(), count, SIZE_MAX); }
  auto skip(size_t count) && { return detail::range_of(std::move(self()), count, SIZE_MAX); }

  /// Describes the pipeline, one line for each step, starting with the source. Reads no sample.
  std::string explain() const { return gradus::data::detail::join_lines(plan()); }
  /// The lines of explain(). By default a dataset is described by its name and size.
  std::vector<std::string> plan() const override {
    return {gradus::data::detail::plan_line(typeid(Self), this->size())};
  }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
  Self& self() { return static_cast<Self&>(*this); }
};

/// A dataset that makes one sample at a time. Derived classes implement get and size. Loaders copy a dataset for each
/// worker and use each copy in one thread.
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

}  // namespace gradus::data::datasets

namespace gradus::data {
using datasets::BatchDataset;
using datasets::Dataset;
}  // namespace gradus::data

#include <gradus/data/pipeline.h>
