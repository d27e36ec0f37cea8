// Data sets that say themselves what comes next, and data sets that are shared instead of copied, with the interface of
// torch::data::datasets. <gradus/torch.h> has them, <gradus/gradus.h> does not.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <gradus/autograd/archive.h>
#include <gradus/data/dataset.h>
#include <gradus/data/loader/batch_iterator.h>
#include <gradus/data/loader/data_loader.h>

namespace gradus::data {
namespace datasets {

/// What map() makes of a stateful dataset.
template <class Source, class Transform>
class MappedStatefulDataset;

/// A dataset without indices: it gives the next batch until it has none (torch::data::datasets::StatefulDataset).
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
  /// Nothing when the epoch is over.
  virtual std::optional<Batch> get_batch(BatchRequest request) = 0;
  /// Begins an epoch.
  virtual void reset() = 0;
  /// Number of samples, where it is known.
  virtual std::optional<size_t> size() const = 0;
  /// For data sets that keep more than reset() restores.
  virtual void save(serialize::OutputArchive&) const {}
  /// What save() wrote.
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

/// Batches of a stateful dataset behind a transform.
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

/// One dataset under all its copies, so that a loader's workers use the same one; it must stand several threads
/// (torch::data::datasets::SharedBatchDataset).
template <class Shared>
class SharedBatchDataset : public BatchDataset<SharedBatchDataset<Shared>, typename Shared::BatchType> {
 public:
  explicit SharedBatchDataset(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  typename Shared::BatchType get_batch(const std::vector<size_t>& indices) override {
    return shared_->get_batch(indices);
  }
  std::optional<size_t> size() const override { return shared_->size(); }
  Shared& operator*() const { return *shared_; }
  Shared* operator->() const { return shared_.get(); }

 private:
  std::shared_ptr<Shared> shared_;
};
/// The same of a stateful dataset.
template <class Shared>
requires requires { typename Shared::StatefulDatasetTag; }
class SharedBatchDataset<Shared> : public StatefulDataset<SharedBatchDataset<Shared>, typename Shared::BatchType> {
 public:
  explicit SharedBatchDataset(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::optional<typename Shared::BatchType> get_batch(size_t batch_size) override {
    return shared_->get_batch(batch_size);
  }
  void reset() override { shared_->reset(); }
  std::optional<size_t> size() const override { return shared_->size(); }
  Shared& operator*() const { return *shared_; }
  Shared* operator->() const { return shared_.get(); }

 private:
  std::shared_ptr<Shared> shared_;
};

/// A shared dataset made from the arguments of its constructor.
template <class Shared, class... Args>
SharedBatchDataset<Shared> make_shared_dataset(Args&&... args) {
  return SharedBatchDataset<Shared>(std::make_shared<Shared>(std::forward<Args>(args)...));
}

}  // namespace datasets

/// Epochs of a stateful dataset. Batches are made by the consumer, whatever options say of workers: what comes next
/// depends on what came before.
template <class Dataset>
class StatefulDataLoader {
 public:
  using Batch = typename Dataset::BatchType;
  using Iterator = BatchIterator<StatefulDataLoader, Batch>;

  StatefulDataLoader(Dataset dataset, const DataLoaderOptions& options)
      : dataset_(std::move(dataset)), options_(options) {}
  /// Begins an epoch: resets the dataset.
  Iterator begin() {
    dataset_.reset();
    return Iterator(this);
  }
  /// Behind the last batch.
  Iterator end() { return {}; }
  /// As given.
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

/// A loader of a stateful dataset.
template <class Dataset>
requires requires { typename Dataset::StatefulDatasetTag; }
std::unique_ptr<StatefulDataLoader<Dataset>> make_data_loader(Dataset dataset, const DataLoaderOptions& options = {}) {
  return std::make_unique<StatefulDataLoader<Dataset>>(std::move(dataset), options);
}

}  // namespace gradus::data
