// Samplers determine the order in which an epoch visits the samples. Names follow torch::data::samplers and
// torch.utils.data.
//
// An order depends only on (seed, epoch), so a loader can continue an epoch in the middle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gradus/core/error.h>

namespace gradus::serialize {
class InputArchive;  // autograd/archive.h
class OutputArchive;
}  // namespace gradus::serialize

namespace gradus::data::samplers {

/// Base of all samplers. A custom sampler implements reset and next.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Starts an epoch. The order must depend only on these two numbers.
  virtual void reset(uint64_t seed, uint64_t epoch) = 0;
  /// Returns up to `batch_size` indices, or nothing at the end of the epoch.
  virtual std::optional<std::vector<size_t>> next(size_t batch_size) = 0;
  /// Skips `batches` batches, which come before a saved position.
  virtual void skip(uint64_t batches, size_t batch_size) {
    while (batches-- > 0 && next(batch_size)) {}
  }
  /// Number of batches that next(batch_size) returns in an epoch, if it is known in advance.
  virtual std::optional<size_t> batches(size_t batch_size) const {
    (void)batch_size;
    return std::nullopt;
  }
};

/// 0, 1, 2, …
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(size_t size) : size_(size) {}
  void reset(uint64_t, uint64_t) override { position_ = 0; }
  /// LibTorch's reset: starts at the beginning, with `new_size` samples if given.
  void reset(std::optional<size_t> new_size = std::nullopt) { size_ = new_size.value_or(size_), position_ = 0; }
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  std::optional<size_t> batches(size_t batch_size) const override;
  /// Number of indices returned so far; saved and loaded as "index".
  size_t index() const { return position_; }
  /// Writes index().
  void save(serialize::OutputArchive& archive) const;
  /// Moves to a saved index().
  void load(serialize::InputArchive& archive);

 private:
  size_t size_, position_ = 0;
};

/// A sampler that determines the whole order at the start of an epoch. Derived classes implement order and size.
class OrderSampler : public Sampler {
 public:
  void reset(uint64_t seed, uint64_t epoch) final;
  /// LibTorch's reset: starts another epoch, with `new_size` samples if given, in an order determined by manual_seed.
  /// (A loader selects the epoch instead.) If no epoch was started, next() starts the first one.
  void reset(std::optional<size_t> new_size = std::nullopt);
  std::optional<std::vector<size_t>> next(size_t batch_size) final;
  std::optional<size_t> batches(size_t batch_size) const final;
  /// Number of indices that the epoch has returned so far.
  size_t index() const { return position_; }
  /// Saves the order of the epoch and the position in it: "indices", "index".
  virtual void save(serialize::OutputArchive& archive) const;
  /// Restores them. An order of another size is a ValueError.
  virtual void load(serialize::InputArchive& archive);
  /// Number of indices in an epoch.
  virtual size_t size() const = 0;

 protected:
  /// Returns the size() indices of an epoch.
  virtual std::vector<size_t> order(uint64_t seed, uint64_t epoch) const = 0;
  /// Changes the number of samples, if the sampler supports it.
  virtual void resize(size_t new_size);

 private:
  std::vector<size_t> order_;
  size_t position_ = 0;
  uint64_t resets_ = 0;  // counts calls of reset() without an epoch
};

/// Visits every sample once in random order: the Fisher-Yates shuffle, drawn from (seed, epoch).
class RandomSampler : public OrderSampler {
 public:
  explicit RandomSampler(size_t size) : size_(size) {}
  size_t size() const override { return size_; }

 private:
  std::vector<size_t> order(uint64_t seed, uint64_t epoch) const override;
  void resize(size_t new_size) override { size_ = new_size; }

  size_t size_;
};

/// Visits each of the given indices once in random order (torch.utils.data.SubsetRandomSampler).
class SubsetRandomSampler : public OrderSampler {
 public:
  explicit SubsetRandomSampler(std::vector<size_t> indices) : indices_(std::move(indices)) {}
  size_t size() const override { return indices_.size(); }

 private:
  std::vector<size_t> order(uint64_t seed, uint64_t epoch) const override;

  std::vector<size_t> indices_;
};

/// Draws `num_samples` indices, index i with a probability proportional to weights[i]
/// (torch.utils.data.WeightedRandomSampler). Without replacement, each draw is among the remaining indices: takes the
/// smallest -ln(u_i) / weights[i] (Efraimidis and Spirakis: "Weighted random sampling with a reservoir", 2006).
/// Negative or infinite weights, and too few positive ones, are a ValueError.
class WeightedRandomSampler : public OrderSampler {
 public:
  WeightedRandomSampler(std::vector<double> weights, size_t num_samples, bool replacement = true);
  size_t size() const override { return num_samples_; }

 private:
  std::vector<size_t> order(uint64_t seed, uint64_t epoch) const override;

  std::vector<double> weights_;
  size_t num_samples_;
  bool replacement_;
};

/// One rank's part of an order that is the same on all ranks: elements rank, rank + num_replicas, rank + 2
/// num_replicas, … Together the ranks visit every sample exactly once, and their numbers of samples differ by at most
/// one. The k-th batches of all ranks together are the k-th batch of a single process with a batch num_replicas times
/// as large.
///
/// With allow_duplicates, as in LibTorch, the order is repeated from its start until all ranks have the same number of
/// samples, for collectives in which all ranks must take part equally often.
class DistributedSampler : public OrderSampler {
 public:
  size_t size() const override;
  /// Sets the epoch that determines the order. From then on, the epoch that a loader passes to reset() is ignored.
  void set_epoch(size_t epoch) { epoch_ = epoch; }
  /// The argument of set_epoch, or 0.
  size_t epoch() const { return epoch_.value_or(0); }
  /// Also saves the epoch, as "epoch", if it was set.
  void save(serialize::OutputArchive& archive) const override;
  void load(serialize::InputArchive& archive) override;

 protected:
  /// A rank of num_replicas or more is a ValueError.
  DistributedSampler(size_t size, size_t num_replicas, size_t rank, bool allow_duplicates, bool shuffle);

 private:
  std::vector<size_t> order(uint64_t seed, uint64_t epoch) const override;
  void resize(size_t new_size) override { total_ = new_size; }

  size_t total_, num_replicas_, rank_;
  bool allow_duplicates_, shuffle_;
  std::optional<size_t> epoch_;
};

/// A rank's part of RandomSampler's order. All ranks must use the same seed.
class DistributedRandomSampler : public DistributedSampler {
 public:
  explicit DistributedRandomSampler(size_t size, size_t num_replicas = 1, size_t rank = 0,
                                    bool allow_duplicates = false)
      : DistributedSampler(size, num_replicas, rank, allow_duplicates, /*shuffle=*/true) {}
};

/// A rank's part of 0, 1, 2, …
class DistributedSequentialSampler : public DistributedSampler {
 public:
  explicit DistributedSequentialSampler(size_t size, size_t num_replicas = 1, size_t rank = 0,
                                        bool allow_duplicates = false)
      : DistributedSampler(size, num_replicas, rank, allow_duplicates, /*shuffle=*/false) {}
};

/// Uses its own batch size in place of the loader's batch_size (torch.utils.data.BatchSampler):
///   make_data_loader(dataset, BatchSampler(WeightedRandomSampler(weights, 1000), 32, /*drop_last=*/true), {});
template <class Inner>
class BatchSampler : public Sampler {
 public:
  BatchSampler(Inner sampler, size_t batch_size, bool drop_last)
      : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
    GRADUS_CHECK(batch_size > 0, ValueError, "BatchSampler needs a batch_size of at least 1");
  }

  void reset(uint64_t seed, uint64_t epoch) override { sampler_.reset(seed, epoch); }
  std::optional<std::vector<size_t>> next(size_t) override {
    auto indices = sampler_.next(batch_size_);
    if (indices && drop_last_ && indices->size() < batch_size_) return std::nullopt;
    return indices;
  }
  std::optional<size_t> batches(size_t) const override {
    const std::optional<size_t> samples = sampler_.batches(1);
    if (!samples) return std::nullopt;
    return drop_last_ ? *samples / batch_size_ : (*samples + batch_size_ - 1) / batch_size_;
  }

 private:
  Inner sampler_;
  size_t batch_size_;
  bool drop_last_;
};

}  // namespace gradus::data::samplers
