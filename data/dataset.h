// Datasets and lazy pipelines, with the interface of torch::data::datasets:
//
//   auto train = data::datasets::MNIST(root).map(data::transforms::RandomAffine(10))
//                                           .map(data::transforms::Normalize<>(0.1307, 0.3081))
//                                           .map(data::transforms::Stack<>());
//   std::puts(train.explain().c_str());
//
// A pipeline says what to do; nothing is read or computed before a sample (or a size that depends on samples) is asked
// for. A dataset of your own derives from Dataset and writes two methods:
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
#include <gradus/data/plan.h>
#include <gradus/data/sample.h>

namespace gradus::data::datasets {

namespace detail {
// What the methods of pipelines return; data/pipeline.h has the bodies.
template <class Source, class Transform>
auto mapped(Source source, Transform transform);
template <class Source, class Predicate>
auto filtered(Source source, Predicate predicate);
template <class Source>
auto cached(Source source, uint64_t seed);
template <class Source>
auto shuffled(Source source, uint64_t seed);
template <class Source>
auto range_of(Source source, size_t first, size_t count);
}  // namespace detail

/// What a loader reads batches from. `Self` is the derived class, so that pipelines know their whole type.
///
/// The methods that make pipelines keep a copy of this dataset, or move it from an rvalue.
template <class Self, class Batch = std::vector<Example<>>>
class BatchDataset {
 public:
  using BatchType = Batch;

  virtual ~BatchDataset() = default;
  /// The batch of the samples with these indices, in this order. There may be none: a rank's part of a small batch.
  virtual Batch get_batch(const std::vector<size_t>& indices) = 0;
  /// Number of samples, where it is known.
  virtual std::optional<size_t> size() const = 0;

  /// One sample, of a dataset whose batches are vectors.
  auto get(size_t index) { return std::move(get_batch({index}).at(0)); }

  /// Applies `transform` to every sample, or to the batch behind Stack. A transform is one of data/transforms/transforms.h or
  /// data/transforms/image_transforms.h, or any function of the sample (Example<>) or of its data (Tensor).
  template <class Transform>
  auto map(Transform transform) const& {
    return detail::mapped(self(), std::move(transform));
  }
  template <class Transform>
  auto map(Transform transform) && {
    return detail::mapped(std::move(self()), std::move(transform));
  }

  /// Only the samples that predicate(sample) accepts, in their order. The source is read as far as it takes to find the
  /// sample that is asked for; size() reads all of it. What is found is remembered and shared by copies. The predicate
  /// sees random transforms as the first epoch of seed 0 has them, so that what is accepted stays the same.
  template <class Predicate>
  auto filter(Predicate predicate) const& {
    return detail::filtered(self(), std::move(predicate));
  }
  template <class Predicate>
  auto filter(Predicate predicate) && {
    return detail::filtered(std::move(self()), std::move(predicate));
  }

  /// Keeps every sample in memory once it was asked for; copies share what is kept. Each consumer gets numbers of its
  /// own. Random transforms before the cache draw once, from `seed`, whenever that is: a resumed run sees the same.
  auto cache(uint64_t seed = 0) const& { return detail::cached(self(), seed); }
  auto cache(uint64_t seed = 0) && { return detail::cached(std::move(self()), seed); }

  /// The samples in a random order, the same in every epoch: a function of `seed`. (RandomSampler gives each epoch an
  /// order of its own.)
  auto shuffle(uint64_t seed = 0) const& { return detail::shuffled(self(), seed); }
  auto shuffle(uint64_t seed = 0) && { return detail::shuffled(std::move(self()), seed); }

  /// The first `count` samples, or all where there are fewer.
  auto take(size_t count) const& { return detail::range_of(self(), 0, count); }
  auto take(size_t count) && { return detail::range_of(std::move(self()), 0, count); }
  /// All samples but the first `count`.
  auto skip(size_t count) const& { return detail::range_of(self(), count, SIZE_MAX); }
  auto skip(size_t count) && { return detail::range_of(std::move(self()), count, SIZE_MAX); }

  /// The pipeline in words, a line for each step, the source first. Reads no sample.
  std::string explain() const { return gradus::data::detail::join_lines(plan()); }
  /// The lines of explain(). A dataset of your own has its name and size here, unless it overrides this.
  virtual std::vector<std::string> plan() const { return {gradus::data::detail::plan_line(typeid(Self), size())}; }
  /// Number of transforms before this dataset's samples. Each draws random numbers of its own stage.
  virtual uint64_t stage() const { return 0; }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
  Self& self() { return static_cast<Self&>(*this); }
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

}  // namespace gradus::data::datasets

namespace gradus::data {
using datasets::BatchDataset;
using datasets::Dataset;
}  // namespace gradus::data

#include <gradus/data/pipeline.h>
