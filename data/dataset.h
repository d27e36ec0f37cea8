// Datasets and lazy pipelines, with the interface of torch::data::datasets:
//
//   auto train = data::datasets::MNIST(root).map(data::transforms::RandomAffine(10))
//                                           .map(data::transforms::Normalize<>(0.1307, 0.3081))
//                                           .map(data::transforms::Stack<>());
//   std::puts(train.explain().c_str());
//
// A pipeline only describes work. It reads and computes nothing until a sample is requested, or until size() is called
// on a pipeline with filter(). A custom dataset derives from Dataset and implements two methods:
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

#include <gradus/data/sample.h>
#include <gradus/data/transforms/transforms.h>

namespace gradus::data::datasets {

// The results of BatchDataset's methods, which data/pipeline.h defines.
template <class Source, class Transform>
class MapDataset;
template <class Source>
class CacheDataset;
template <class Source>
class Subset;

/// The interface of all datasets with this batch type. Custom datasets do not derive from it but from Dataset or
/// BatchDataset.
template <class Batch>
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Returns the batch of the samples with these indices, in this order. `indices` may be empty: if a batch has fewer
  /// samples than there are ranks (DataLoaderOptions::distributed), some ranks get none of them.
  virtual Batch get_batch(const Indices& indices) = 0;
  /// Number of samples, if known.
  virtual std::optional<size_t> size() const = 0;
  /// The lines of BatchDataset::explain().
  virtual std::vector<std::string> plan() const = 0;
  /// Returns how many map() calls the pipeline has up to and including this dataset. The number is part of the state of
  /// a sample's generator (detail::SampleScope), so that two random transforms of a pipeline draw different numbers.
  virtual uint64_t stage() const { return 0; }
};

/// Base of all datasets that return samples by index. `Self` is the derived class: map() and the other pipeline methods
/// return an object that contains a `Self`.
///
/// The pipeline methods copy this dataset into their result, or move it there if it is an rvalue.
template <class Self, class Batch = std::vector<Example<>>>
class BatchDataset : public BatchSource<Batch> {
 public:
  using BatchType = Batch;

  /// Returns one sample. Compiles only if `Batch` is a vector, so not after Stack.
  auto get(size_t index) { return std::move(this->get_batch({index}).at(0)); }

  /// Applies `transform` to every sample or, after Stack, to every batch. A transform is a class of
  /// data/transforms/transforms.h or data/transforms/image_transforms.h, or any function of the sample (Example<>) or
  /// of its data (Tensor).
  template <class Transform>
  auto map(Transform transform) const& {
    return mapped(self(), std::move(transform));
  }
  template <class Transform>
  auto map(Transform transform) && {
    return mapped(std::move(self()), std::move(transform));
  }

  /// Keeps only the samples for which predicate(sample) is true, in their order. To find a sample, reads this dataset
  /// from the start until enough samples were accepted; size() reads all of it. The predicate is called once for each
  /// sample, and copies of the pipeline share its answers. While the predicate runs, random transforms behave as in
  /// epoch 0 with seed 0, so that the selection is the same in all epochs.
  template <class Predicate>
  auto filter(Predicate predicate) const& {
    return Subset<Self>::filtered(self(), std::move(predicate));
  }
  template <class Predicate>
  auto filter(Predicate predicate) && {
    return Subset<Self>::filtered(std::move(self()), std::move(predicate));
  }

  /// Keeps every requested sample in memory. Copies of the pipeline share the memory, and each request returns a new
  /// copy of the sample. Random transforms before cache() run once for each sample and draw from `seed`, so that a
  /// resumed run gets the same samples.
  auto cache(uint64_t seed = 0) const& { return CacheDataset<Self>(self(), seed); }
  auto cache(uint64_t seed = 0) && { return CacheDataset<Self>(std::move(self()), seed); }

  /// Puts the samples in a random order that depends only on `seed` and is the same in every epoch. (A RandomSampler
  /// uses a different order in each epoch.)
  auto shuffle(uint64_t seed = 0) const& { return Subset<Self>::shuffled(self(), seed); }
  auto shuffle(uint64_t seed = 0) && { return Subset<Self>::shuffled(std::move(self()), seed); }

  /// Keeps the first `count` samples, or all if there are fewer.
  auto take(size_t count) const& { return Subset<Self>::range_of(self(), 0, count); }
  auto take(size_t count) && { return Subset<Self>::range_of(std::move(self()), 0, count); }
  /// Keeps all samples except the first `count`.
  auto skip(size_t count) const& { return Subset<Self>::range_of(self(), count, SIZE_MAX); }
  auto skip(size_t count) && { return Subset<Self>::range_of(std::move(self()), count, SIZE_MAX); }

  /// Describes the pipeline: one line for the dataset at its source, then one line for each of the methods above that
  /// was applied to it. Reads no sample.
  std::string explain() const {
    std::string text;
    for (const std::string& line : plan()) text += line + "\n";
    return text;
  }
  /// Returns the lines of explain(). The default is one line with the name of the class and the number of samples.
  std::vector<std::string> plan() const override {
    const std::optional<size_t> size = this->size();
    return {detail::short_name(typeid(Self)) +
            (size ? ", " + std::to_string(*size) + " samples" : ", of unknown size")};
  }

 private:
  template <class Transform>
  static auto mapped(Self source, Transform transform) {
    if constexpr (requires { typename Transform::OutputBatchType; }) {
      return MapDataset<Self, Transform>(std::move(source), std::move(transform));
    } else if constexpr (requires { typename Batch::value_type; }) {
      using transforms::Lambda;
      return mapped(std::move(source),
                    transforms::detail::lambda_of<Lambda, typename Batch::value_type>(std::move(transform)));
    } else {
      using transforms::BatchLambda;
      return mapped(std::move(source), transforms::detail::lambda_of<BatchLambda, Batch>(std::move(transform)));
    }
  }
  const Self& self() const { return static_cast<const Self&>(*this); }
  Self& self() { return static_cast<Self&>(*this); }
};

/// A dataset that makes one sample at a time. Derived classes implement get and size. A loader copies the dataset for
/// each of its worker threads, so no two threads use the same copy.
template <class Self, class SingleExample = Example<>>
class Dataset : public BatchDataset<Self, std::vector<SingleExample>> {
 public:
  using ExampleType = SingleExample;
  virtual ExampleType get(size_t index) = 0;

  std::vector<ExampleType> get_batch(const Indices& indices) override {
    std::vector<ExampleType> batch;
    batch.reserve(indices.size());
    for (size_t index : indices) batch.push_back(detail::with_sample(index, 0, [&] { return get(index); }));
    return batch;
  }
};

/// TensorDataset(x): sample i is x[i]. TensorDataset(inputs, targets): sample i is {inputs[i], targets[i]}. Samples are
/// views, which share memory with the tensors.
template <class Target = example::NoTarget>
class TensorDataset : public Dataset<TensorDataset<Target>, Example<Tensor, Target>> {
 public:
  static constexpr bool kHasTarget = std::is_same_v<Target, Tensor>;
  static_assert(kHasTarget || std::is_void_v<Target>, "TensorDataset(x) or TensorDataset(inputs, targets)");

  /// x (N, …)
  explicit TensorDataset(Tensor x) requires(!kHasTarget) : data_(std::move(x)) { check(data_); }
  /// Takes the samples as separate tensors of the same shape, as in LibTorch.
  explicit TensorDataset(const TensorList& rows) requires(!kHasTarget) : data_(transforms::detail::stack(rows)) {}
  /// inputs (N, …) and targets (N, …)
  TensorDataset(Tensor inputs, Tensor targets) requires(kHasTarget)
      : data_(std::move(inputs)), target_(std::move(targets)) {
    check(data_);
    check(target_);
    GRADUS_CHECK(data_.size(0) == target_.size(0), ShapeError, "TensorDataset: ", data_.size(0), " inputs but ",
                 target_.size(0), " targets");
  }

  Example<Tensor, Target> get(size_t index) override {
    GRADUS_CHECK(index < *size(), IndexError, "sample ", index, " of a dataset of ", *size());
    if constexpr (kHasTarget) return {row(data_, index), row(target_, index)};
    else return {row(data_, index)};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(data_.size(0)); }

 private:
  static void check(const Tensor& tensor) {
    GRADUS_CHECK(tensor.dim() > 0, ShapeError, "TensorDataset needs tensors of shape (N, …), got a scalar");
  }
  static Tensor row(const Tensor& tensor, size_t index) {
    return Tensor(tensor.array().select(0, static_cast<int64_t>(index)));
  }

  Tensor data_, target_;
};

TensorDataset(Tensor)->TensorDataset<example::NoTarget>;
TensorDataset(TensorList)->TensorDataset<example::NoTarget>;
TensorDataset(Tensor, Tensor)->TensorDataset<Tensor>;

}  // namespace gradus::data::datasets

namespace gradus::data {
using datasets::BatchDataset;
using datasets::Dataset;
}  // namespace gradus::data

#include <gradus/data/pipeline.h>
