// Which samples of a source a dataset selects. Used only by pipelines; independent of types, so that it is compiled
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gradus::data::detail {

/// Index i selects sample at(i) of the source. Shared by all copies of a dataset, so it is thread-safe.
class Selection {
 public:
  using SourceSize = std::function<std::optional<size_t>()>;

  virtual ~Selection() = default;
  /// An index out of range is an IndexError.
  virtual size_t at(size_t place) = 0;
  virtual std::optional<size_t> size() = 0;
  /// A line for explain(). Reads no samples.
  virtual std::string describe() = 0;
};

/// Selects the listed samples.
class ListSelection : public Selection {
 public:
  explicit ListSelection(std::vector<size_t> indices) : indices_(std::move(indices)) {}
  size_t at(size_t place) override;
  std::optional<size_t> size() override { return indices_.size(); }
  std::string describe() override;

 private:
  const std::vector<size_t> indices_;
};

/// Selects `count` samples starting at `first`, or as many as the source has.
class RangeSelection : public Selection {
 public:
  RangeSelection(size_t first, size_t count, SourceSize source_size)
      : first_(first), count_(count), source_size_(std::move(source_size)) {}
  size_t at(size_t place) override;
  std::optional<size_t> size() override;
  std::string describe() override;

 private:
  const size_t first_, count_;
  const SourceSize source_size_;
};

/// Selects all samples in random order, which is drawn on first use.
class ShuffleSelection : public Selection {
 public:
  ShuffleSelection(uint64_t seed, SourceSize source_size) : seed_(seed), source_size_(std::move(source_size)) {}
  size_t at(size_t place) override;
  std::optional<size_t> size() override { return source_size_(); }
  std::string describe() override;

 private:
  const uint64_t seed_;
  const SourceSize source_size_;
  std::once_flag drawn_;
  std::vector<size_t> order_;
};

/// Selects the samples that `accepts` accepts. Calls it once for each sample, in order, when the answer is needed.
class FilterSelection : public Selection {
 public:
  FilterSelection(std::function<bool(size_t)> accepts, SourceSize source_size)
      : accepts_(std::move(accepts)), source_size_(std::move(source_size)) {}
  size_t at(size_t place) override;
  std::optional<size_t> size() override;
  std::string describe() override;

 private:
  bool find(size_t count);  // false if the source has fewer than `count` accepted samples; the lock must be held

  std::mutex mutex_;
  const std::function<bool(size_t)> accepts_;
  const SourceSize source_size_;
  size_t scanned_ = 0;
  std::vector<size_t> accepted_;
};

}  // namespace gradus::data::detail
