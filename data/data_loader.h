// DataLoader: batches of a dataset, prepared ahead by worker threads (torch::data::StatelessDataLoader).
//
//   auto loader = data::make_data_loader<data::samplers::RandomSampler>(
//       std::move(dataset), data::DataLoaderOptions().batch_size(64).workers(2));
//   for (auto& batch : *loader) train(batch.data, batch.target);
//
// The batches of an epoch depend on the seed and the number of the epoch, not on the number of workers: they come in
// the sampler's order, and random transforms draw from (seed, epoch, index of the sample).
#pragma once

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gradus/data/prefetcher.h>
#include <gradus/data/sample.h>
#include <gradus/data/samplers.h>

namespace gradus::data {

/// Options of a loader; each setter returns the options, as in LibTorch.
class DataLoaderOptions {
 public:
  DataLoaderOptions() = default;
  DataLoaderOptions(size_t batch_size) : batch_size_(batch_size) {}  // NOLINT(google-explicit-constructor)

  /// Samples in a batch; 1 unless set.
  DataLoaderOptions& batch_size(size_t count) { return batch_size_ = count, *this; }
  /// Threads that prepare batches; with 0, the default, the consumer does.
  DataLoaderOptions& workers(size_t count) { return workers_ = count, *this; }
  /// Batches prepared ahead; twice the number of workers unless set.
  DataLoaderOptions& max_jobs(size_t count) { return max_jobs_ = count, *this; }
  /// Leaves out a last batch that is smaller than the others.
  DataLoaderOptions& drop_last(bool drop) { return drop_last_ = drop, *this; }
  /// Seed of the order and of random transforms; the default generator's (manual_seed) unless set.
  DataLoaderOptions& seed(uint64_t seed) { return seed_ = seed, *this; }

  size_t batch_size() const { return batch_size_; }
  size_t workers() const { return workers_; }
  size_t max_jobs() const { return max_jobs_.value_or(2 * workers_); }
  bool drop_last() const { return drop_last_; }
  uint64_t seed() const { return seed_ ? *seed_ : default_generator().seed(); }

 private:
  size_t batch_size_ = 1, workers_ = 0;
  std::optional<size_t> max_jobs_;
  bool drop_last_ = false;
  std::optional<uint64_t> seed_;
};

namespace detail {
void check_options(const DataLoaderOptions& options);
}

template <class Dataset, class Sampler>
class DataLoader {
 public:
  using Batch = typename Dataset::BatchType;

  /// Walks over one epoch; only one walk of a loader is open at a time.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    Iterator() = default;
    explicit Iterator(DataLoader* loader) : loader_(loader) { ++*this; }
    Batch& operator*() const { return *batch_; }
    Batch* operator->() const { return batch_.get(); }
    Iterator& operator++() {
      batch_.reset();  // its memory serves the next one
      batch_ = loader_->next();
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.batch_ == b.batch_; }

   private:
    DataLoader* loader_ = nullptr;
    std::shared_ptr<Batch> batch_;
  };

  DataLoader(Dataset dataset, Sampler sampler, const DataLoaderOptions& options)
      : options_(options), seed_(options.seed()), sampler_(std::move(sampler)) {
    detail::check_options(options_);
    for (size_t i = 1; i < options_.workers(); ++i) datasets_.push_back(dataset);
    datasets_.push_back(std::move(dataset));
  }
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Starts the next epoch. One that was left in the middle is given up.
  Iterator begin() {
    join();
    sampler_.reset(seed_, next_epoch_);
    wait_seconds_ = 0;
    prefetcher_ = std::make_unique<Prefetcher>(
        options_.workers(), options_.max_jobs(), [this] { return next_request(); },
        [this, epoch = next_epoch_](size_t worker, const std::vector<size_t>& indices) -> Prefetcher::Result {
          const detail::EpochScope scope(seed_, epoch);
          return std::make_shared<Batch>(datasets_[worker].get_batch(indices));
        });
    ++next_epoch_;
    return Iterator(this);
  }
  Iterator end() { return {}; }

  /// Ends the workers of an epoch that was left in the middle. begin() and the destructor do so too.
  void join() { prefetcher_.reset(); }
  /// The epoch that begin() starts next, counted from 0: to go on with an interrupted training.
  void set_epoch(uint64_t epoch) { next_epoch_ = epoch; }
  /// How long the consumer has waited for batches in the epoch that began last.
  double wait_seconds() const { return wait_seconds_; }
  const DataLoaderOptions& options() const { return options_; }

 private:
  std::vector<size_t> next_request() {
    auto indices = sampler_.next(options_.batch_size());
    const bool whole = indices && (indices->size() == options_.batch_size() || !options_.drop_last());
    return whole ? std::move(*indices) : std::vector<size_t>();
  }
  std::shared_ptr<Batch> next() {
    const auto start = std::chrono::steady_clock::now();
    Prefetcher::Result batch = prefetcher_->next();
    wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::static_pointer_cast<Batch>(std::move(batch));
  }

  const DataLoaderOptions options_;
  const uint64_t seed_;
  Sampler sampler_;
  std::vector<Dataset> datasets_;  // one for each worker
  uint64_t next_epoch_ = 0;
  double wait_seconds_ = 0;
  std::unique_ptr<Prefetcher> prefetcher_;  // last: its threads use what stands above
};

/// A loader with a sampler of your own.
template <class Dataset, class Sampler>
std::unique_ptr<DataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset, Sampler sampler,
                                                               const DataLoaderOptions& options) {
  return std::make_unique<DataLoader<Dataset, Sampler>>(std::move(dataset), std::move(sampler), options);
}

/// A loader that visits the whole dataset in the order of `Sampler`.
template <class Sampler = samplers::RandomSampler, class Dataset>
std::unique_ptr<DataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset, const DataLoaderOptions& options = {}) {
  const std::optional<size_t> size = dataset.size();
  GRADUS_CHECK(size.has_value(), ValueError,
               "a dataset without a size needs a sampler of its own: make_data_loader(dataset, sampler, options)");
  return make_data_loader(std::move(dataset), Sampler(*size), options);
}

}  // namespace gradus::data
