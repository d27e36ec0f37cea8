#include <gradus/data/loader/samplers.h>

#include <gradus/autograd/archive.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/runtime/random.h>
#include <gradus/data/sample.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

namespace gradus::data::samplers {
namespace {

Indices count_up(size_t size) {
  Indices indices(size);
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

Indices shuffled(Indices indices, uint64_t seed, uint64_t epoch) {
  for (size_t i = indices.size(); i > 1; --i) {
    const int64_t partner = random_integer(seed, order_stream(epoch), i, 0, static_cast<int64_t>(i));
    std::swap(indices[i - 1], indices[static_cast<size_t>(partner)]);
  }
  return indices;
}

size_t divide_up(size_t count, size_t by) { return count / by + (count % by != 0); }

void write_indices(serialize::OutputArchive& archive, const char* key, const Indices& indices) {
  archive.write(key, tensor(std::vector<int64_t>(indices.begin(), indices.end())));
}

/// Reads indices. Throws a ValueError if one is negative.
Indices read_indices(const serialize::InputArchive& archive, const char* key) {
  Tensor stored;
  archive.read(key, stored);
  Indices indices;
  const Tensor flat = stored.to(kLong).contiguous();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const int64_t index = flat.data_ptr<int64_t>()[i];
    GRADUS_CHECK(index >= 0, ValueError, "'", key, "' of a sampler is ", index);
    indices.push_back(static_cast<size_t>(index));
  }
  return indices;
}

size_t read_index(const serialize::InputArchive& archive, const char* key) {
  const Indices index = read_indices(archive, key);
  GRADUS_CHECK(index.size() == 1, ValueError, "'", key, "' of a sampler must be one number");
  return index[0];
}

}  // namespace

void SequentialSampler::save(serialize::OutputArchive& archive) const { write_indices(archive, "index", {position_}); }
void SequentialSampler::load(serialize::InputArchive& archive) { position_ = read_index(archive, "index"); }

std::optional<Indices> SequentialSampler::next(size_t batch_size) {
  if (position_ >= size_) return std::nullopt;
  Indices indices(std::min(batch_size, size_ - position_));
  std::iota(indices.begin(), indices.end(), position_);
  position_ += indices.size();
  return indices;
}

std::optional<size_t> SequentialSampler::batches(size_t batch_size) const { return divide_up(size_, batch_size); }

void OrderSampler::reset(uint64_t seed, uint64_t epoch) {
  order_ = order(seed, epoch);
  position_ = 0;
}

void OrderSampler::reset(std::optional<size_t> new_size) {
  if (new_size) resize(*new_size);
  reset(default_generator().seed(), resets_++);
}

void OrderSampler::resize(size_t new_size) {
  GRADUS_FAIL(ValueError, "this sampler has ", size(), " samples, and cannot have ", new_size);
}

void OrderSampler::save(serialize::OutputArchive& archive) const {
  write_indices(archive, "index", {position_});
  write_indices(archive, "indices", order_);
}

void OrderSampler::load(serialize::InputArchive& archive) {
  const size_t position = read_index(archive, "index");
  Indices indices = read_indices(archive, "indices");
  GRADUS_CHECK(indices.empty() || indices.size() == size(), ValueError, "a sampler of ", size(),
               " samples cannot continue an epoch of ", indices.size());
  order_ = std::move(indices);
  position_ = position;
}

std::optional<Indices> OrderSampler::next(size_t batch_size) {
  if (order_.empty()) reset();  // used without a loader, and no epoch was started
  if (position_ >= order_.size()) return std::nullopt;
  const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(position_);
  const size_t count = std::min(batch_size, order_.size() - position_);
  position_ += count;
  return Indices(begin, begin + static_cast<std::ptrdiff_t>(count));
}

std::optional<size_t> OrderSampler::batches(size_t batch_size) const { return divide_up(size(), batch_size); }

Indices RandomSampler::order_of(size_t size, uint64_t seed, uint64_t epoch) {
  return shuffled(count_up(size), seed, epoch);
}

Indices SubsetRandomSampler::order(uint64_t seed, uint64_t epoch) const { return shuffled(indices_, seed, epoch); }

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, size_t num_samples, bool replacement)
    : weights_(std::move(weights)), num_samples_(num_samples), replacement_(replacement) {
  size_t positive = 0;
  double sum = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    GRADUS_CHECK(std::isfinite(weights_[i]) && weights_[i] >= 0, ValueError,
                 "WeightedRandomSampler needs weights that are finite and not negative, weight ", i, " is ",
                 weights_[i]);
    positive += weights_[i] > 0;
    sum += weights_[i];
  }
  GRADUS_CHECK(std::isfinite(sum), ValueError, "WeightedRandomSampler: the sum of the weights is too large");
  GRADUS_CHECK(num_samples == 0 || positive > 0, ValueError, "WeightedRandomSampler needs a weight above 0");
  GRADUS_CHECK(replacement || num_samples <= positive, ValueError, "WeightedRandomSampler cannot draw ", num_samples,
               " samples without replacement: ", positive, " of ", weights_.size(), " weights are above 0");
}

Indices WeightedRandomSampler::order(uint64_t seed, uint64_t epoch) const {
  // A random number in (0, 1]. 0 is excluded, so that its logarithm is finite and a weight of 0 is never chosen.
  const auto draw = [&](size_t i) { return 1.0 - random_uniform<double>(seed, order_stream(epoch), i, 0, 1); };
  Indices indices;
  if (replacement_) {
    std::vector<double> cumulative(weights_.size());
    std::partial_sum(weights_.begin(), weights_.end(), cumulative.begin());
    while (indices.size() < num_samples_) {
      const double point = draw(indices.size()) * cumulative.back();
      indices.push_back(static_cast<size_t>(std::ranges::lower_bound(cumulative, point) - cumulative.begin()));
    }
  } else {
    std::vector<std::pair<double, size_t>> keys;
    for (size_t i = 0; i < weights_.size(); ++i)
      if (weights_[i] > 0) keys.emplace_back(-random_detail::log(draw(i)) / weights_[i], i);
    std::ranges::partial_sort(keys, keys.begin() + static_cast<std::ptrdiff_t>(num_samples_));
    for (const auto& [key, index] : std::span(keys).first(num_samples_)) indices.push_back(index);
  }
  return indices;
}

DistributedSampler::DistributedSampler(size_t size, size_t num_replicas, size_t rank, bool allow_duplicates,
                                       bool shuffle)
    : total_(size), num_replicas_(num_replicas), rank_(rank), allow_duplicates_(allow_duplicates), shuffle_(shuffle) {
  GRADUS_CHECK(rank < num_replicas, ValueError,
               "the rank of a distributed sampler must be less than num_replicas = ", num_replicas, ", got ", rank);
}

size_t DistributedSampler::size() const {
  if (allow_duplicates_ || rank_ < total_ % num_replicas_) return divide_up(total_, num_replicas_);
  return total_ / num_replicas_;
}

void DistributedSampler::save(serialize::OutputArchive& archive) const {
  OrderSampler::save(archive);
  if (epoch_) write_indices(archive, "epoch", {*epoch_});
}

void DistributedSampler::load(serialize::InputArchive& archive) {
  OrderSampler::load(archive);
  Tensor epoch;
  if (archive.try_read("epoch", epoch)) epoch_ = read_index(archive, "epoch");
}

Indices DistributedSampler::order(uint64_t seed, uint64_t epoch) const {
  Indices all = count_up(total_);
  if (shuffle_) all = shuffled(std::move(all), seed, epoch_.value_or(epoch));
  Indices indices(size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = all[(i * num_replicas_ + rank_) % total_];
  return indices;
}

}  // namespace gradus::data::samplers
