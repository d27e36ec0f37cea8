#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include <gradus/autograd/autograd.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using data::DataLoaderOptions;
using data::Example;
using data::make_data_loader;
using data::datasets::SyntheticDigits;
using data::samplers::RandomSampler;
using data::samplers::SequentialSampler;
using data::transforms::Normalize;
using data::transforms::Stack;

namespace {

// Sample i is the number i. Requesting sample `bad` throws an exception.
struct Numbers : data::datasets::Dataset<Numbers> {
  explicit Numbers(size_t count, size_t bad = SIZE_MAX, int delay_ms = 0)
      : count(count), bad(bad), delay_ms(delay_ms) {}
  Example<> get(size_t index) override {
    if (delay_ms) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    GRADUS_CHECK(index != bad, IoError, "the disk is full of sand");
    return {tensor(static_cast<float>(index)), tensor(static_cast<int64_t>(index))};
  }
  std::optional<size_t> size() const override { return count; }
  size_t count, bad;
  int delay_ms;
};

// Returns all batches of one epoch of a loader.
template <class Loader>
std::vector<std::vector<float>> epoch_of(Loader& loader) {
  std::vector<std::vector<float>> batches;
  for (auto& batch : loader) {
    const Tensor flat = batch.data.reshape({-1});
    batches.emplace_back(flat.template data_ptr<float>(), flat.template data_ptr<float>() + flat.numel());
  }
  return batches;
}

}  // namespace

TEST_CASE("samplers visit every sample once", "[data][sampler]") {
  SequentialSampler in_order(7);
  in_order.reset(0, 0);
  CHECK(in_order.next(4) == std::vector<size_t>{0, 1, 2, 3});
  CHECK(in_order.next(4) == std::vector<size_t>{4, 5, 6});
  CHECK_FALSE(in_order.next(4).has_value());

  auto order = [](uint64_t seed, uint64_t epoch) {
    RandomSampler sampler(1000);
    sampler.reset(seed, epoch);
    return *sampler.next(1000);
  };
  std::vector<size_t> sorted = order(1, 0);
  CHECK_FALSE(std::is_sorted(sorted.begin(), sorted.end()));
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) CHECK(sorted[i] == i);
  CHECK(order(1, 0) == order(1, 0));
  CHECK(order(1, 0) != order(1, 1));
  CHECK(order(1, 0) != order(2, 0));

  // All samples are equally likely to come first. For chi-squared with 9 degrees of freedom, 99.9 % of the values are
  // below 27.9.
  std::vector<int> first(10);
  for (uint64_t epoch = 0; epoch < 5000; ++epoch) {
    RandomSampler sampler(10);
    sampler.reset(5, epoch);
    ++first[(*sampler.next(1))[0]];
  }
  double chi_squared = 0;
  for (int count : first) chi_squared += (count - 500.0) * (count - 500.0) / 500.0;
  CHECK(chi_squared < 27.9);
}

TEST_CASE("batches do not depend on the number of workers", "[data][loader]") {
  // Adds random noise, which depends on (seed, epoch, sample).
  auto noise = [](Example<> sample) {
    Generator& generator = data::sample_generator();
    const RandomState first = generator.next(), second = generator.next();
    sample.data =
        sample.data + random_unit_float(first.seed, first.offset, 0) + random_unit_float(second.seed, second.offset, 0);
    return sample;
  };
  auto digits = SyntheticDigits(101)
                    .map(Normalize<>(0.13, 0.31))
                    .map(data::transforms::Lambda<Example<>>(noise))
                    .map(data::transforms::Lambda<Example<>>(noise))
                    .map(Stack<>());
  auto epochs = [&](size_t workers, bool random) {
    const auto options = DataLoaderOptions().batch_size(8).workers(workers).seed(11);
    std::vector<std::vector<std::vector<float>>> all;
    auto two = [&](auto loader) {
      all.push_back(epoch_of(*loader));
      all.push_back(epoch_of(*loader));
    };
    if (random) two(make_data_loader<RandomSampler>(digits, options));
    else two(make_data_loader<SequentialSampler>(digits, options));
    return all;
  };
  for (bool random : {true, false}) {
    const auto alone = epochs(0, random);
    CHECK(alone[0].size() == 13);
    CHECK(alone[0].back().size() == 5 * 784);
    CHECK(alone[0] != alone[1]);  // the second epoch has different noise
    CHECK(epochs(1, random) == alone);
    CHECK(epochs(4, random) == alone);
  }
}

TEST_CASE("a batch gathered in one operation is identical to a stacked batch", "[data][loader]") {
  auto fast = SyntheticDigits(40).map(Normalize<>(0.1307, 0.3081)).map(Stack<>());
  auto slow = SyntheticDigits(40)
                  .map(Normalize<>(0.1307, 0.3081))
                  .map(data::transforms::Lambda<Example<>>([](Example<> sample) { return sample; }))
                  .map(Stack<>());
  const std::vector<size_t> indices = {3, 39, 0, 3};
  const Example<> a = fast.get_batch(indices), b = slow.get_batch(indices);
  CHECK(a.data.sizes() == Shape{4, 1, 28, 28});
  CHECK(a.target.sizes() == Shape{4});
  CHECK(a.data.equal(b.data));
  CHECK(a.target.equal(b.target));
  CHECK(a.data.data_ptr<float>()[0] == (SyntheticDigits(40).get(3).data.data_ptr<float>()[0] - 0.1307f) / 0.3081f);
  CHECK_THROWS_AS(fast.get_batch({40}), IndexError);
}

TEST_CASE("drop_last, sizes and options", "[data][loader]") {
  auto numbers = Numbers(10).map(Stack<>());
  CHECK(epoch_of(*make_data_loader<SequentialSampler>(numbers, DataLoaderOptions(4))).size() == 3);
  CHECK(
      epoch_of(*make_data_loader<SequentialSampler>(numbers, DataLoaderOptions(4).drop_last(true).workers(2))).size() ==
      2);
  CHECK(epoch_of(*make_data_loader<SequentialSampler>(Numbers(0).map(Stack<>()), 4)).empty());
  CHECK(epoch_of(*make_data_loader(numbers)).size() == 10);
  CHECK_THROWS_AS(make_data_loader(numbers, DataLoaderOptions(0)), ValueError);
  CHECK_THROWS_AS(make_data_loader(numbers, DataLoaderOptions(1).workers(5000)), ValueError);
  CHECK_THROWS_WITH(make_data_loader(numbers, DataLoaderOptions(1).workers(1025)), contains("1024 workers, got 1025"));
  CHECK_NOTHROW(make_data_loader(numbers, DataLoaderOptions(1).workers(1024)));  // begin() would start them
  CHECK_THROWS_WITH(make_data_loader(numbers, DataLoaderOptions(1).workers(1).max_jobs(0)), contains("max_jobs"));
  CHECK_NOTHROW(make_data_loader(numbers, DataLoaderOptions(1).max_jobs(0)));
  CHECK(DataLoaderOptions().workers(3).max_jobs() == 6);
  CHECK(DataLoaderOptions().workers(3).max_jobs(2).max_jobs() == 2);
  for (size_t size = 0; size < 7; ++size)
    for (size_t batch = 1; batch < 5; ++batch)
      for (const bool drop_last : {false, true}) {
        CAPTURE(size, batch, drop_last);
        auto loader = make_data_loader<SequentialSampler>(Numbers(size).map(Stack<>()),
                                                          DataLoaderOptions(batch).drop_last(drop_last));
        const auto batches = epoch_of(*loader);
        CHECK(loader->size() == batches.size());
        CHECK(batches.size() == (drop_last ? size / batch : (size + batch - 1) / batch));
        CHECK(loader->epoch() == 1);
      }
  CHECK_THROWS_AS(Normalize<>(0, 0), ValueError);
  CHECK_THROWS_AS(Normalize<>(std::vector<double>{1, 2}, std::vector<double>{1}), ValueError);
}

TEST_CASE("the seed is that of manual_seed unless given, and epochs can be resumed", "[data][loader]") {
  auto numbers = Numbers(50).map(Stack<>());
  manual_seed(77);
  auto loader = make_data_loader(numbers, 10);
  const auto first = epoch_of(*loader), second = epoch_of(*loader);
  manual_seed(77);
  auto resumed = make_data_loader(numbers, 10);
  resumed->set_epoch(1);
  CHECK(epoch_of(*resumed) == second);
  CHECK(first != second);
  CHECK(epoch_of(*make_data_loader(numbers, DataLoaderOptions(10).seed(77))) == first);
}

TEST_CASE("a loader's order is the sampler's for its seed and epoch", "[data][loader]") {
  for (const uint64_t seed : {0, 1, 5})
    for (const uint64_t epoch : {0, 1, 4}) {
      auto loader = make_data_loader<RandomSampler>(Numbers(9).map(Stack<>()), DataLoaderOptions(4).seed(seed));
      loader->set_epoch(epoch);
      std::vector<size_t> order;
      for (const auto& batch : epoch_of(*loader))
        for (const float number : batch) order.push_back(static_cast<size_t>(number));
      CHECK(order == RandomSampler::order_of(9, seed, epoch));
    }
}

TEST_CASE("an exception reaches the consumer with the sample's number", "[data][loader]") {
  for (size_t workers : {0, 1, 4}) {
    auto loader =
        make_data_loader<SequentialSampler>(Numbers(100, 37).map(Stack<>()), DataLoaderOptions(10).workers(workers));
    size_t batches = 0;
    try {
      for (auto& batch : *loader) batches += batch.data.defined();
      FAIL("no exception");
    } catch (const IoError& error) { CHECK(std::string(error.what()) == "sample 37: the disk is full of sand"); }
    CHECK(batches == 3);
    // The loader can be used again after the error.
    size_t seen = 0;
    for (auto& batch : *loader) {
      seen += batch.data.defined();
      if (seen == 2) break;
    }
    CHECK(seen == 2);
  }
  auto transformed = Numbers(10).map(data::transforms::Lambda<Example<>>([](Example<> sample) {
    if (sample.target.item<int64_t>() == 5) throw std::runtime_error("not a number that one likes");
    return sample;
  }));
  CHECK_THROWS_WITH(transformed.get_batch({4, 5}), contains("sample 5: not a number"));
}

TEST_CASE("an epoch can be abandoned in the middle", "[data][loader]") {
  auto loader =
      make_data_loader<SequentialSampler>(Numbers(1000, SIZE_MAX, 1).map(Stack<>()), DataLoaderOptions(5).workers(3));
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 3; ++round) {
    float expected = 0;
    for (auto& batch : *loader) {
      CHECK(batch.data.data_ptr<float>()[0] == expected);
      expected += 5;
      if (expected == 20) break;
    }
  }
  loader.reset();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));  // it does not make all batches
}

TEST_CASE("the wait for data is measured", "[data][loader]") {
  auto loader = make_data_loader<SequentialSampler>(Numbers(20, SIZE_MAX, 2).map(Stack<>()), DataLoaderOptions(10));
  epoch_of(*loader);
  CHECK(loader->wait_seconds() >= 0.04);
  auto idle = make_data_loader<SequentialSampler>(Numbers(20).map(Stack<>()), DataLoaderOptions(10).workers(1));
  for (auto& batch : *idle) {
    CHECK(batch.data.defined());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(idle->wait_seconds() < 0.03);
}

TEST_CASE("parallel_for is serial in workers", "[data][loader]") {
  struct Probe : data::datasets::Dataset<Probe> {
    Example<> get(size_t) override {
      const auto self = std::this_thread::get_id();
      std::atomic<int> elsewhere{0};
      parallel_for(64, 1, [&](int64_t, int64_t) { elsewhere += std::this_thread::get_id() != self; });
      return {tensor(static_cast<float>(elsewhere.load())), tensor(int64_t{0})};
    }
    std::optional<size_t> size() const override { return 8; }
  };
  for (const auto& batch : epoch_of(*make_data_loader(Probe().map(Stack<>()), DataLoaderOptions(1).workers(2))))
    CHECK(batch[0] == 0);
}

TEST_CASE("a position saved in the middle of an epoch gives exactly the rest", "[data][loader][resume]") {
  auto noise = data::transforms::Lambda<Example<>>([](Example<> sample) {
    const RandomState draw = data::sample_generator().next();
    sample.data = sample.data + random_unit_float(draw.seed, draw.offset, 0);
    return sample;
  });
  auto numbers = Numbers(53).map(noise).map(Stack<>());
  auto make = [&](size_t workers, uint64_t seed, bool drop_last = false) {
    return make_data_loader(numbers, DataLoaderOptions(8).workers(workers).seed(seed).drop_last(drop_last));
  };
  for (bool drop_last : {false, true}) {
    const size_t batches = drop_last ? 6 : 7;
    auto whole = make(0, 3, drop_last);
    CHECK(whole->size() == batches);
    std::vector<std::vector<std::vector<float>>> expected;
    for (int epoch = 0; epoch < 3; ++epoch) expected.push_back(epoch_of(*whole));
    CHECK(whole->state() == data::LoaderState{3, 3, 0, 8});
    for (size_t stop = 0; stop <= batches; ++stop) {
      auto first = make(stop % 3, 3, drop_last);
      epoch_of(*first);  // epoch 0
      size_t seen = 0;
      data::LoaderState state = first->state();
      if (stop > 0)
        for (auto& batch : *first) {
          CHECK(batch.data.size(0) > 0);
          state = first->state();
          if (++seen == stop) break;
        }
      CHECK(state == data::LoaderState{3, 1, stop, 8});
      auto second = make((stop + 1) % 3, 99, drop_last);  // the loaded state replaces the seed 99
      second->load_state(state);
      const auto rest = epoch_of(*second);
      CHECK(rest == std::vector<std::vector<float>>(expected[1].begin() + static_cast<std::ptrdiff_t>(stop),
                                                    expected[1].end()));
      CHECK(epoch_of(*second) == expected[2]);
    }
  }
  CHECK_THROWS_WITH(make(0, 0)->load_state({0, 0, 3, 16}), contains("batches of 16") && contains("batch_size of 8"));
  auto saved = make(0, 0), loaded = make(0, 3);
  saved->load_state({UINT64_MAX, 7, 2, 8});
  loaded->load_state_dict(saved->state_dict());
  CHECK(loaded->state() == data::LoaderState{UINT64_MAX, 7, 2, 8});
  auto dict = saved->state_dict();
  dict["batches"] = tensor(int64_t{-2});
  CHECK_THROWS_WITH(loaded->load_state_dict(dict), contains("'batches' of -2"));
  dict.erase("batches");
  CHECK_THROWS_WITH(loaded->load_state_dict(dict), contains("int64 'batches'"));
  for (const Tensor& wrong : {tensor(2.f), tensor({1, 2}), tensor(2, kInt)}) {
    dict = saved->state_dict();
    dict["epoch"] = wrong;
    CHECK_THROWS_WITH(loaded->load_state_dict(dict), contains("int64 'epoch'"));
  }
  for (const char* name : {"epoch", "batches", "batch_size"}) {
    dict = saved->state_dict();
    dict[name] = tensor(int64_t{-1});
    CHECK_THROWS_WITH(loaded->load_state_dict(dict), contains("cannot have a '" + std::string(name) + "' of -1"));
  }
  dict = saved->state_dict();
  dict.insert("more", tensor(int64_t{1}));
  CHECK_THROWS_WITH(loaded->load_state_dict(dict), contains("a loader's state has 4 entries, got 5"));
  CHECK(loaded->state() == data::LoaderState{UINT64_MAX, 7, 2, 8});
  auto beyond = make(0, 3);
  beyond->load_state({3, 0, UINT64_MAX, 8});
  CHECK(epoch_of(*beyond).empty());
  CHECK(beyond->epoch() == 1);
}

TEST_CASE("an abandoned epoch counts as finished", "[data][loader][resume]") {
  auto loader = make_data_loader(Numbers(20).map(Stack<>()), DataLoaderOptions(5).seed(1).workers(1));
  auto reference = make_data_loader(Numbers(20).map(Stack<>()), DataLoaderOptions(5).seed(1));
  epoch_of(*reference);
  const auto second = epoch_of(*reference);
  for (auto& batch : *loader) {
    CHECK(batch.data.size(0) == 5);
    break;
  }
  CHECK(loader->epoch() == 0);
  CHECK(epoch_of(*loader) == second);
  // join() ends an iteration. Incrementing the iterator once more is an error.
  auto walk = loader->begin();
  loader->join();
  CHECK(++walk == loader->end());
  CHECK_THROWS_WITH(++walk, contains("past the last batch"));
  CHECK(loader->epoch() == 2);
}

TEST_CASE("timings tell whether the consumer or the workers waited", "[data][loader]") {
  auto slow = make_data_loader<SequentialSampler>(Numbers(12, SIZE_MAX, 2).map(Stack<>()),
                                                  DataLoaderOptions(4).workers(2).max_jobs(2));
  epoch_of(*slow);
  const data::LoaderTimings timings = slow->timings();
  CHECK(timings.batches == 3);
  CHECK(timings.load_seconds >= 0.024);
  CHECK(timings.first_wait_seconds >= 0.007);
  CHECK(timings.wait_seconds >= timings.first_wait_seconds + timings.worst_wait_seconds);
  slow->join();
  CHECK(slow->timings().load_seconds >= timings.load_seconds);
}

TEST_CASE("a batch that takes longer than the timeout is an error", "[data][loader]") {
  auto loader = make_data_loader<SequentialSampler>(
      Numbers(1, SIZE_MAX, 300).map(Stack<>()), DataLoaderOptions(1).workers(1).timeout(std::chrono::milliseconds(20)));
  CHECK_THROWS_WITH(loader->begin(), contains("waited 20 ms"));
  auto patient =
      make_data_loader<SequentialSampler>(Numbers(1, SIZE_MAX, 20).map(Stack<>()),
                                          DataLoaderOptions(1).workers(1).timeout(std::chrono::milliseconds::max()));
  CHECK_NOTHROW(patient->begin());
}

TEST_CASE("loaders can be destroyed at any time", "[data][loader]") {
  for (size_t workers : {1, 2, 3}) {
    for (int batches = 0; batches < 6; ++batches) {
      auto loader = make_data_loader(Numbers(40).map(Stack<>()), DataLoaderOptions(4).workers(workers));
      auto walk = loader->begin();
      for (int i = 0; i < batches; ++i) ++walk;
      if (batches % 2) loader.reset();  // destroys the loader while the workers still make batches
    }
  }
}
