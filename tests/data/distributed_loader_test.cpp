// Tests that the loaders of several ranks together return the batches of a single process.
#include <algorithm>

#include <gradus/autograd/autograd.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using data::DataLoaderOptions;
using data::Example;
using data::make_data_loader;
using data::samples_in_batch;
using data::datasets::AnyDataset;
using data::datasets::SyntheticDigits;
using data::samplers::BatchSampler;
using data::samplers::RandomSampler;
using data::samplers::SequentialSampler;
using data::transforms::Stack;
namespace transforms = data::transforms;

namespace {

using Batches = std::vector<std::vector<int64_t>>;  // the indices of each batch's samples

// Sample i is the number i.
struct RankNumbers : data::datasets::Dataset<RankNumbers> {
  explicit RankNumbers(size_t count) : count(count) {}
  Example<> get(size_t index) override {
    return {full({2}, static_cast<double>(index)), tensor(static_cast<int64_t>(index))};
  }
  std::optional<size_t> size() const override { return count; }
  size_t count;
};

// Returns the remaining batches of the loader's epoch.
template <class Loader>
Batches rest_of(Loader& loader) {
  Batches batches;
  for (auto& batch : loader) {
    CHECK(batch.data.sizes() == Shape{batch.target.numel(), 2});
    const int64_t* numbers = batch.target.template data_ptr<int64_t>();
    batches.emplace_back(numbers, numbers + batch.target.numel());
  }
  return batches;
}

// Combines the parts of all ranks to whole batches.
Batches joined(const std::vector<Batches>& parts) {
  Batches whole(parts[0].size());
  for (size_t k = 0; k < whole.size(); ++k) {
    size_t samples = 0;
    for (const Batches& part : parts) samples += part.at(k).size();
    for (size_t i = 0; i < samples; ++i) whole[k].push_back(parts[i % parts.size()][k].at(i / parts.size()));
  }
  return whole;
}

template <class Sampler>
auto loader_of(size_t size, const DataLoaderOptions& options) {
  return make_data_loader<Sampler>(RankNumbers(size).map(Stack<>()), options);
}

// Checks that for several numbers of ranks, two epochs have the same batches as with a single process.
template <class Sampler>
void check_ranks(size_t size, size_t batch_size, bool drop_last) {
  const DataLoaderOptions options = DataLoaderOptions(batch_size).seed(5).drop_last(drop_last);
  auto one = loader_of<Sampler>(size, options);
  const Batches first = rest_of(*one), second = rest_of(*one);
  for (size_t ranks = 1; ranks <= 4; ++ranks) {
    CAPTURE(size, batch_size, drop_last, ranks);
    std::vector<Batches> first_parts, second_parts;
    for (size_t rank = 0; rank < ranks; ++rank) {
      auto loader = loader_of<Sampler>(size, DataLoaderOptions(options).distributed(ranks, rank).workers(rank % 3));
      CHECK(loader->size() == first.size());
      first_parts.push_back(rest_of(*loader));
      CHECK(first_parts.back().size() == first.size());
      for (size_t k = 0; k < first.size(); ++k)
        CHECK(first_parts.back()[k].size() == samples_in_batch(size, batch_size, k, ranks, rank));
      second_parts.push_back(rest_of(*loader));  // the second epoch
      CHECK(loader->state() == one->state());
    }
    CHECK(joined(first_parts) == first);
    CHECK(joined(second_parts) == second);
  }
}

}  // namespace

TEST_CASE("ranks: their batches are together those of a single process", "[data][loader][distributed]") {
  for (const size_t size : {64u, 65u, 67u, 200u, 3u, 0u})
    for (const bool drop_last : {false, true}) {
      check_ranks<RandomSampler>(size, 64, drop_last);
      check_ranks<SequentialSampler>(size, 2, drop_last);  // with 3 and 4 ranks, some parts have no samples
    }
  const auto sizes = [](size_t batch) {
    return std::vector<size_t>{samples_in_batch(130, 64, batch, 3, 0), samples_in_batch(130, 64, batch, 3, 1),
                               samples_in_batch(130, 64, batch, 3, 2), samples_in_batch(130, 64, batch)};
  };
  CHECK(sizes(0) == std::vector<size_t>{22, 21, 21, 64});
  CHECK(sizes(2) == std::vector<size_t>{1, 1, 0, 2});
  CHECK(sizes(3) == std::vector<size_t>{0, 0, 0, 0});
  CHECK(samples_in_batch(130, 64, SIZE_MAX) == 0);
  CHECK_THROWS_AS(samples_in_batch(1, 0, 0), ValueError);
  CHECK_THROWS_WITH(loader_of<RandomSampler>(4, DataLoaderOptions(2).distributed(2, 2)),
                    contains("rank of a loader") && contains("got 2"));
}

TEST_CASE("ranks: an epoch is continued by a different number of ranks", "[data][loader][distributed][resume]") {
  const DataLoaderOptions options = DataLoaderOptions(8).seed(7);
  auto one = loader_of<RandomSampler>(53, options);
  const Batches first = rest_of(*one), second = rest_of(*one);
  for (size_t before = 1; before <= 3; ++before) {
    auto saving = loader_of<RandomSampler>(53, DataLoaderOptions(options).distributed(before, before - 1).workers(2));
    auto walk = saving->begin();
    ++walk, ++walk;  // the third of 7 batches
    const data::LoaderState state = saving->state();
    CHECK(state == data::LoaderState{7, 0, 3, 8});
    for (size_t after = 1; after <= 4; ++after) {
      std::vector<Batches> rest, next;
      for (size_t rank = 0; rank < after; ++rank) {
        auto loader = loader_of<RandomSampler>(53, DataLoaderOptions(8).seed(99).distributed(after, rank).workers(1));
        loader->load_state(state);
        rest.push_back(rest_of(*loader));
        next.push_back(rest_of(*loader));
      }
      CHECK(joined(rest) == Batches(first.begin() + 3, first.end()));
      CHECK(joined(next) == second);
    }
  }
}

TEST_CASE("ranks: a loader in the middle of an epoch gets another part", "[data][loader][distributed]") {
  auto one = loader_of<RandomSampler>(53, DataLoaderOptions(8).seed(7));
  const Batches first = rest_of(*one), second = rest_of(*one);
  std::vector<Batches> rest, next;
  for (size_t rank = 0; rank < 2; ++rank) {
    auto loader = loader_of<RandomSampler>(53, DataLoaderOptions(8).seed(7).distributed(3, rank + 1).workers(rank));
    auto walk = loader->begin();
    ++walk;  // the second of 7 batches
    loader->distribute(2, rank);
    CHECK(++walk == loader->end());  // distribute() ended the iteration
    rest.push_back(rest_of(*loader));
    next.push_back(rest_of(*loader));
    CHECK_THROWS_WITH(loader->distribute(2, 2), contains("rank of a loader") && contains("got 2"));
    CHECK(loader->options().num_replicas() == 2);
  }
  CHECK(joined(rest) == Batches(first.begin() + 2, first.end()));
  CHECK(joined(next) == second);
}

TEST_CASE("next_batch continues with the next epoch, and from a loaded state", "[data][loader][resume]") {
  auto walked = loader_of<RandomSampler>(21, DataLoaderOptions(8).seed(7));
  Batches expected = rest_of(*walked);
  for (const auto& batch : rest_of(*walked)) expected.push_back(batch);
  auto stepped = loader_of<RandomSampler>(21, DataLoaderOptions(8).seed(7).workers(1));
  auto resumed = loader_of<RandomSampler>(21, DataLoaderOptions(8).seed(1));
  for (const std::vector<int64_t>& batch : expected) {
    resumed->load_state(stepped->state());  // also after the last batch of an epoch
    for (const Tensor& numbers : {stepped->next_batch().target, resumed->next_batch().target})
      CHECK(std::vector<int64_t>(numbers.data_ptr<int64_t>(), numbers.data_ptr<int64_t>() + numbers.numel()) == batch);
    CHECK(resumed->state() == stepped->state());
  }
  auto empty = loader_of<RandomSampler>(7, DataLoaderOptions(8).drop_last(true));
  CHECK_THROWS_WITH(empty->next_batch(), contains("no batches"));
}

TEST_CASE("ranks: batches of a BatchSampler are divided, too", "[data][loader][distributed]") {
  std::vector<Batches> parts;
  for (size_t rank = 0; rank < 3; ++rank)
    parts.push_back(
        rest_of(*make_data_loader(RankNumbers(11).map(Stack<>()), BatchSampler(SequentialSampler(11), 5, true),
                                  DataLoaderOptions().distributed(3, rank))));
  CHECK(joined(parts) == Batches{{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}});
}

TEST_CASE("a batch without samples has the shape of the others", "[data][loader][distributed]") {
  const SyntheticDigits digits(20);
  const auto check = [](auto dataset, const Shape& shape, const Shape& target) {
    const Example<> batch = dataset.get_batch({});
    CHECK(batch.data.sizes() == shape);
    CHECK(batch.data.dtype() == kFloat);
    CHECK(batch.target.sizes() == target);
    CHECK((batch.data + 1).sum().template item<float>() == 0);
  };
  const Shape image{0, 1, 28, 28}, none{0};
  check(digits.map(Stack<>()), image, none);
  check(digits.map(transforms::Normalize<>(0.13, 0.31)).map(Stack<>()), image, none);
  check(digits.map(transforms::RandomCrop(24)).map(Stack<>()), {0, 1, 24, 24}, none);
  check(AnyDataset<>(digits).map(Stack<>()), image, none);
  check(AnyDataset<>(digits.map(transforms::RandomCrop(24))).map(Stack<>()), {0, 1, 24, 24}, none);
  check(digits.map(Stack<>()).map(transforms::MixUp(10)), image, {0, 10});
  check(digits.take(3).cache().map(Stack<>()), image, none);
  check(data::datasets::ConcatDataset(digits, digits).map(Stack<>()), image, none);
  CHECK(digits.map(transforms::RandomCrop(24)).get_batch({}).empty());
  const Tensor x = rand({4, 3});
  CHECK(data::datasets::TensorDataset(x).map(Stack<data::TensorExample>()).get_batch({}).data.sizes() == Shape{0, 3});

  auto loader =
      make_data_loader<SequentialSampler>(RankNumbers(5).map(Stack<>()), DataLoaderOptions(4).distributed(2, 1));
  std::vector<int64_t> sizes;
  for (auto& batch : data::on_device(*loader, "cpu")) sizes.push_back(batch.data.size(0));
  CHECK(sizes == std::vector<int64_t>{2, 0});
}
