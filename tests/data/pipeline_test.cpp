#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include <gradus/autograd/autograd.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using namespace gradus::data::datasets;
using data::DataLoaderOptions;
using data::Example;
using data::make_data_loader;
using data::samplers::SequentialSampler;
using data::transforms::Stack;

namespace {

// Sample i is the number i. `asked` counts the requests to all copies of the dataset.
struct Counted : Dataset<Counted> {
  explicit Counted(size_t count) : count(count) {}
  Example<> get(size_t index) override {
    GRADUS_CHECK(index < count, IndexError, "sample ", index, " of a dataset of ", count);
    ++*asked;
    return {tensor(static_cast<float>(index)), tensor(static_cast<int64_t>(index))};
  }
  std::optional<size_t> size() const override { return count; }
  size_t count;
  std::shared_ptr<std::atomic<int>> asked = std::make_shared<std::atomic<int>>(0);
};

template <class D>
std::vector<float> values_of(D& dataset, size_t count = SIZE_MAX) {
  std::vector<float> values;
  for (size_t i = 0; i < std::min(count, *dataset.size()); ++i)
    values.push_back(dataset.get(i).data.template item<float>());
  return values;
}

Tensor add_noise(Tensor x) {
  const RandomState draw = data::sample_generator().next();
  return x + random_unit_float(draw.seed, draw.offset, 0);
}

bool even(const Example<>& sample) { return sample.target.item<int64_t>() % 2 == 0; }

}  // namespace

TEST_CASE("pipelines run when a sample is requested", "[data][pipeline]") {
  Counted numbers(10);
  auto pipeline = numbers.map([](Tensor x) { return x * 10; })
                      .filter(even)
                      .shuffle(3)
                      .cache()
                      .map([](Example<> sample) {
                        sample.data = sample.data + 1;
                        return sample;
                      })
                      .take(4);
  CHECK(pipeline.explain() ==
        "Counted, 10 samples\n"
        "map function\n"
        "filter, 0 of 0 accepted so far\n"
        "shuffle with seed 3\n"
        "cache in memory, 0 kept so far\n"
        "map function\n"
        "take 4\n");
  CHECK(*numbers.asked == 0);
  auto first_even = numbers.skip(3).filter(even);
  CHECK(first_even.get(0).data.item<float>() == 4);
  CHECK(*numbers.asked == 3);  // 3, 4, and 4 again
  CHECK_THAT(first_even.explain(), contains("filter, 1 of 2 accepted so far"));
  CHECK(pipeline.size() == 4u);
  const std::vector<float> values = values_of(pipeline);
  for (float value : values) CHECK(static_cast<int>(value) % 20 == 1);
  CHECK(std::set<float>(values.begin(), values.end()).size() == 4);
  *numbers.asked = 0;
  CHECK(values_of(pipeline) == values);
  CHECK(*numbers.asked == 0);  // from the cache
  CHECK_THAT(pipeline.explain(), contains("filter, 5 of 10") && contains("4 kept so far"));
}

TEST_CASE("map takes functions of the sample, its data, or the stacked batch", "[data][pipeline]") {
  auto doubled = Counted(5).map([](const Tensor& x) { return x * 2; }).map(Stack<>()).map([](Example<> batch) {
    batch.target = batch.target + 1;
    return batch;
  });
  const Example<> batch = doubled.get_batch({1, 4});
  CHECK(batch.data.equal(tensor({2.f, 8.f})));
  CHECK(batch.target.equal(tensor({2, 5})));
  auto flags = Counted(5).map([](const Example<>& sample) { return sample.target.item<int64_t>() > 2; });
  CHECK(flags.get_batch({2, 3}) == std::vector<bool>{false, true});
  auto total = Counted(5).map(
      data::transforms::Collate<float, std::vector<Example<>>>([](const std::vector<Example<>>& samples) {
        float sum = 0;
        for (const Example<>& sample : samples) sum += sample.data.item<float>();
        return sum;
      }));
  CHECK(total.get_batch({1, 2, 4}) == 7);
  auto lambda = Counted(3).map(data::transforms::BatchLambda<std::vector<Example<>>, size_t>(
      [](const std::vector<Example<>>& samples) { return samples.size(); }));
  CHECK(lambda.get_batch({0, 0, 0, 0}) == 4);
}

TEST_CASE("filter keeps accepted samples in order", "[data][pipeline]") {
  Counted numbers(9);
  auto evens = numbers.filter(even);
  CHECK(values_of(evens) == std::vector<float>{0, 2, 4, 6, 8});
  CHECK_THROWS_WITH(evens.get(5), contains("sample 5 of the 5 that the filter accepts"));
  CHECK_THROWS_AS(evens.get(SIZE_MAX), IndexError);
  auto none = numbers.filter([](const Example<>&) { return false; });
  CHECK(none.size() == 0u);
  auto thirds = evens.filter([](const Example<>& sample) { return sample.target.item<int64_t>() % 3 == 0; });
  CHECK(values_of(thirds) == std::vector<float>{0, 6});

  // The copies in several workers share the accepted indices.
  *numbers.asked = 0;
  auto loader =
      make_data_loader<SequentialSampler>(numbers.filter(even).map(Stack<>()), DataLoaderOptions(1).workers(3));
  CHECK(loader->size() == 5u);
  float expected = 0;
  for (auto& batch : *loader) {
    CHECK(batch.data.item<float>() == expected);
    expected += 2;
  }
  CHECK(*numbers.asked == 9 + 5);
}

TEST_CASE("a filter's selection of random samples does not change", "[data][pipeline]") {
  auto lucky = Counted(200).map(add_noise).filter([](const Example<>& sample) {
    return sample.data.item<float>() - static_cast<float>(sample.target.item<int64_t>()) > 0.5f;
  });
  for (int i = 0; i < 2; ++i) {
    auto copy = Counted(200).map(add_noise).filter([](const Example<>& sample) {
      return sample.data.item<float>() - static_cast<float>(sample.target.item<int64_t>()) > 0.5f;
    });
    manual_seed(static_cast<uint64_t>(i));
    CHECK(copy.size() == lucky.size());
  }
  CHECK(*lucky.size() > 60);
  CHECK(*lucky.size() < 140);
}

TEST_CASE("shuffle is a fixed order of all samples", "[data][pipeline]") {
  Counted numbers(100);
  auto a = numbers.shuffle(1), b = numbers.shuffle(1), c = numbers.shuffle(2);
  const std::vector<float> order = values_of(a);
  CHECK(values_of(b) == order);
  CHECK(values_of(c) != order);
  CHECK(std::set<float>(order.begin(), order.end()).size() == 100);
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  CHECK_THROWS_AS(a.get(100), IndexError);
  auto nothing = Counted(0).shuffle();
  CHECK(values_of(nothing).empty());
}

TEST_CASE("pipelines of datasets of unknown size", "[data][pipeline]") {
  struct Endless : Dataset<Endless> {
    Example<> get(size_t index) override { return {tensor(static_cast<float>(index)), tensor(int64_t{0})}; }
    std::optional<size_t> size() const override { return std::nullopt; }
  };
  CHECK(Endless().explain() == "Endless, of unknown size\n");
  auto tens =
      Endless().filter([](const Example<>& sample) { return static_cast<int>(sample.data.item<float>()) % 10 == 0; });
  CHECK(tens.get(3).data.item<float>() == 30);
  CHECK_THAT(tens.explain(), contains("filter, 4 of 31 accepted so far"));
  for (const auto& size :
       {tens.size(), Endless().take(5).size(), Endless().skip(5).size(), Endless().map(add_noise).size(),
        Endless().cache().size(), Endless().shuffle().size(), AnyDataset<>(Endless()).size()})
    CHECK_FALSE(size.has_value());
  CHECK(Endless().skip(3).take(5).get(4).data.item<float>() == 7);
  CHECK_THROWS_WITH(Endless().take(5).get(5), contains("sample 5 of the 5 that take() has left"));
  CHECK_THROWS_WITH(Endless().shuffle().get(0), contains("shuffle() needs a dataset whose size is known"));
  CHECK_THROWS_WITH(ConcatDataset(Counted(1), Endless()), contains("needs datasets whose size is known"));
  CHECK_THROWS_WITH(random_split(Endless(), {1, 2}), contains("needs a dataset whose size is known"));
  // The ends of known ones.
  auto shuffled = Counted(3).shuffle(1);
  CHECK_THROWS_WITH(shuffled.get(3), contains("sample 3 of a dataset of 3"));
  auto evens = Counted(5).filter(even);
  CHECK(evens.size() == 3u);
  CHECK_THROWS_WITH(evens.get(3), contains("sample 3 of the 3 that the filter accepts"));
  CHECK_THROWS_WITH(Counted(5).filter(even).get(SIZE_MAX), contains("of the 0 that the filter accepts"));
}

TEST_CASE("take and skip", "[data][pipeline]") {
  Counted numbers(6);
  auto middle = numbers.skip(2).take(3);
  CHECK(values_of(middle) == std::vector<float>{2, 3, 4});
  CHECK_THROWS_AS(middle.get(3), IndexError);
  CHECK(numbers.take(100).size() == 6u);
  CHECK(numbers.skip(100).size() == 0u);
  CHECK_THROWS_AS(numbers.skip(SIZE_MAX).get(1), IndexError);
  CHECK_THROWS_WITH(numbers.take(100).get(6), contains("sample 6"));
}

TEST_CASE("a cache reads once and returns copies", "[data][pipeline]") {
  Counted numbers(20);
  auto cached = numbers.map(add_noise).cache(7);
  const float once = cached.get(3).data.item<float>();
  cached.get(3).data.fill_(0.0);  // changes only the consumer's copy
  CHECK(cached.get(3).data.item<float>() == once);
  CHECK(*numbers.asked == 1);
  // The random numbers of transforms do not depend on when a sample is requested for the first time.
  auto loader = make_data_loader<SequentialSampler>(numbers.map(add_noise).cache(7).map(Stack<>()),
                                                    DataLoaderOptions(4).seed(5).workers(2));
  loader->set_epoch(3);
  std::vector<float> first;
  for (auto& batch : *loader)
    for (int64_t i = 0; i < batch.data.numel(); ++i) first.push_back(batch.data[i].item<float>());
  CHECK(first[3] == once);
  std::vector<float> second;
  for (auto& batch : *loader)
    for (int64_t i = 0; i < batch.data.numel(); ++i) second.push_back(batch.data[i].item<float>());
  CHECK(second == first);
  CHECK(*numbers.asked == 1 + 20);
}

TEST_CASE("workers prepare the next batches while the consumer has one", "[data][pipeline]") {
  for (const size_t ahead : {1, 3}) {
    Counted numbers(20);
    auto loader =
        make_data_loader<SequentialSampler>(numbers.map(Stack<>()), DataLoaderOptions(2).workers(1).max_jobs(ahead));
    int taken = 1;
    for (auto walk = loader->begin(); taken <= 5; ++walk, ++taken) {
      const int wanted = 2 * (taken + static_cast<int>(ahead));
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (*numbers.asked < wanted && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      CHECK(*numbers.asked == wanted);
    }
  }
}

TEST_CASE("random transforms of a pipeline draw from separate streams", "[data][pipeline]") {
  // Each of the random transforms draws different numbers, also inside an AnyDataset.
  AnyDataset<> numbers = Counted(4).map(add_noise);
  auto twice = ConcatDataset(numbers.take(2), numbers.skip(2)).map(add_noise).map(Stack<>());
  auto once = numbers.map(Stack<>());
  auto draw = [](auto dataset) {
    auto loader = make_data_loader<SequentialSampler>(std::move(dataset), DataLoaderOptions(4).seed(9));
    return loader->begin()->data;
  };
  const Tensor one = draw(once), two = draw(twice), plain = tensor({0.f, 1.f, 2.f, 3.f});
  CHECK_FALSE((two - one).allclose(one - plain, 1e-3, 1e-3));
}

TEST_CASE("Subset and random_split", "[data][pipeline]") {
  Counted numbers(10);
  Subset subset(numbers, {7, 0, 7});
  CHECK(values_of(subset) == std::vector<float>{7, 0, 7});
  CHECK_THROWS_WITH(subset.get(3), contains("sample 3 of a subset of 3"));
  CHECK_THROWS_WITH(Subset(numbers, {99}).get(0), contains("sample 99"));

  for (auto& parts : {random_split(numbers, {7, 0, 3}, 1), random_split(numbers, std::vector<size_t>{7, 0, 3}, 1),
                      random_split(numbers, {0.7, 0.0, 0.3}, 1)}) {
    REQUIRE(parts.size() == 3);
    CHECK(parts[0].size() == 7u);
    CHECK(parts[1].size() == 0u);
    std::vector<float> all;
    for (auto part : parts)
      for (float value : values_of(part)) all.push_back(value);
    std::sort(all.begin(), all.end());
    CHECK(all == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
  const auto thirds = random_split(numbers, {1.0 / 3, 1.0 / 3, 1.0 / 3}, 1);
  CHECK(thirds[0].size() == 4u);
  CHECK(thirds[2].size() == 3u);
  const auto sizes_of = [](size_t total, const std::vector<double>& fractions) {
    std::vector<size_t> sizes;
    for (const auto& part : random_split(Counted(total), fractions, 1)) sizes.push_back(*part.size());
    return sizes;
  };
  CHECK(sizes_of(11, {1.0 / 3, 1.0 / 3, 1.0 / 3}) == std::vector<size_t>{4, 4, 3});
  CHECK(sizes_of(11, {0.25, 0.25, 0.25, 0.25}) == std::vector<size_t>{3, 3, 3, 2});
  CHECK(sizes_of(3, {0.05, 0.9, 0.05}) == std::vector<size_t>{1, 2, 0});
  manual_seed(1);
  auto by_default = random_split(numbers, {5, 5}), seeded = random_split(numbers, {5, 5}, 1),
       other = random_split(numbers, {5, 5}, 2);
  CHECK(values_of(by_default[0]) == values_of(seeded[0]));
  CHECK(values_of(other[0]) != values_of(seeded[0]));
  CHECK_THROWS_WITH(random_split(numbers, {5, 6}), contains("sum up to 11") && contains("10"));
  CHECK_THROWS_AS(random_split(numbers, {0.5, 0.2}), ValueError);
  CHECK_THROWS_WITH(random_split(numbers, {2.5, 7.5}), contains("random_split needs sizes of parts of 10 samples"));
  CHECK_THROWS_WITH(random_split(numbers, {11, -1}), contains("got 11"));
  CHECK_THROWS_AS(random_split(numbers, {-1, 11}), ValueError);
  CHECK_THROWS_AS(random_split(numbers, {1e300, 1.0}), ValueError);
}

TEST_CASE("ConcatDataset calls each part once", "[data][pipeline]") {
  Counted a(3), b(2);
  auto both = ConcatDataset(a, Counted(0), b.map([](Tensor x) { return x + 100; }));
  CHECK(both.size() == 5u);
  const auto batch = both.get_batch({4, 0, 3, 2});
  CHECK(batch[0].data.item<float>() == 101);
  CHECK(batch[1].data.item<float>() == 0);
  CHECK(batch[2].data.item<float>() == 100);
  CHECK(batch[3].data.item<float>() == 2);
  CHECK_THROWS_WITH(both.get_batch({5}), contains("sample 5 of a dataset of 5"));
  CHECK(both.explain() ==
        "concatenation of 3\n- Counted, 3 samples\n- Counted, 0 samples\n- Counted, 2 samples\n  map function\n");
  auto same = ConcatDataset(std::vector<Counted>{a, b});
  CHECK(values_of(same) == std::vector<float>{0, 1, 2, 0, 1});
  CHECK_THROWS_AS(ConcatDataset(std::vector<Counted>{}), ValueError);
}

TEST_CASE("AnyDataset hides types without losing speed", "[data][pipeline]") {
  AnyDataset<> dataset = SyntheticDigits(20);
  auto fast = dataset.map(data::transforms::Normalize<>(0.1, 0.3)).map(Stack<>());
  auto plain = SyntheticDigits(20).map(data::transforms::Normalize<>(0.1, 0.3)).map(Stack<>());
  CHECK(fast.get_batch({3, 19}).data.equal(plain.get_batch({3, 19}).data));
  dataset = dataset.take(5).map([](Tensor x) { return x * 0; });
  AnyDataset<> copy = dataset;
  CHECK(copy.size() == 5u);
  CHECK(copy.map(Stack<>()).get_batch({0, 4}).data.sizes() == Shape{2, 1, 28, 28});
  CHECK_THAT(copy.explain(), contains("synthetic digits, 20 images of 1x28x28\ntake 5\nmap function\n"));
  AnyDataset batches = plain;
  CHECK(batches.get_batch({1}).data.equal(plain.get_batch({1}).data));
}

TEST_CASE("selections of images are gathered in one operation, with identical results", "[data][pipeline]") {
  auto digits = SyntheticDigits(30);
  auto fast = digits.shuffle(4).skip(5).map(Stack<>());
  auto slow = digits.shuffle(4).skip(5).map([](Example<> sample) { return sample; }).map(Stack<>());
  CHECK(fast.get_batch({0, 24, 3}).data.equal(slow.get_batch({0, 24, 3}).data));
  CHECK(fast.get_batch({0, 24, 3}).target.equal(slow.get_batch({0, 24, 3}).target));
}

TEST_CASE("TensorDataset", "[data][pipeline]") {
  const Tensor x = arange(12).reshape({4, 3}), y = tensor({5, 6, 7, 8});
  TensorDataset pairs(x, y);
  CHECK(pairs.size() == 4u);
  CHECK(pairs.get(2).data.equal(x[2]));
  CHECK(pairs.get(2).target.item<int64_t>() == 7);
  auto loader = make_data_loader<SequentialSampler>(pairs.map(Stack<>()), DataLoaderOptions(3).workers(1));
  CHECK(loader->begin()->data.equal(x.slice(0, 0, 3)));
  TensorDataset alone(x);
  const Tensor row = alone.get(1);  // an example without a target converts to its data
  CHECK(row.equal(x[1]));
  auto stacked = alone.map(Stack<data::TensorExample>());
  CHECK(stacked.get_batch({3, 0}).data.equal(stack({x[3], x[0]})));
  CHECK(TensorDataset(std::vector<Tensor>{x[0], x[1]}).get(1).data.equal(x[1]));
  CHECK_THROWS_WITH(TensorDataset(x, tensor({1, 2})), contains("4 inputs but 2 targets"));
  CHECK_THROWS_AS(TensorDataset(tensor(1.f)), ShapeError);
  CHECK_THROWS_AS(pairs.get(4), IndexError);
}
