// Tests that a DeviceLoader returns the batches of its loader, on a device.
#include <gradus/autograd/autograd.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using data::DataLoaderOptions;
using data::Example;

namespace {

// Sample i is an image whose pixels are i, with label i. Requesting sample `bad` throws an exception.
struct Planes : data::datasets::Dataset<Planes> {
  explicit Planes(size_t count, size_t bad = SIZE_MAX) : count(count), bad(bad) {}
  Example<> get(size_t index) override {
    GRADUS_CHECK(index != bad, IoError, "the disk is full of sand");
    return {full({3, 8, 8}, static_cast<double>(index)), tensor(static_cast<int64_t>(index))};
  }
  std::optional<size_t> size() const override { return count; }
  size_t count, bad;
};

auto loader_of(size_t count, size_t workers, size_t bad = SIZE_MAX) {
  return data::make_data_loader<data::samplers::RandomSampler>(Planes(count, bad).map(data::transforms::Stack<>()),
                                                               DataLoaderOptions(4).workers(workers).seed(3));
}

// Returns the state of a loader after this number of epochs.
template <class Loader>
data::LoaderState whole_epochs(const Loader& loader, uint64_t epochs) {
  return {loader.options().seed(), epochs, 0, loader.options().batch_size()};
}

void check_same_batches(Device device) {
  for (const size_t workers : {0, 2}) {
    const auto plain = loader_of(30, workers), source = loader_of(30, workers);
    auto ahead = data::on_device(*source, device);
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<Example<>> expected;
      for (auto& batch : *plain) expected.push_back(batch);
      size_t count = 0;
      for (auto& batch : ahead) {
        REQUIRE(count < expected.size());
        CHECK(batch.data.device() == settled(device));
        CHECK(batch.target.device() == settled(device));
        CHECK((batch.data * 1).cpu().equal(expected[count].data));
        CHECK((batch.target * 1).cpu().equal(expected[count].target));
        ++count;
      }
      CHECK(count == 8);
    }
  }
}

}  // namespace

TEST_CASE("a device loader returns the loader's batches in every epoch", "[data][loader]") {
  check_same_batches("cpu");
  if (cuda::is_available()) check_same_batches("cuda");
}

TEST_CASE("an epoch of a device loader can be abandoned in the middle", "[data][loader]") {
  std::vector<Device> devices = {Device()};
  if (cuda::is_available()) devices.push_back("cuda");
  for (const Device device : devices) {
    const auto source = loader_of(30, 1);
    auto ahead = data::on_device(*source, device);
    int count = 0;
    for (auto& batch : ahead)
      if (batch.data.size(0) == 4 && ++count == 2) break;
    CHECK(count == 2);
    for (int64_t total = 0; auto& batch : ahead) {
      total += batch.data.size(0);
      CHECK(total <= 30);
    }
  }
}

TEST_CASE("a device loader continues at the position of another one", "[data][loader]") {
  std::vector<Device> devices = {Device()};
  if (cuda::is_available()) devices.push_back("cuda");
  for (const Device device : devices) {
    const auto whole = loader_of(30, 1), source = loader_of(30, 1), fresh = loader_of(30, 1);
    auto ahead = data::on_device(*source, device), resumed = data::on_device(*fresh, device);
    std::vector<Tensor> expected;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (auto& batch : *whole) expected.push_back(batch.target);
    size_t seen = 0;
    for (auto& batch : ahead) seen += batch.target.defined();
    CHECK(ahead.state() == whole_epochs(*source, 1));
    for (auto& batch : ahead) {
      seen += batch.target.defined();
      if (seen == 11) break;
    }
    CHECK(ahead.state().batches == 3);  // the position of the consumer; the loader's own position may be ahead of it
    CHECK(ahead.wait_seconds() > 0);
    resumed.load_state_dict(ahead.state_dict());
    for (auto& batch : resumed) {
      REQUIRE(seen < expected.size());
      CHECK(batch.target.cpu().equal(expected[seen++]));
    }
    CHECK(seen == expected.size());
    CHECK(resumed.state() == whole_epochs(*source, 2));
  }
}

TEST_CASE("an exception of the loader reaches the consumer of a device loader", "[data][loader]") {
  std::vector<Device> devices = {Device()};
  if (cuda::is_available()) devices.push_back("cuda");
  for (const Device device : devices) {
    const auto source = loader_of(30, 1, /*bad=*/7);
    auto ahead = data::on_device(*source, device);
    const auto epoch = [&] {
      for (auto& batch : ahead) CHECK(batch.data.defined());
    };
    CHECK_THROWS_WITH(epoch(), contains("full of sand"));
  }
  const auto source = loader_of(4, 0);
  if (!cuda::is_available()) CHECK_THROWS_AS(data::on_device(*source, "cuda"), DeviceError);
}
