#include <gradus/data/combine.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gradus/data/loader/samplers.h>

namespace gradus::data::datasets::detail {

size_t part_of(size_t index, const std::vector<size_t>& ends) {
  return static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), index) - ends.begin());
}

std::vector<size_t> split_sizes(size_t total, const std::vector<double>& lengths) {
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
  return sizes;
}

std::vector<std::vector<size_t>> split_indices(const std::vector<size_t>& sizes, uint64_t seed) {
  samplers::RandomSampler order(std::accumulate(sizes.begin(), sizes.end(), size_t{0}));
  order.reset(seed, 0);
  std::vector<std::vector<size_t>> parts;
  for (size_t size : sizes)
    parts.push_back(size ? order.next(size).value_or(std::vector<size_t>()) : std::vector<size_t>());
  return parts;
}

}  // namespace gradus::data::datasets::detail
