// DataLoader: batches of a dataset, which worker threads prepare before the consumer asks for them
// (torch::data::StatelessDataLoader).
//
//   auto loader = data::make_data_loader<data::samplers::RandomSampler>(
//       std::move(dataset), data::DataLoaderOptions().batch_size(64).workers(2));
//   for (auto& batch : *loader) train(batch.data, batch.target);
//
// The batches of an epoch depend on the seed and on the number of the epoch, but not on the number of workers: they
// come in the sampler's order, and random transforms draw from (seed, epoch, index of the sample). An interrupted epoch
// can therefore be continued: save loader->state() with the model, and pass it to load_state() of a loader made with
// the same arguments.
//
// If several processes train together, each process makes a loader with the same dataset, the same sampler and the
// option .distributed(num_replicas, rank). batch_size is then the number of samples that all processes together get.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/core/options.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/core/runtime/clock.h>
#include <gradus/data/loader/prefetcher.h>
#include <gradus/data/loader/samplers.h>
#include <gradus/data/sample.h>

namespace gradus::data {

/// Options of a loader. Setters can be chained, as in LibTorch.
class DataLoaderOptions {
  /// Number of samples in a batch. With distributed(), the ranks divide these samples among themselves.
  GRADUS_ARG(size_t, batch_size) = 1;
  /// Number of threads that prepare batches. With 0, the consumer's thread prepares each batch when it needs it.
  GRADUS_ARG(size_t, workers) = 0;
  /// Drops the last batch if it is smaller than the others.
  GRADUS_ARG(bool, drop_last) = false;
  /// If the consumer waits longer than this for a batch, it gets an Error. Unlimited by default.
  GRADUS_ARG(std::optional<std::chrono::milliseconds>, timeout) = absent<std::chrono::milliseconds>();
  /// Has no effect, and exists only because LibTorch has it: batches always come in the sampler's order.
  GRADUS_ARG(bool, enforce_ordering) = true;

 public:
  DataLoaderOptions() = default;
  DataLoaderOptions(size_t batch_size) : batch_size_(batch_size) {}  // NOLINT(google-explicit-constructor)

  /// The largest number of batches that are prepared before the consumer asks for them. By default twice the number of
  /// workers.
  DataLoaderOptions& max_jobs(size_t count) { return max_jobs_ = count, *this; }
  size_t max_jobs() const { return max_jobs_.value_or(2 * workers_); }
  /// Loads only this rank's part of each batch: its samples rank, rank + num_replicas, rank + 2 num_replicas, … The
  /// k-th batches of all ranks together are the k-th batch of a single process, for any number of ranks. All ranks have
  /// the same number of batches and the same state(), which a different number of ranks can load. No sample is repeated
  /// to give all ranks equally many, so evaluation counts every sample once. If the last batch has fewer than
  /// num_replicas samples, some ranks get an empty batch of shape (0, …).
  DataLoaderOptions& distributed(size_t num_replicas, size_t rank) {
    return num_replicas_ = num_replicas, rank_ = rank, *this;
  }
  size_t num_replicas() const { return num_replicas_; }
  size_t rank() const { return rank_; }
  /// Seed of the sampler's order and of random transforms. By default the seed of the default generator (manual_seed).
  DataLoaderOptions& seed(uint64_t seed) { return seed_ = seed, *this; }
  uint64_t seed() const { return seed_ ? *seed_ : default_generator().seed(); }

 private:
  size_t num_replicas_ = 1, rank_ = 0;
  std::optional<size_t> max_jobs_;
  std::optional<uint64_t> seed_;
};

/// The position of a loader in its epochs. Together with the dataset and the sampler it determines all batches that
/// follow.
struct LoaderState {
  uint64_t seed = 0, epoch = 0;
  uint64_t batches = 0;     ///< number of batches of this epoch that were returned so far
  uint64_t batch_size = 0;  ///< number of samples in each of these batches
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

/// Number of samples in batch `batch` (counted from 0) of an epoch of `size` samples: in the part of `rank`
/// (DataLoaderOptions::distributed) or, by default, in the whole batch. A rank's mean gradient has the weight
/// samples_in_batch(size, batch_size, batch, n, rank) / samples_in_batch(size, batch_size, batch) in the mean gradient
/// of the whole batch.
size_t samples_in_batch(size_t size, size_t batch_size, size_t batch, size_t num_replicas = 1, size_t rank = 0);

/// How long loading data took in an epoch.
struct LoaderTimings {
  size_t batches = 0;             ///< number of batches returned to the consumer
  double wait_seconds = 0;        ///< total time that the consumer waited for batches
  double first_wait_seconds = 0;  ///< wait for the first batch, before any was prepared
  double worst_wait_seconds = 0;  ///< longest wait for one of the other batches
  double load_seconds = 0;        ///< total time that all workers spent making batches
};

namespace detail {
/// Convert a state to a dictionary of int64 scalars, and back. Missing, unknown or negative entries are a ValueError;
/// only the seed may be negative.
OrderedDict<std::string, Tensor> dict_of(const LoaderState& state);
LoaderState state_of(const OrderedDict<std::string, Tensor>& dict);
}  // namespace detail

/// Iterates over the batches that `Loader::next()` returns, until it returns null. Dereferencing or incrementing an
/// iterator after the last batch is a ValueError.
template <class Loader, class Batch>
class BatchIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;

  BatchIterator() = default;
  explicit BatchIterator(Loader* loader) : loader_(loader) { advance(); }
  Batch& operator*() const {
    check();
    return *batch_;
  }
  Batch* operator->() const { return &**this; }
  BatchIterator& operator++() {
    check();
    advance();
    return *this;
  }
  friend bool operator==(const BatchIterator& a, const BatchIterator& b) { return a.batch_ == b.batch_; }

 private:
  void check() const { GRADUS_CHECK(batch_, ValueError, "a loader's iterator is past the last batch"); }
  void advance() {
    batch_.reset();  // so that the next batch can reuse its memory
    batch_ = loader_->next();
  }

  Loader* loader_ = nullptr;
  std::shared_ptr<Batch> batch_;
};

/// The base of all loaders. It does not depend on the type of the dataset, so it is compiled only once.
class DataLoaderBase {
 public:
  /// Stops the worker threads and ends the current epoch, if any. begin() and the destructor call it.
  void join();

  /// The position after the last batch that the consumer got. Once the epoch was iterated to its end, the start of the
  /// next epoch.
  LoaderState state() const { return position_; }
  /// Moves to a position returned by state(). The next begin() iterates over the remaining batches of that epoch. The
  /// loader must have the dataset and the sampler of the saved run. A different batch size is a ValueError.
  void load_state(const LoaderState& state);
  /// state() as a dictionary for a training::Checkpoint: int64 scalars "seed", "epoch", "batches" and "batch_size".
  OrderedDict<std::string, Tensor> state_dict() const { return detail::dict_of(position_); }
  void load_state_dict(const OrderedDict<std::string, Tensor>& state) { load_state(detail::state_of(state)); }
  /// The number, counted from 0, of the current epoch or, between epochs, of the epoch that begin() starts next.
  uint64_t epoch() const { return position_.epoch; }
  /// Makes the next begin() start this epoch, to continue an interrupted training.
  void set_epoch(uint64_t epoch) { load_state({position_.seed, epoch, 0, position_.batch_size}); }

  /// Changes this rank's part of each batch (DataLoaderOptions::distributed). The next begin() continues at the current
  /// position.
  void distribute(size_t num_replicas, size_t rank);

  /// Number of batches in an epoch, if the sampler knows it in advance.
  std::optional<size_t> size() const;
  /// Timings of the current or last epoch.
  LoaderTimings timings() const;
  /// Total time that the consumer waited for batches in the current or last epoch.
  double wait_seconds() const { return timings_.wait_seconds; }
  const DataLoaderOptions& options() const { return options_; }

 protected:
  /// `work` makes the batch of a request, on the thread of a worker. Everything that it uses must exist until join().
  DataLoaderBase(const DataLoaderOptions& options, std::unique_ptr<samplers::Sampler> sampler, Prefetcher::Work work);
  ~DataLoaderBase() = default;
  /// Starts or continues an epoch (DatasetLoader::begin).
  void start();
  /// True while an epoch is in progress.
  bool in_epoch() const { return prefetcher_ && open_; }
  /// The next batch, as `work` returned it. Null at the end of the epoch.
  Prefetcher::Result next_result();

 private:
  std::optional<Indices> next_request();
  void to_next_epoch() { ++position_.epoch, position_.batches = 0; }

  DataLoaderOptions options_;
  std::unique_ptr<samplers::Sampler> sampler_;
  const Prefetcher::Work work_;
  LoaderState position_;
  bool open_ = false;  // an epoch has begun and has not ended
  LoaderTimings timings_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

/// The base of the loaders of a dataset. It does not depend on the type of the sampler, so it is compiled once for each
/// dataset.
template <class Dataset>
class DatasetLoader : public DataLoaderBase {
 public:
  using Batch = typename Dataset::BatchType;

  /// Iterates over an epoch. Only one iteration over a loader is possible at a time.
  using Iterator = BatchIterator<DatasetLoader, Batch>;

  ~DatasetLoader() { join(); }

  /// Starts the next epoch, or continues the epoch at the position set by load_state(). If the last epoch was not
  /// iterated to its end, its other batches are skipped.
  Iterator begin() {
    start();
    return Iterator(this);
  }
  Iterator end() { return {}; }

  /// For training that counts steps instead of epochs: returns the next batch, and starts the next epoch after the last
  /// batch of an epoch. The batch is valid until the next call. An epoch without batches is a ValueError.
  Batch& next_batch() {
    for (int epoch = 0; epoch < 2; ++epoch) {
      if (!in_epoch()) start();
      batch_.reset();  // so that the next batch can reuse its memory
      if ((batch_ = next())) return *batch_;
    }
    GRADUS_FAIL(ValueError, "the loader has no batches");
  }

 protected:
  DatasetLoader(Dataset dataset, std::unique_ptr<samplers::Sampler> sampler, const DataLoaderOptions& options)
      : DataLoaderBase(options, std::move(sampler),
                       [this](size_t worker, const Indices& indices) -> Prefetcher::Result {
                         return std::make_shared<Batch>(datasets_[worker].get_batch(indices));
                       }) {
    for (size_t left = options.workers(); left > 1; --left) datasets_.push_back(Dataset(dataset));
    datasets_.push_back(std::move(dataset));
  }

 private:
  friend Iterator;

  std::shared_ptr<Batch> next() { return std::static_pointer_cast<Batch>(next_result()); }

  std::vector<Dataset> datasets_;  // one for each worker
  std::shared_ptr<Batch> batch_;   // the batch returned by next_batch()
};

/// A loader of `Dataset` in the order of `Sampler`.
template <class Dataset, class Sampler>
struct DataLoader : DatasetLoader<Dataset> {
  DataLoader(Dataset dataset, Sampler sampler, const DataLoaderOptions& options)
      : DatasetLoader<Dataset>(std::move(dataset), std::make_unique<Sampler>(std::move(sampler)), options) {}
};

/// LibTorch's name of DataLoader.
template <class Dataset, class Sampler>
using StatelessDataLoader = DataLoader<Dataset, Sampler>;

/// Makes a loader with the given sampler.
template <class Dataset, class Sampler>
std::unique_ptr<DataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset, Sampler sampler,
                                                               const DataLoaderOptions& options) {
  return std::make_unique<DataLoader<Dataset, Sampler>>(std::move(dataset), std::move(sampler), options);
}

/// Makes a loader that visits the whole dataset in the order of `Sampler`.
template <class Sampler = samplers::RandomSampler, class Dataset>
requires(!requires { typename Dataset::StatefulDatasetTag; })  // data/stateful_dataset.h overloads it for these
    std::unique_ptr<DataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset,
                                                                   const DataLoaderOptions& options = {}) {
  const std::optional<size_t> size = dataset.size();
  GRADUS_CHECK(size.has_value(), ValueError,
               "a dataset without a size needs a sampler of its own: make_data_loader(dataset, sampler, options)");
  return make_data_loader(std::move(dataset), Sampler(*size), options);
}

}  // namespace gradus::data
