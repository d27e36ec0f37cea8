// Which samples of a source a dataset shows. Internal to pipelines; knows no types, so that it is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gradus::data::detail {

/// Place i shows sample at(i) of the source. Shared by all copies of a dataset, so safe to ask from several threads.
class Selection {
 public:
  using SourceSize = std::function<std::optional<size_t>()>;

  virtual ~Selection() = default;
  /// A place that there is not is an IndexError.
  virtual size_t at(size_t place) = 0;
  virtual std::optional<size_t> size() = 0;
  /// A line of explain(); reads nothing.
  virtual std::string describe() = 0;
};

/// The listed ones.
class ListSelection : public Selection {
 public:
  explicit ListSelection(std::vector<size_t> indices) : indices_(std::move(indices)) {}
  size_t at(size_t place) override;
  std::optional<size_t> size() override { return indices_.size(); }
  std::string describe() override;

 private:
  const std::vector<size_t> indices_;
};

/// `count` of them from `first` on, as far as the source goes.
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

/// All in random order, drawn when first asked.
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

/// Those that `accepts` accepts. Each is asked about once, in order, when the answer is needed.
class FilterSelection : public Selection {
 public:
  FilterSelection(std::function<bool(size_t)> accepts, SourceSize source_size)
      : accepts_(std::move(accepts)), source_size_(std::move(source_size)) {}
  size_t at(size_t place) override;
  std::optional<size_t> size() override;
  std::string describe() override;

 private:
  bool find(size_t count);  // false where the source has fewer than `count` accepted ones; asked under the lock

  std::mutex mutex_;
  const std::function<bool(size_t)> accepts_;
  const SourceSize source_size_;
  size_t scanned_ = 0;
  std::vector<size_t> accepted_;
};

}  // namespace gradus::data::detail
