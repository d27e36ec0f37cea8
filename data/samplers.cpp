#include <gradus/data/samplers.h>

#include <gradus/core/random.h>
#include <gradus/data/random_streams.h>

#include <algorithm>
#include <numeric>

namespace gradus::data::samplers {

std::optional<std::vector<size_t>> SequentialSampler::next(size_t batch_size) {
  if (position_ >= size_) return std::nullopt;
  std::vector<size_t> indices(std::min(batch_size, size_ - position_));
  std::iota(indices.begin(), indices.end(), position_);
  position_ += indices.size();
  return indices;
}

void RandomSampler::reset(uint64_t seed, uint64_t epoch) {
  order_.resize(size_);
  std::iota(order_.begin(), order_.end(), size_t{0});
  for (size_t i = size_; i > 1; --i) {
    const int64_t partner = random_integer(seed, order_stream(epoch), i, 0, static_cast<int64_t>(i));
    std::swap(order_[i - 1], order_[static_cast<size_t>(partner)]);
  }
  position_ = 0;
}

std::optional<std::vector<size_t>> RandomSampler::next(size_t batch_size) {
  if (position_ >= order_.size()) return std::nullopt;
  const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(position_);
  const size_t count = std::min(batch_size, order_.size() - position_);
  position_ += count;
  return std::vector<size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

}  // namespace gradus::data::samplers
