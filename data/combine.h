// Datasets composed of datasets, as in torch.utils.data, and a dataset type that hides the type of the one it holds.
#pragma once

#include <initializer_list>

#include <gradus/data/dataset.h>

namespace gradus::data::datasets {

/// Holds a dataset of any type with this batch type; copies copy the dataset. For pipelines that are chosen at run
/// time:
///
///   data::datasets::AnyDataset<> train = digits;
///   if (augment) train = train.map(data::transforms::RandomAffine(10));
template <class Batch = std::vector<Example<>>>
class AnyDataset : public BatchDataset<AnyDataset<Batch>, Batch> {
 public:
  template <class Inner>
  requires(!std::is_same_v<std::remove_cvref_t<Inner>, AnyDataset>)
      AnyDataset(Inner dataset)  // NOLINT(google-explicit-constructor)
      : held_(std::make_unique<Inner>(std::move(dataset))), copy_(&copy_of<Inner>), stack_(&stack_of<Inner>) {}
  AnyDataset(const AnyDataset& other) : held_(other.copy_(*other.held_)), copy_(other.copy_), stack_(other.stack_) {}
  AnyDataset(AnyDataset&&) noexcept = default;
  AnyDataset& operator=(AnyDataset other) noexcept {
    held_ = std::move(other.held_), copy_ = other.copy_, stack_ = other.stack_;
    return *this;
  }

  Batch get_batch(const std::vector<size_t>& indices) override { return held_->get_batch(indices); }
  /// Returns one stacked batch, in one operation if the inner dataset supports it.
  Example<> get_stacked(const std::vector<size_t>& indices) requires(std::is_same_v<Batch, std::vector<Example<>>>) {
    return stack_(*held_, indices);
  }
  std::optional<size_t> size() const override { return held_->size(); }
  uint64_t stage() const override { return held_->stage(); }
  std::vector<std::string> plan() const override { return held_->plan(); }

 private:
  using Held = BatchSource<Batch>;

  template <class Inner>
  static std::unique_ptr<Held> copy_of(const Held& held) {
    return std::make_unique<Inner>(static_cast<const Inner&>(held));
  }
  template <class Inner>
  static Example<> stack_of(Held& held, const std::vector<size_t>& indices) {
    if constexpr (StackedDataset<Inner>) return static_cast<Inner&>(held).get_stacked(indices);
    else if constexpr (std::is_same_v<Batch, std::vector<Example<>>>) {
      transforms::Stack<> stack;
      return detail::stacked(held, stack, indices);
    } else return {};
  }

  std::unique_ptr<Held> held_;
  std::unique_ptr<Held> (*copy_)(const Held& held);
  Example<> (*stack_)(Held& held, const std::vector<size_t>& indices);
};

template <class Inner>
AnyDataset(Inner) -> AnyDataset<typename Inner::BatchType>;

namespace detail {
/// Returns the part that contains a sample, given the end of each part.
size_t part_of(size_t index, const std::vector<size_t>& ends);
}  // namespace detail

/// Concatenates datasets: ConcatDataset(a, b, c) of any types whose batches are vectors of the same examples, or
/// ConcatDataset(std::vector<D>{…}). All sizes must be known (ValueError).
template <class Batch = std::vector<Example<>>>
class ConcatDataset : public BatchDataset<ConcatDataset<Batch>, Batch> {
 public:
  template <class First, class... Rest>
  requires(std::is_same_v<typename First::BatchType, Batch> &&
           (std::is_same_v<typename Rest::BatchType, Batch> && ...) &&
           !(sizeof...(Rest) == 0 && std::is_same_v<First, ConcatDataset>)) explicit ConcatDataset(First first,
                                                                                                   Rest... rest) {
    parts_.reserve(1 + sizeof...(rest));
    parts_.emplace_back(std::move(first));
    (parts_.emplace_back(std::move(rest)), ...);
    measure();
  }
  template <class Part>
  explicit ConcatDataset(std::vector<Part> parts) {
    parts_.reserve(parts.size());
    for (Part& part : parts) parts_.emplace_back(std::move(part));
    measure();
  }

  Batch get_batch(const std::vector<size_t>& indices) override {
    // Each part is called once for all of its samples.
    std::vector<std::vector<size_t>> wanted(parts_.size()), places(parts_.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      GRADUS_CHECK(indices[i] < ends_.back(), IndexError, "sample ", indices[i], " of a dataset of ", ends_.back());
      const size_t part = detail::part_of(indices[i], ends_);
      wanted[part].push_back(indices[i] - (part ? ends_[part - 1] : 0));
      places[part].push_back(i);
    }
    Batch batch(indices.size());
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (wanted[part].empty()) continue;
      Batch samples = parts_[part].get_batch(wanted[part]);
      for (size_t i = 0; i < samples.size(); ++i) batch[places[part][i]] = std::move(samples[i]);
    }
    return batch;
  }

  std::optional<size_t> size() const override { return ends_.back(); }
  uint64_t stage() const override {
    uint64_t stage = 0;
    for (const auto& part : parts_)
      if (part.stage() > stage) stage = part.stage();
    return stage;
  }
  std::vector<std::string> plan() const override {
    std::vector<std::string> lines = {"concatenation of " + std::to_string(parts_.size())};
    for (const auto& part : parts_) {
      bool first = true;
      for (const std::string& line : part.plan()) lines.push_back((std::exchange(first, false) ? "- " : "  ") + line);
    }
    return lines;
  }

 private:
  void measure() {
    GRADUS_CHECK(!parts_.empty(), ValueError, "ConcatDataset needs at least one dataset");
    size_t end = 0;
    for (const auto& part : parts_) {
      const std::optional<size_t> size = part.size();
      GRADUS_CHECK(size.has_value(), ValueError, "ConcatDataset needs datasets whose size is known");
      ends_.push_back(end += *size);
    }
  }

  std::vector<AnyDataset<Batch>> parts_;
  std::vector<size_t> ends_;  // end of each part, as an index into the whole dataset
};

template <class First, class... Rest>
ConcatDataset(First, Rest...) -> ConcatDataset<typename First::BatchType>;
template <class Part>
ConcatDataset(std::vector<Part>) -> ConcatDataset<typename Part::BatchType>;

namespace detail {
/// Sizes of the parts of `total` samples. `lengths` are sizes that add up to `total`, or fractions that add up to 1;
/// samples left over by rounding go to the first parts, one each (torch.utils.data.random_split). Anything else is a
/// ValueError.
std::vector<size_t> split_sizes(size_t total, const std::vector<double>& lengths);
/// Permutes 0 … total - 1 at random by `seed` and splits the result into parts.
std::vector<std::vector<size_t>> split_indices(const std::vector<size_t>& sizes, uint64_t seed);
}  // namespace detail

/// Splits a dataset at random into parts that do not overlap: random_split(dataset, {50000, 10000}) or, with fractions,
/// random_split(dataset, {0.8, 0.2}). The split depends only on `seed`, by default the default generator's seed.
template <class Source, class Number>
std::vector<Subset<Source>> random_split(const Source& dataset, const std::vector<Number>& lengths,
                                         std::optional<uint64_t> seed = std::nullopt) {
  const std::optional<size_t> total = dataset.size();
  GRADUS_CHECK(total.has_value(), ValueError, "random_split needs a dataset whose size is known");
  const std::vector<size_t> sizes = detail::split_sizes(*total, std::vector<double>(lengths.begin(), lengths.end()));
  std::vector<Subset<Source>> parts;
  for (std::vector<size_t>& indices : detail::split_indices(sizes, seed.value_or(default_generator().seed())))
    parts.emplace_back(dataset, std::move(indices));
  return parts;
}
template <class Source, class Number>
std::vector<Subset<Source>> random_split(const Source& dataset, std::initializer_list<Number> lengths,
                                         std::optional<uint64_t> seed = std::nullopt) {
  return random_split(dataset, std::vector<Number>(lengths), seed);
}

}  // namespace gradus::data::datasets
