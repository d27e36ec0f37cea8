// In which order an epoch visits the samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gradus::data::samplers {

class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Starts an epoch. The order may depend on the two numbers and on nothing else.
  virtual void reset(uint64_t seed, uint64_t epoch) = 0;
  /// Up to `batch_size` indices; nothing when the epoch is over.
  virtual std::optional<std::vector<size_t>> next(size_t batch_size) = 0;
};

/// 0, 1, 2, …
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(size_t size) : size_(size) {}
  void reset(uint64_t, uint64_t) override { position_ = 0; }
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

 private:
  size_t size_, position_ = 0;
};

/// Every sample once, in random order: the exchanges of Fisher and Yates, drawn from (seed, epoch).
class RandomSampler : public Sampler {
 public:
  explicit RandomSampler(size_t size) : size_(size) {}
  void reset(uint64_t seed, uint64_t epoch) override;
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

 private:
  size_t size_, position_ = 0;
  std::vector<size_t> order_;
};

}  // namespace gradus::data::samplers
