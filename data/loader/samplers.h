// Samplers decide in which order an epoch visits the samples. Their names are those of torch::data::samplers and
// torch.utils.data.
//
// An order depends only on (seed, epoch), so a loader can continue an interrupted epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <gradus/data/sample.h>

namespace gradus::serialize {
class InputArchive;  // autograd/archive.h
class OutputArchive;
}  // namespace gradus::serialize

namespace gradus::data::samplers {

/// The base of all samplers. A custom sampler implements reset and next.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Starts an epoch. The order of its samples must depend only on these two numbers.
  virtual void reset(uint64_t seed, uint64_t epoch) = 0;
  /// Returns up to `batch_size` indices, or nothing at the end of the epoch.
  virtual std::optional<Indices> next(size_t batch_size) = 0;
  /// Skips the next `batches` batches. A loader calls it to continue at a saved position.
  virtual void skip(uint64_t batches, size_t batch_size) {
    while (batches-- > 0 && next(batch_size)) {}
  }
  /// Number of batches that next(batch_size) returns in an epoch, if it is known in advance.
  virtual std::optional<size_t> batches(size_t batch_size) const {
    (void)batch_size;
    return std::nullopt;
  }
};

/// Visits the samples in the order 0, 1, 2, …
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(size_t size) : size_(size) {}
  void reset(uint64_t, uint64_t) override { position_ = 0; }
  /// LibTorch's reset: starts at sample 0 again, with `new_size` samples if given.
  void reset(std::optional<size_t> new_size = std::nullopt) { size_ = new_size.value_or(size_), position_ = 0; }
  std::optional<Indices> next(size_t batch_size) override;
  std::optional<size_t> batches(size_t batch_size) const override;
  /// Number of indices that next() has returned in this epoch.
  size_t index() const { return position_; }
  /// Saves index() under the key "index".
  void save(serialize::OutputArchive& archive) const;
  /// Continues after a saved index().
  void load(serialize::InputArchive& archive);

 private:
  size_t size_, position_ = 0;
};

/// A sampler that computes the order of all samples when an epoch starts. Derived classes implement order and size.
class OrderSampler : public Sampler {
 public:
  void reset(uint64_t seed, uint64_t epoch) final;
  /// LibTorch's reset, for use without a loader: starts another epoch, with `new_size` samples if given, in an order
  /// that depends on manual_seed and the number of such calls. If no epoch was started, next() calls this.
  void reset(std::optional<size_t> new_size = std::nullopt);
  std::optional<Indices> next(size_t batch_size) final;
  std::optional<size_t> batches(size_t batch_size) const final;
  /// Number of indices that next() has returned in this epoch.
  size_t index() const { return position_; }
  /// Saves the order of the epoch and the position in it under the keys "indices" and "index".
  virtual void save(serialize::OutputArchive& archive) const;
  /// Restores a saved order and position. An order with another number of samples is a ValueError.
  virtual void load(serialize::InputArchive& archive);
  /// Number of indices in an epoch.
  virtual size_t size() const = 0;

 protected:
  /// Returns the size() indices of an epoch.
  virtual Indices order(uint64_t seed, uint64_t epoch) const = 0;
  /// Changes the number of samples. By default a ValueError, because not all samplers can do this.
  virtual void resize(size_t new_size);

 private:
  Indices order_;
  size_t position_ = 0;
  uint64_t resets_ = 0;  // number of calls of LibTorch's reset(), which uses it as the epoch
};

/// Visits every sample once in a random order: a Fisher-Yates shuffle with random numbers of (seed, epoch).
class RandomSampler : public OrderSampler {
 public:
  explicit RandomSampler(size_t size) : size_(size) {}
  size_t size() const override { return size_; }
  /// Returns the order of `size` samples in an epoch.
  static Indices order_of(size_t size, uint64_t seed, uint64_t epoch);

 private:
  Indices order(uint64_t seed, uint64_t epoch) const override { return order_of(size_, seed, epoch); }
  void resize(size_t new_size) override { size_ = new_size; }

  size_t size_;
};

/// Visits each of the given indices once in a random order (torch.utils.data.SubsetRandomSampler).
class SubsetRandomSampler : public OrderSampler {
 public:
  explicit SubsetRandomSampler(Indices indices) : indices_(std::move(indices)) {}
  size_t size() const override { return indices_.size(); }

 private:
  Indices order(uint64_t seed, uint64_t epoch) const override;

  Indices indices_;
};

/// Draws `num_samples` indices, index i with a probability proportional to weights[i]
/// (torch.utils.data.WeightedRandomSampler). Without replacement, an index is drawn at most once: the sampler takes the
/// indices with the smallest -ln(u_i) / weights[i], where u_i is uniform in (0, 1] (Efraimidis and Spirakis: "Weighted
/// random sampling with a reservoir", 2006). Negative or infinite weights, and fewer positive weights than needed, are
/// a ValueError.
class WeightedRandomSampler : public OrderSampler {
 public:
  WeightedRandomSampler(std::vector<double> weights, size_t num_samples, bool replacement = true);
  size_t size() const override { return num_samples_; }

 private:
  Indices order(uint64_t seed, uint64_t epoch) const override;

  std::vector<double> weights_;
  size_t num_samples_;
  bool replacement_;
};

/// Visits one rank's part of an order that all ranks share: its elements rank, rank + num_replicas, rank + 2
/// num_replicas, … Together the ranks visit every sample exactly once, and their numbers of samples differ by at most
/// one. The k-th batches of all ranks together are the k-th batch of a single process whose batch size is num_replicas
/// times as large.
///
/// With allow_duplicates, as in LibTorch, some samples from the start of the order are visited twice, so that all ranks
/// have the same number of samples. Use it if every rank must call a collective equally often.
class DistributedSampler : public OrderSampler {
 public:
  size_t size() const override;
  /// Sets the epoch on which the order depends. From then on, reset() ignores the epoch that a loader passes to it.
  void set_epoch(size_t epoch) { epoch_ = epoch; }
  /// The last argument of set_epoch, or 0.
  size_t epoch() const { return epoch_.value_or(0); }
  /// Also saves the epoch under the key "epoch", if set_epoch was called.
  void save(serialize::OutputArchive& archive) const override;
  void load(serialize::InputArchive& archive) override;

 protected:
  /// A rank that is not below num_replicas is a ValueError.
  DistributedSampler(size_t size, size_t num_replicas, size_t rank, bool allow_duplicates, bool shuffle);

 private:
  Indices order(uint64_t seed, uint64_t epoch) const override;
  void resize(size_t new_size) override { total_ = new_size; }

  size_t total_, num_replicas_, rank_;
  bool allow_duplicates_, shuffle_;
  std::optional<size_t> epoch_;
};

/// Visits a rank's part of RandomSampler's order. All ranks must use the same seed.
struct DistributedRandomSampler : DistributedSampler {
  explicit DistributedRandomSampler(size_t size, size_t num_replicas = 1, size_t rank = 0,
                                    bool allow_duplicates = false)
      : DistributedSampler(size, num_replicas, rank, allow_duplicates, /*shuffle=*/true) {}
};

/// Visits a rank's part of the order 0, 1, 2, …
struct DistributedSequentialSampler : DistributedSampler {
  explicit DistributedSequentialSampler(size_t size, size_t num_replicas = 1, size_t rank = 0,
                                        bool allow_duplicates = false)
      : DistributedSampler(size, num_replicas, rank, allow_duplicates, /*shuffle=*/false) {}
};

/// Divides the samples of another sampler into batches of `batch_size`. The loader then ignores the batch_size of its
/// options (torch.utils.data.BatchSampler):
///   make_data_loader(dataset, BatchSampler(WeightedRandomSampler(weights, 1000), 32, /*drop_last=*/true), {});
template <class Inner>
class BatchSampler : public Sampler {
 public:
  BatchSampler(Inner sampler, size_t batch_size, bool drop_last)
      : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
    GRADUS_CHECK(batch_size > 0, ValueError, "BatchSampler needs a batch_size of at least 1");
  }

  void reset(uint64_t seed, uint64_t epoch) override { sampler_.reset(seed, epoch); }
  std::optional<Indices> next(size_t) override {
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
