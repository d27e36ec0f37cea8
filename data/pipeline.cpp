#include <gradus/data/pipeline.h>

#include <gradus/core/error.h>
#include <gradus/data/loader/samplers.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gradus::data::detail {

Selection select_listed(Indices indices) {
  const auto list = std::make_shared<const Indices>(std::move(indices));
  const auto at = [list](size_t place) {
    GRADUS_CHECK(place < list->size(), IndexError, "sample ", place, " of a subset of ", list->size());
    return (*list)[place];
  };
  return {at, [list] { return list->size(); }, [list] { return "subset of " + std::to_string(list->size()); }};
}

Selection select_range(size_t first, size_t count, SourceSize source_size) {
  const auto at = [=](size_t place) {  // if `place` is beyond the end, the source throws
    GRADUS_CHECK(place < count && place <= SIZE_MAX - first, IndexError, "sample ", place, " of the ", count,
                 " that take() has left");
    return first + place;
  };
  const auto size = [=]() -> std::optional<size_t> {
    const std::optional<size_t> all = source_size();
    if (!all) return all;
    return std::min(count, *all - std::min(first, *all));
  };
  return {at, size, [=] { return first ? "skip " + std::to_string(first) : "take " + std::to_string(count); }};
}

Selection select_shuffled(uint64_t seed, SourceSize source_size) {
  struct Order {
    std::once_flag drawn;
    Indices indices;
  };
  const auto at = [seed, source_size, order = std::make_shared<Order>()](size_t place) {
    std::call_once(order->drawn, [&] {
      const std::optional<size_t> size = source_size();
      GRADUS_CHECK(size.has_value(), ValueError, "shuffle() needs a dataset whose size is known");
      order->indices = samplers::RandomSampler::order_of(*size, seed, 0);
    });
    GRADUS_CHECK(place < order->indices.size(), IndexError, "sample ", place, " of a dataset of ",
                 order->indices.size());
    return order->indices[place];
  };
  return {at, source_size, [seed] { return "shuffle with seed " + std::to_string(seed); }};
}

Selection select_accepted(std::function<bool(size_t)> accepts, SourceSize source_size) {
  // What the filter knows so far: it has tested the first `scanned` samples, and has accepted those in `indices`.
  struct Accepted {
    std::mutex mutex;
    size_t scanned = 0;
    Indices indices;
  };
  const auto accepted = std::make_shared<Accepted>();
  // Tests samples until `count` are accepted or the source ends. The caller must hold the lock.
  const auto find = [accepted, source_size, accepts = std::move(accepts)](size_t count) {
    const std::optional<size_t> end = source_size();
    for (size_t& i = accepted->scanned; accepted->indices.size() < count && i < end.value_or(SIZE_MAX); ++i)
      if (accepts(i)) accepted->indices.push_back(i);
  };
  const auto at = [accepted, find](size_t place) {
    std::lock_guard lock(accepted->mutex);
    if (place < SIZE_MAX) find(place + 1);
    GRADUS_CHECK(place < accepted->indices.size(), IndexError, "sample ", place, " of the ", accepted->indices.size(),
                 " that the filter accepts");
    return accepted->indices[place];
  };
  const auto size = [accepted, find, source_size]() -> std::optional<size_t> {
    std::lock_guard lock(accepted->mutex);
    if (!source_size()) return std::nullopt;
    find(SIZE_MAX);
    return accepted->indices.size();
  };
  const auto describe = [accepted] {
    std::lock_guard lock(accepted->mutex);
    return "filter, " + std::to_string(accepted->indices.size()) + " of " + std::to_string(accepted->scanned) +
           " accepted so far";
  };
  return {at, size, describe};
}

std::vector<Indices> split_indices(size_t total, const std::vector<double>& lengths, uint64_t seed) {
  const double sum = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const bool fractions = sum <= 1 && std::abs(sum - 1) < 1e-9;
  std::vector<size_t> sizes;
  size_t given = 0;
  for (double length : lengths) {
    GRADUS_CHECK(length >= 0 && length <= static_cast<double>(total) && (fractions || length == std::floor(length)),
                 ValueError, "random_split needs sizes of parts of ", total,
                 " samples, or fractions that sum up to 1; got ", length);
    sizes.push_back(static_cast<size_t>(fractions ? std::floor(length * static_cast<double>(total)) : length));
    given += sizes.back();
  }
  if (fractions)
    for (size_t i = 0; given < total; i = (i + 1) % sizes.size(), ++given) ++sizes[i];
  GRADUS_CHECK(given == total, ValueError, "random_split: the lengths sum up to ", given, ", the dataset has ", total,
               " samples");
  samplers::RandomSampler order(total);
  order.reset(seed, 0);
  std::vector<Indices> parts;
  for (size_t size : sizes) parts.push_back(size ? order.next(size).value_or(Indices()) : Indices());
  return parts;
}

}  // namespace gradus::data::detail
