#include <gradus/data/loader/samplers.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include <gradus/autograd/archive.h>
#include <gradus/autograd/autograd.h>
#include <gradus/core/error.h>
#include <gradus/core/runtime/random.h>
#include <gradus/data/sample.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using namespace gradus::data::samplers;

namespace {

serialize::InputArchive archive_of(const serialize::OutputArchive& saved) {
  std::stringstream bytes;
  saved.save_to(bytes);
  serialize::InputArchive archive;
  archive.load_from(bytes);
  return archive;
}

// Returns all indices of an epoch, which it requests in batches.
template <class S>
std::vector<size_t> epoch_of(S& sampler, uint64_t seed, uint64_t epoch, size_t batch_size = 7) {
  sampler.reset(seed, epoch);
  std::vector<size_t> all;
  size_t batches = 0;
  while (auto indices = sampler.next(batch_size)) {
    all.insert(all.end(), indices->begin(), indices->end());
    CHECK(!indices->empty());
    ++batches;
  }
  CHECK(sampler.batches(batch_size) == batches);
  return all;
}

}  // namespace

TEST_CASE("a sampler without a reset starts an epoch", "[data][sampler]") {
  RandomSampler sampler(10);
  std::vector<size_t> seen;
  while (const auto batch = sampler.next(4)) seen.insert(seen.end(), batch->begin(), batch->end());
  std::sort(seen.begin(), seen.end());
  REQUIRE(seen.size() == 10);
  for (size_t i = 0; i < 10; ++i) CHECK(seen[i] == i);
  CHECK_FALSE(sampler.next(4));  // the epoch ends
  CHECK_FALSE(RandomSampler(0).next(4));
}

TEST_CASE("SubsetRandomSampler visits its indices once", "[data][sampler]") {
  const std::vector<size_t> indices = {4, 8, 15, 16, 23, 42, 99, 3};
  SubsetRandomSampler sampler(indices);
  const std::vector<size_t> first = epoch_of(sampler, 1, 0), second = epoch_of(sampler, 1, 1);
  CHECK(std::is_permutation(first.begin(), first.end(), indices.begin(), indices.end()));
  CHECK(first != second);
  CHECK(epoch_of(sampler, 1, 0, 3) == first);
}

TEST_CASE("WeightedRandomSampler draws by weight", "[data][sampler]") {
  const std::vector<double> weights = {1, 0, 3, 6, 0};
  WeightedRandomSampler with(weights, 10000);
  std::map<size_t, double> counts;
  for (size_t index : epoch_of(with, 2, 0, 64)) counts[index] += 1;
  CHECK(counts.size() == 3);
  // For chi-squared with 2 degrees of freedom, 99.9 % of the values are below 13.8.
  double chi_squared = 0;
  for (const auto& [index, count] : counts) {
    const double expected = weights[index] * 1000;
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  CHECK(chi_squared < 13.8);

  // Without replacement no index occurs twice, and the first draw has probabilities proportional to the weights.
  WeightedRandomSampler without(weights, 3, false);
  std::map<size_t, double> first;
  for (uint64_t epoch = 0; epoch < 2000; ++epoch) {
    without.reset(4, epoch);
    const std::vector<size_t> drawn = *without.next(3);
    CHECK(std::set<size_t>(drawn.begin(), drawn.end()) == std::set<size_t>{0, 2, 3});
    first[drawn[0]] += 1;
  }
  chi_squared = 0;
  for (const auto& [index, count] : first)
    chi_squared += (count - weights[index] * 200) * (count - weights[index] * 200) / (weights[index] * 200);
  CHECK(chi_squared < 13.8);

  CHECK_THROWS_WITH(WeightedRandomSampler({1, -1}, 1), contains("weight 1 is -1"));
  CHECK_THROWS_AS(WeightedRandomSampler({0, 0}, 1), ValueError);
  CHECK_THROWS_WITH(WeightedRandomSampler({1, 0, 1}, 3, false), contains("2 of 3 weights"));
  CHECK_THROWS_AS(WeightedRandomSampler({INFINITY}, 1), ValueError);
  CHECK_THROWS_AS(WeightedRandomSampler({1e308, 1e308}, 1), ValueError);
}

TEST_CASE("distributed samplers split without overlap or padding", "[data][sampler]") {
  for (size_t size : {0u, 1u, 2u, 7u, 16u, 97u, 1000u}) {
    RandomSampler whole(size);
    const std::vector<size_t> order = epoch_of(whole, 5, 3);
    for (size_t world : {1u, 2u, 3u, 5u, 8u, 13u}) {
      std::vector<size_t> together(size, SIZE_MAX), in_order;
      size_t smallest = SIZE_MAX, largest = 0;
      for (size_t rank = 0; rank < world; ++rank) {
        DistributedRandomSampler random(size, world, rank);
        const std::vector<size_t> mine = epoch_of(random, 5, 3);
        CHECK(mine.size() == random.size());
        smallest = std::min(smallest, mine.size()), largest = std::max(largest, mine.size());
        for (size_t i = 0; i < mine.size(); ++i) together[i * world + rank] = mine[i];
        DistributedSequentialSampler sequential(size, world, rank);
        const std::vector<size_t> part = epoch_of(sequential, 0, 0);
        in_order.insert(in_order.end(), part.begin(), part.end());
      }
      CHECK(together == order);  // the interleaved parts of all ranks are the order of a single process
      CHECK(largest - smallest <= 1);
      std::sort(in_order.begin(), in_order.end());
      CHECK(in_order.size() == size);
      for (size_t i = 0; i < in_order.size(); ++i) CHECK(in_order[i] == i);
    }
  }
}

TEST_CASE("distributed samplers pad with allow_duplicates and accept an epoch", "[data][sampler]") {
  for (size_t rank = 0; rank < 4; ++rank) {
    DistributedSequentialSampler sampler(6, 4, rank, true);
    CHECK(epoch_of(sampler, 0, 0) == std::vector<size_t>{rank, (rank + 4) % 6});
    DistributedSequentialSampler few(1, 4, rank, true);
    CHECK(epoch_of(few, 0, 0) == std::vector<size_t>{0});
  }
  DistributedRandomSampler sampler(50, 2, 1);
  const std::vector<size_t> fifth = epoch_of(sampler, 1, 5);
  sampler.set_epoch(5);
  CHECK(sampler.epoch() == 5);
  CHECK(epoch_of(sampler, 1, 0) == fifth);
  CHECK_THROWS_WITH(DistributedRandomSampler(10, 2, 2),
                    contains("the rank of a distributed sampler") && contains("num_replicas = 2, got 2"));
  CHECK_THROWS_AS(DistributedRandomSampler(10, 0, 0), ValueError);
}

TEST_CASE("BatchSampler makes batches of its own size", "[data][sampler]") {
  BatchSampler keep(SequentialSampler(7), 3, false), drop(SequentialSampler(7), 3, true);
  keep.reset(0, 0);
  CHECK(keep.next(1) == std::vector<size_t>{0, 1, 2});
  CHECK(keep.next(100) == std::vector<size_t>{3, 4, 5});
  CHECK(keep.next(1) == std::vector<size_t>{6});
  CHECK_FALSE(keep.next(1).has_value());
  CHECK(keep.batches(1) == 3u);
  CHECK(epoch_of(drop, 0, 0) == std::vector<size_t>{0, 1, 2, 3, 4, 5});
  CHECK_THROWS_AS(BatchSampler(SequentialSampler(7), 0, true), ValueError);
}

TEST_CASE("samplers without a loader: reset() starts another epoch, optionally of another size") {
  RandomSampler sampler(5);
  const auto first = sampler.next(100);
  REQUIRE(first);
  CHECK_FALSE(sampler.next(1));
  sampler.reset();
  CHECK(sampler.index() == 0);
  const auto second = sampler.next(100);
  REQUIRE(second);
  sampler.reset(7);
  CHECK(sampler.next(100)->size() == 7);
  sampler.reset(3);
  CHECK(sampler.next(100)->size() == 3);

  // The order is different in each epoch, and depends only on the seed and the epoch.
  RandomSampler large(100), again(100);
  const auto a = large.next(100);
  large.reset();
  CHECK(a != large.next(100));
  again.reset();
  CHECK(a == again.next(100));
  CHECK_THROWS_AS(SubsetRandomSampler({1, 2}).reset(3), ValueError);
}

TEST_CASE("the order of an epoch follows from its seed", "[data][sampler]") {
  const auto shuffled = [](std::vector<size_t> indices, uint64_t seed, uint64_t epoch) {
    for (size_t i = indices.size(); i > 1; --i)
      std::swap(indices[i - 1], indices[static_cast<size_t>(random_integer(seed, gradus::data::order_stream(epoch), i,
                                                                           0, static_cast<int64_t>(i)))]);
    return indices;
  };
  const std::vector<size_t> six = {0, 1, 2, 3, 4, 5}, some = {9, 4, 7, 7, 1};
  RandomSampler random(6);
  SubsetRandomSampler subset(some);
  for (uint64_t seed = 0; seed < 5; ++seed)
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      CHECK(epoch_of(random, seed, epoch) == shuffled(six, seed, epoch));
      CHECK(epoch_of(subset, seed, epoch, 2) == shuffled(some, seed, epoch));
    }

  const std::vector<double> weights = {0.5, 0, 2, 1, 0, 1.5};
  const std::vector<double> ends = {0.5, 0.5, 2.5, 3.5, 3.5, 5};
  WeightedRandomSampler with(weights, 12), without(weights, 3, false), all(weights, 4, false);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const auto draw = [&](size_t i) {
      return 1 - random_uniform<double>(seed, gradus::data::order_stream(2), i, 0, 1);
    };
    std::vector<size_t> expected;
    for (size_t i = 0; i < 12; ++i) {
      size_t index = 0;
      while (ends[index] < draw(i) * 5) ++index;
      expected.push_back(index);
    }
    CHECK(epoch_of(with, seed, 2) == expected);
    std::vector<std::pair<double, size_t>> keys;
    for (const size_t i : {0, 2, 3, 5}) keys.emplace_back(-std::log(draw(i)) / weights[i], i);
    std::sort(keys.begin(), keys.end());
    expected.clear();
    for (const auto& [key, index] : keys) expected.push_back(index);
    CHECK(epoch_of(all, seed, 2) == expected);
    expected.pop_back();
    CHECK(epoch_of(without, seed, 2) == expected);
  }
  WeightedRandomSampler none({0, 0}, 0), nothing({}, 0, false);
  CHECK(epoch_of(none, 1, 0).empty());
  CHECK(epoch_of(nothing, 1, 0).empty());
  CHECK_NOTHROW(WeightedRandomSampler({0, 1}, 5));
  CHECK_THROWS_WITH(WeightedRandomSampler({0, 1}, 2, false), contains("1 of 2 weights are above 0"));
  CHECK_THROWS_WITH(WeightedRandomSampler({}, 1), contains("needs a weight above 0"));
}

TEST_CASE("a saved sampler continues its epoch", "[data][sampler]") {
  const auto check = [](auto make, size_t size) {
    for (size_t stop = 0; stop <= size; ++stop) {
      auto sampler = make(), other = make();
      sampler.reset(3, 1);
      const std::vector<size_t> seen = sampler.next(stop).value_or(std::vector<size_t>());
      serialize::OutputArchive saved;
      sampler.save(saved);
      serialize::InputArchive archive = archive_of(saved);
      other.load(archive);
      CHECK(other.index() == seen.size());
      CHECK(other.next(2) == sampler.next(2));
      CHECK(other.next(size) == sampler.next(size));
      CHECK_FALSE(other.next(1));
    }
  };
  check([] { return SequentialSampler(5); }, 5);
  check([] { return RandomSampler(5); }, 5);
  check([] { return SubsetRandomSampler({3, 9, 1}); }, 3);
  check([] { return WeightedRandomSampler({1, 2}, 4); }, 4);
  check([] { return DistributedRandomSampler(7, 2, 1); }, 3);
  // An epoch that was set by hand is saved, too.
  DistributedRandomSampler set(9, 2, 0), loaded(9, 2, 0);
  set.set_epoch(4);
  serialize::OutputArchive saved;
  set.save(saved);
  serialize::InputArchive archive = archive_of(saved);
  loaded.load(archive);
  CHECK(loaded.epoch() == 4);
  CHECK(epoch_of(loaded, 1, 0) == epoch_of(set, 1, 0));

  const auto error_of = [](auto sampler, const Tensor& index, const Tensor& indices) -> std::string {
    serialize::OutputArchive changed;
    changed.write("index", index), changed.write("indices", indices);
    serialize::InputArchive archive_read = archive_of(changed);
    try {
      sampler.load(archive_read);
    } catch (const ValueError& error) { return error.what(); }
    return "";
  };
  const Tensor two = tensor({2}), order = tensor({2, 0, 1});
  CHECK(error_of(RandomSampler(3), two, order) == "");
  CHECK(error_of(RandomSampler(3), two, tensor(std::vector<int64_t>())) == "");
  CHECK_THAT(error_of(RandomSampler(4), two, order), contains("a sampler of 4 samples cannot continue an epoch of 3"));
  CHECK_THAT(error_of(RandomSampler(3), tensor({-1}), order), contains("'index' of a sampler is -1"));
  CHECK_THAT(error_of(RandomSampler(3), two, tensor({0, -3, 1})), contains("'indices' of a sampler is -3"));
  CHECK_THAT(error_of(RandomSampler(3), order, order), contains("'index' of a sampler must be one number"));
  CHECK_THAT(error_of(SequentialSampler(3), order, order), contains("'index' of a sampler must be one number"));
  CHECK_THROWS_WITH(SubsetRandomSampler({1, 2}).reset(3), contains("this sampler has 2 samples, and cannot have 3"));
}

TEST_CASE("samplers know their number of batches", "[data][sampler]") {
  for (size_t size = 0; size < 10; ++size)
    for (size_t batch = 1; batch < 6; ++batch) {
      CAPTURE(size, batch);
      const size_t batches = size / batch + (size % batch == 0 ? 0 : 1);
      CHECK(SequentialSampler(size).batches(batch) == batches);
      CHECK(RandomSampler(size).batches(batch) == batches);
      CHECK(BatchSampler(RandomSampler(size), batch, false).batches(1) == batches);
      CHECK(BatchSampler(RandomSampler(size), batch, true).batches(1) == size / batch);
    }
}
