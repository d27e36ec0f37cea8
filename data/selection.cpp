#include <gradus/data/selection.h>

#include <gradus/core/error.h>
#include <gradus/data/loader/samplers.h>

#include <algorithm>

namespace gradus::data::detail {

size_t ListSelection::at(size_t place) {
  GRADUS_CHECK(place < indices_.size(), IndexError, "sample ", place, " of a subset of ", indices_.size());
  return indices_[place];
}

std::string ListSelection::describe() { return "subset of " + std::to_string(indices_.size()); }

// The source checks the end of its range.
size_t RangeSelection::at(size_t place) {
  GRADUS_CHECK(place < count_ && place <= SIZE_MAX - first_, IndexError, "sample ", place, " of the ", count_,
               " that take() has left");
  return first_ + place;
}

std::optional<size_t> RangeSelection::size() {
  const std::optional<size_t> all = source_size_();
  if (!all) return all;
  return std::min(count_, *all - std::min(first_, *all));
}

std::string RangeSelection::describe() {
  return first_ ? "skip " + std::to_string(first_) : "take " + std::to_string(count_);
}

size_t ShuffleSelection::at(size_t place) {
  std::call_once(drawn_, [&] {
    const std::optional<size_t> size = source_size_();
    GRADUS_CHECK(size.has_value(), ValueError, "shuffle() needs a dataset whose size is known");
    samplers::RandomSampler sampler(*size);
    sampler.reset(seed_, 0);
    order_ = sampler.next(std::max<size_t>(*size, 1)).value_or(std::vector<size_t>());
  });
  GRADUS_CHECK(place < order_.size(), IndexError, "sample ", place, " of a dataset of ", order_.size());
  return order_[place];
}

std::string ShuffleSelection::describe() { return "shuffle with seed " + std::to_string(seed_); }

bool FilterSelection::find(size_t count) {
  const std::optional<size_t> end = source_size_();
  while (accepted_.size() < count && scanned_ < end.value_or(SIZE_MAX)) {
    if (accepts_(scanned_)) accepted_.push_back(scanned_);
    ++scanned_;
  }
  return accepted_.size() >= count;
}

size_t FilterSelection::at(size_t place) {
  std::lock_guard lock(mutex_);
  const bool found = place < SIZE_MAX && find(place + 1);
  GRADUS_CHECK(found, IndexError, "sample ", place, " of the ", accepted_.size(), " that the filter accepts");
  return accepted_[place];
}

std::optional<size_t> FilterSelection::size() {
  std::lock_guard lock(mutex_);
  if (!source_size_()) return std::nullopt;
  find(SIZE_MAX);
  return accepted_.size();
}

std::string FilterSelection::describe() {
  std::lock_guard lock(mutex_);
  return "filter, " + std::to_string(accepted_.size()) + " of " + std::to_string(scanned_) + " accepted so far";
}

}  // namespace gradus::data::detail
