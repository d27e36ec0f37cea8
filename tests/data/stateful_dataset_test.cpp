// Tests StatefulDataset, which chooses its batches itself, and SharedBatchDataset.
#include <gradus/data/stateful_dataset.h>
#include <gradus/data/transforms/transforms.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>

using namespace gradus;
namespace datasets = data::datasets;

namespace {

/// Returns the numbers 0, 1, 2, … below `count` in batches.
struct Counting : datasets::StatefulDataset<Counting, std::vector<int>> {
  explicit Counting(int count) : count(count) {}
  Counting(const Counting&) = default;
  std::optional<std::vector<int>> get_batch(size_t batch_size) override {
    if (next >= count) return std::nullopt;
    std::vector<int> batch;
    while (next < count && batch.size() < batch_size) batch.push_back(next++);
    return batch;
  }
  void reset() override { next = 0; }
  std::optional<size_t> size() const override { return count; }
  int count, next = 0;
};

struct Uncopyable : datasets::Dataset<Uncopyable, int> {
  Uncopyable() = default;
  Uncopyable(const Uncopyable&) = delete;
  int get(size_t index) override { return static_cast<int>(index) * 2; }
  std::optional<size_t> size() const override { return 10; }
};

}  // namespace

TEST_CASE("a stateful dataset returns batches until it has no more, in every epoch") {
  auto loader = data::make_data_loader(Counting(5), data::DataLoaderOptions(2).workers(2));
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::vector<int>> batches;
    for (const auto& batch : *loader) batches.push_back(batch);
    CHECK(batches == std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4}});
  }

  auto mapped = Counting(5)
                    .map(data::transforms::Lambda<int>([](int x) { return x + 1; }))
                    .map(data::transforms::BatchLambda<std::vector<int>, size_t>(
                        [](std::vector<int> batch) { return batch.size() + static_cast<size_t>(batch.back()); }));
  std::vector<size_t> sums;
  const auto mapped_loader = data::make_data_loader(mapped, 2);
  for (const size_t sum : *mapped_loader) sums.push_back(sum);
  CHECK(sums == std::vector<size_t>{4, 6, 6});
}

TEST_CASE("a shared dataset is not copied") {
  auto shared = datasets::make_shared_dataset<Uncopyable>();
  int sum = 0;
  const auto shared_loader = data::make_data_loader(shared, data::DataLoaderOptions(3).workers(2));
  for (const auto& batch : *shared_loader)
    for (const int number : batch) sum += number;
  CHECK(sum == 90);
  datasets::SharedBatchDataset deduced(std::make_shared<Uncopyable>());
  CHECK(deduced.get_batch({4, 1}) == std::vector<int>{8, 2});

  datasets::SharedBatchDataset counting(std::make_shared<Counting>(4));
  auto loader = data::make_data_loader(counting, 3);
  CHECK(loader->begin()->size() == 3);
  CHECK(counting->next == 3);
}

TEST_CASE("reading or advancing a loader's iterator past the last batch is an error") {
  auto loader = data::make_data_loader(Counting(2), 2);
  auto iterator = loader->begin();
  CHECK(iterator->size() == 2);
  ++iterator;
  CHECK(iterator == loader->end());
  CHECK_THROWS_AS(*iterator, ValueError);
  CHECK_THROWS_AS(++iterator, ValueError);
  auto end = loader->end();
  CHECK_THROWS_AS(++end, ValueError);
}
