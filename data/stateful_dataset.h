// StatefulDataset, which chooses the samples of the next batch itself, and SharedBatchDataset, whose copies share one
// dataset. Both have the interface of torch::data::datasets. <gradus/torch.h> includes this file, <gradus/gradus.h>
// does not.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <gradus/autograd/archive.h>
#include <gradus/data/dataset.h>
#include <gradus/data/loader/data_loader.h>

namespace gradus::data {

namespace detail {
/// The dataset that the copies of a SharedBatchDataset share.
template <class Shared>
class SharedDataset {
 public:
  explicit SharedDataset(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  Shared& operator*() const { return *shared_; }
  Shared* operator->() const { return shared_.get(); }

 private:
  std::shared_ptr<Shared> shared_;
};
}  // namespace detail

namespace datasets {

/// The result of StatefulDataset::map().
template <class Source, class Transform>
class MappedStatefulDataset;

/// A dataset without indices. get_batch returns the next batch (torch::data::datasets::StatefulDataset):
///   struct Stream : data::datasets::StatefulDataset<Stream> {
///     std::optional<std::vector<data::Example<>>> get_batch(size_t batch_size) override;
///     void reset() override;
///     std::optional<size_t> size() const override { return std::nullopt; }
///   };
template <class Self, class Batch = std::vector<Example<>>, class BatchRequest = size_t>
class StatefulDataset {
 public:
  using BatchType = Batch;
  using StatefulDatasetTag = void;

  virtual ~StatefulDataset() = default;
  /// Returns the next batch, or nothing at the end of the epoch.
  virtual std::optional<Batch> get_batch(BatchRequest request) = 0;
  /// Starts an epoch.
  virtual void reset() = 0;
  /// Number of samples, if known.
  virtual std::optional<size_t> size() const = 0;
  /// Saves state that reset() does not restore. By default there is none.
  virtual void save(serialize::OutputArchive&) const {}
  /// Reads what save() wrote.
  virtual void load(serialize::InputArchive&) {}

  /// Applies a transform of data/transforms/transforms.h to every batch, or to each of its samples.
  template <class Transform>
  auto map(Transform transform) const& {
    return MappedStatefulDataset<Self, Transform>(static_cast<const Self&>(*this), std::move(transform));
  }
  template <class Transform>
  auto map(Transform transform) && {
    return MappedStatefulDataset<Self, Transform>(std::move(static_cast<Self&>(*this)), std::move(transform));
  }
};

/// Applies a transform to the batches of a stateful dataset.
template <class Source, class Transform>
class MappedStatefulDataset
    : public StatefulDataset<MappedStatefulDataset<Source, Transform>, typename Transform::OutputBatchType> {
 public:
  using Batch = typename Transform::OutputBatchType;
  MappedStatefulDataset(Source source, Transform transform)
      : source_(std::move(source)), transform_(std::move(transform)) {}

  std::optional<Batch> get_batch(size_t batch_size) override {
    auto batch = source_.get_batch(batch_size);
    if (!batch) return std::nullopt;
    if constexpr (requires { transform_.apply_batch(std::move(*batch)); }) {
      return transform_.apply_batch(std::move(*batch));
    } else {
      Batch outputs;
      for (auto& example : *batch) outputs.push_back(transform_.apply(std::move(example)));
      return outputs;
    }
  }
  void reset() override { source_.reset(); }
  std::optional<size_t> size() const override { return source_.size(); }

 private:
  Source source_;
  Transform transform_;
};

/// All copies refer to the same dataset, so that a loader's workers share it. The dataset must be thread-safe
/// (torch::data::datasets::SharedBatchDataset).
template <class Shared>
class SharedBatchDataset : public BatchDataset<SharedBatchDataset<Shared>, typename Shared::BatchType>,
                           public detail::SharedDataset<Shared> {
 public:
  using detail::SharedDataset<Shared>::SharedDataset;
  typename Shared::BatchType get_batch(const Indices& indices) override { return (*this)->get_batch(indices); }
  std::optional<size_t> size() const override { return (*this)->size(); }
};
/// A stateful dataset that all copies share.
template <class Shared>
requires requires { typename Shared::StatefulDatasetTag; }
class SharedBatchDataset<Shared> : public StatefulDataset<SharedBatchDataset<Shared>, typename Shared::BatchType>,
                                   public detail::SharedDataset<Shared> {
 public:
  using detail::SharedDataset<Shared>::SharedDataset;
  std::optional<typename Shared::BatchType> get_batch(size_t batch_size) override {
    return (*this)->get_batch(batch_size);
  }
  void reset() override { (*this)->reset(); }
  std::optional<size_t> size() const override { return (*this)->size(); }
};

template <class Shared>
SharedBatchDataset(std::shared_ptr<Shared>) -> SharedBatchDataset<Shared>;

/// Makes a shared dataset from constructor arguments.
template <class Shared, class... Args>
SharedBatchDataset<Shared> make_shared_dataset(Args&&... args) {
  return SharedBatchDataset<Shared>(std::make_shared<Shared>(std::forward<Args>(args)...));
}

}  // namespace datasets

/// Iterates over epochs of a stateful dataset. The consumer's thread makes the batches, also if the options ask for
/// workers, because each batch depends on the batches before it.
template <class Dataset>
class StatefulDataLoader {
 public:
  using Batch = typename Dataset::BatchType;
  using Iterator = BatchIterator<StatefulDataLoader, Batch>;

  StatefulDataLoader(Dataset dataset, const DataLoaderOptions& options)
      : dataset_(std::move(dataset)), options_(options) {}
  /// Starts an epoch: resets the dataset.
  Iterator begin() {
    dataset_.reset();
    return Iterator(this);
  }
  /// The end of the epoch.
  Iterator end() { return {}; }
  /// The options that were given to the constructor.
  const DataLoaderOptions& options() const { return options_; }

 private:
  friend Iterator;
  std::shared_ptr<Batch> next() {
    std::optional<Batch> batch = dataset_.get_batch(options_.batch_size());
    return batch ? std::make_shared<Batch>(std::move(*batch)) : nullptr;
  }

  Dataset dataset_;
  DataLoaderOptions options_;
};

/// Makes a loader of a stateful dataset.
template <class Dataset>
requires requires { typename Dataset::StatefulDatasetTag; }
std::unique_ptr<StatefulDataLoader<Dataset>> make_data_loader(Dataset dataset, const DataLoaderOptions& options = {}) {
  return std::make_unique<StatefulDataLoader<Dataset>>(std::move(dataset), options);
}

}  // namespace gradus::data
