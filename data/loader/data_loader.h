// DataLoader: batches of a dataset, prepared ahead by worker threads (torch::data::StatelessDataLoader).
//
//   auto loader = data::make_data_loader<data::samplers::RandomSampler>(
//       std::move(dataset), data::DataLoaderOptions().batch_size(64).workers(2));
//   for (auto& batch : *loader) train(batch.data, batch.target);
//
// The batches of an epoch depend on the seed and the number of the epoch, not on the number of workers: they come in
// the sampler's order, and random transforms draw from (seed, epoch, index of the sample). So an epoch can also be
// taken up in the middle: save loader->state() with the model, and load_state() it into a loader made as the first one
// was.
//
// In a job of several processes each has a loader of the same dataset, sampler and batch_size, which is that of all
// together, with .distributed(num_replicas, rank) in its options.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/core/runtime/clock.h>
#include <gradus/data/loader/batch_iterator.h>
#include <gradus/data/loader/prefetcher.h>
#include <gradus/data/loader/samplers.h>
#include <gradus/data/sample.h>

namespace gradus::data {

/// Options of a loader; each setter returns the options, as in LibTorch.
class DataLoaderOptions {
 public:
  DataLoaderOptions() = default;
  DataLoaderOptions(size_t batch_size) : batch_size_(batch_size) {}  // NOLINT(google-explicit-constructor)

  /// Samples in a batch, that of all ranks together; 1 unless set.
  DataLoaderOptions& batch_size(size_t count) { return batch_size_ = count, *this; }
  /// Threads that prepare batches; with 0, the default, the consumer does.
  DataLoaderOptions& workers(size_t count) { return workers_ = count, *this; }
  /// Batches prepared ahead; twice the number of workers unless set.
  DataLoaderOptions& max_jobs(size_t count) { return max_jobs_ = count, *this; }
  /// Gives rank `rank` its part of each batch: samples rank, rank + num_replicas, rank + 2 num_replicas, … So the
  /// k-th batches of all ranks are together the k-th batch of one process, whatever the number of ranks: all have the
  /// same number of batches and the same state(), which ranks of another number can load. Every sample is given once,
  /// in evaluation too. A rank's part of a last batch of fewer than num_replicas samples may have none: shape (0, …).
  DataLoaderOptions& distributed(size_t num_replicas, size_t rank) {
    return num_replicas_ = num_replicas, rank_ = rank, *this;
  }
  /// Leaves out a last batch that is smaller than the others.
  DataLoaderOptions& drop_last(bool drop) { return drop_last_ = drop, *this; }
  /// How long the consumer waits for a batch of the workers before it gets an Error; forever unless set.
  DataLoaderOptions& timeout(std::chrono::milliseconds time) { return timeout_ = time, *this; }
  /// As LibTorch has it. Batches come in the sampler's order whatever this says: what is reproducible costs nothing
  /// here.
  DataLoaderOptions& enforce_ordering(bool enforce) { return enforce_ordering_ = enforce, *this; }
  /// Seed of the order and of random transforms; the default generator's (manual_seed) unless set.
  DataLoaderOptions& seed(uint64_t seed) { return seed_ = seed, *this; }

  size_t batch_size() const { return batch_size_; }
  size_t workers() const { return workers_; }
  size_t num_replicas() const { return num_replicas_; }
  size_t rank() const { return rank_; }
  size_t max_jobs() const { return max_jobs_.value_or(2 * workers_); }
  bool drop_last() const { return drop_last_; }
  std::optional<std::chrono::milliseconds> timeout() const { return timeout_; }
  bool enforce_ordering() const { return enforce_ordering_; }
  uint64_t seed() const { return seed_ ? *seed_ : default_generator().seed(); }

 private:
  size_t batch_size_ = 1, workers_ = 0, num_replicas_ = 1, rank_ = 0;
  std::optional<size_t> max_jobs_;
  bool drop_last_ = false, enforce_ordering_ = true;
  std::optional<std::chrono::milliseconds> timeout_;
  std::optional<uint64_t> seed_;
};

/// Where a loader stands: all that decides the batches that are still to come.
struct LoaderState {
  uint64_t seed = 0, epoch = 0;
  uint64_t batches = 0;     ///< that the epoch has given already
  uint64_t batch_size = 0;  ///< what `batches` counts in
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

/// Number of samples in batch number `batch`, counted from 0, of an epoch of `size` samples: in a rank's part of it
/// (DataLoaderOptions::distributed), or in the whole unless a rank is given. A rank's mean gradient has the weight
/// samples_in_batch(size, batch_size, batch, n, rank) / samples_in_batch(size, batch_size, batch) in that of all.
size_t samples_in_batch(size_t size, size_t batch_size, size_t batch, size_t num_replicas = 1, size_t rank = 0);

/// Where the time of an epoch has gone, as far as it concerns data.
struct LoaderTimings {
  size_t batches = 0;             ///< that the consumer got
  double wait_seconds = 0;        ///< that the consumer waited for batches, all together
  double first_wait_seconds = 0;  ///< for the first batch, before anything was prepared
  double worst_wait_seconds = 0;  ///< for one of the others
  double load_seconds = 0;        ///< that all workers together spent making batches
};

namespace detail {
/// The fields as int64 scalars by their names, and back; missing, unknown or negative ones are a ValueError.
OrderedDict<std::string, Tensor> dict_of(const LoaderState& state);
LoaderState state_of(const OrderedDict<std::string, Tensor>& dict);
}  // namespace detail

/// What loaders of all data sets share, so that it is compiled once.
class DataLoaderBase {
 public:
  DataLoaderBase(const DataLoaderBase&) = delete;
  DataLoaderBase& operator=(const DataLoaderBase&) = delete;

  /// Ends the workers, and the walk over the epoch if there is one. begin() and the destructor do so too.
  void join();

  /// The position behind the last batch that the consumer got; after a whole epoch, the beginning of the next.
  LoaderState state() const { return position_; }
  /// Goes to a position that state() has told: the next begin() gives exactly the rest of that epoch, and so on from
  /// there. A state of another batch size is a ValueError. The dataset and the sampler must be those of the saved run.
  void load_state(const LoaderState& state);
  /// The same for checkpoints: int64 scalars "seed", "epoch", "batches" and "batch_size".
  OrderedDict<std::string, Tensor> state_dict() const;
  void load_state_dict(const OrderedDict<std::string, Tensor>& state);
  /// The epoch that the last batch belongs to, or that begin() starts next, counted from 0.
  uint64_t epoch() const { return position_.epoch; }
  /// The epoch that begin() starts next, from its beginning: to go on with an interrupted training.
  void set_epoch(uint64_t epoch) { load_state({position_.seed, epoch, 0, position_.batch_size}); }

  /// Another part of each batch (DataLoaderOptions::distributed) from the next begin() on, which goes on from here.
  void distribute(size_t num_replicas, size_t rank);

  /// Number of batches in an epoch, where sampler and options tell it.
  std::optional<size_t> size() const;
  /// Of the epoch that began last, up to now.
  LoaderTimings timings() const;
  /// How long the consumer has waited for batches in the epoch that began last.
  double wait_seconds() const { return timings_.wait_seconds; }
  const DataLoaderOptions& options() const { return options_; }

 protected:
  /// What `work` uses must live until join().
  DataLoaderBase(const DataLoaderOptions& options, std::unique_ptr<samplers::Sampler> sampler, Prefetcher::Work work);
  ~DataLoaderBase();
  /// What begin() says.
  void start();
  /// Whether a walk is open.
  bool in_epoch() const { return prefetcher_ && open_; }
  /// What `work` made of the next batch's indices; null at the end of the epoch.
  Prefetcher::Result next_result();

 private:
  std::optional<std::vector<size_t>> next_request();
  void to_next_epoch() { ++position_.epoch, position_.batches = 0; }

  DataLoaderOptions options_;
  std::unique_ptr<samplers::Sampler> sampler_;
  const Prefetcher::Work work_;
  LoaderState position_;
  bool open_ = false;  // an epoch has begun and has not come to its end
  LoaderTimings timings_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

/// What loaders of a dataset share, so that those for training and for tests are compiled once.
template <class Dataset>
class DatasetLoader : public DataLoaderBase {
 public:
  using Batch = typename Dataset::BatchType;

  /// Walks over one epoch; only one walk of a loader is open at a time.
  using Iterator = BatchIterator<DatasetLoader, Batch>;

  ~DatasetLoader() { join(); }

  /// Starts the next epoch, or takes up the one that load_state() named. One that was left in the middle is given up.
  Iterator begin() {
    start();
    return Iterator(this);
  }
  Iterator end() { return {}; }

  /// The next batch, of this epoch or of the one that follows: for training that counts steps. It is there until the
  /// next call. A ValueError if an epoch has no batches.
  Batch& next_batch() {
    for (int epoch = 0; epoch < 2; ++epoch) {
      if (!in_epoch()) start();
      batch_.reset();  // its memory serves the next one
      if ((batch_ = next())) return *batch_;
    }
    GRADUS_FAIL(ValueError, "the loader has no batches");
  }

 protected:
  DatasetLoader(Dataset dataset, std::unique_ptr<samplers::Sampler> sampler, const DataLoaderOptions& options);

 private:
  friend Iterator;

  std::shared_ptr<Batch> next() { return std::static_pointer_cast<Batch>(next_result()); }

  std::vector<Dataset> datasets_;  // one for each worker
  std::shared_ptr<Batch> batch_;   // of next_batch()
};

template <class Dataset>
DatasetLoader<Dataset>::DatasetLoader(Dataset dataset, std::unique_ptr<samplers::Sampler> sampler,
                                      const DataLoaderOptions& options)
    : DataLoaderBase(options, std::move(sampler),
                     [this](size_t worker, const std::vector<size_t>& indices) -> Prefetcher::Result {
                       return std::make_shared<Batch>(datasets_[worker].get_batch(indices));
                     }) {
  for (size_t left = options.workers(); left > 1; --left) datasets_.push_back(Dataset(dataset));
  datasets_.push_back(std::move(dataset));
}

/// Batches of the samples that `Sampler` names.
template <class Dataset, class Sampler>
class DataLoader : public DatasetLoader<Dataset> {
 public:
  DataLoader(Dataset dataset, Sampler sampler, const DataLoaderOptions& options)
      : DatasetLoader<Dataset>(std::move(dataset), std::make_unique<Sampler>(std::move(sampler)), options) {}
};

/// LibTorch's name.
template <class Dataset, class Sampler>
using StatelessDataLoader = DataLoader<Dataset, Sampler>;

/// A loader with a sampler of your own.
template <class Dataset, class Sampler>
std::unique_ptr<DataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset, Sampler sampler,
                                                               const DataLoaderOptions& options) {
  return std::make_unique<DataLoader<Dataset, Sampler>>(std::move(dataset), std::move(sampler), options);
}

/// A loader that visits the whole dataset in the order of `Sampler`.
template <class Sampler = samplers::RandomSampler, class Dataset>
requires(!requires { typename Dataset::StatefulDatasetTag; })  // data/stateful_dataset.h
    std::unique_ptr<DataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset,
                                                                   const DataLoaderOptions& options = {}) {
  const std::optional<size_t> size = dataset.size();
  GRADUS_CHECK(size.has_value(), ValueError,
               "a dataset without a size needs a sampler of its own: make_data_loader(dataset, sampler, options)");
  return make_data_loader(std::move(dataset), Sampler(*size), options);
}

}  // namespace gradus::data
