// Tests the batches of DeviceImages. They are the same on every device.
#include <gradus/autograd/autograd.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>

#include <algorithm>
#include <set>

using namespace gradus;
using namespace gradus::test;
using data::DeviceImages;

namespace {

constexpr int64_t kCount = 12, kChannels = 3, kHeight = 6, kWidth = 5;

data::datasets::ImageDataset images() {
  manual_seed(3);
  const Tensor bytes = randint(1, 256, {kCount, kChannels, kHeight, kWidth}).to(kByte);
  const Tensor labels = arange(kCount).to(kByte);
  return {bytes.array(), labels.array(), kCount, data::datasets::ImageDataset::kTrain, "noise"};
}

std::vector<Device> devices() {
  if (cuda::is_available()) return {Device(), Device("cuda")};
  return {Device()};
}

}  // namespace

TEST_CASE("a batch is the samples, scaled and normalised", "[data]") {
  const auto dataset = images();
  const Tensor all = dataset.images(), chosen = tensor(std::vector<int64_t>{7, 0, 7, 11});
  for (const Device device : devices()) {
    DeviceImages on(dataset, device);
    CHECK(on.size() == kCount);
    CHECK(on.device() == settled(device));
    const auto plain = on.batch(chosen.to(device));
    CHECK(plain.data.device() == settled(device));
    CHECK(plain.data.cpu().allclose(all.index_select(0, chosen), 1e-6, 1e-7));
    CHECK(plain.target.cpu().equal(chosen));
    on.normalize({0.5, 0.25, 0}, {0.5, 0.25, 1});
    const Tensor mean = tensor(std::vector<float>{0.5f, 0.25f, 0}).view({1, 3, 1, 1});
    const Tensor deviation = tensor(std::vector<float>{0.5f, 0.25f, 1}).view({1, 3, 1, 1});
    CHECK(
        on.batch(chosen.to(device)).data.cpu().allclose((all.index_select(0, chosen) - mean) / deviation, 1e-5, 1e-5));
    CHECK(std::get<0>(on.shuffled().cpu().sort()).equal(arange(kCount)));
  }
}

TEST_CASE("augmentation mirrors and shifts, equally on every device", "[data]") {
  const auto dataset = images();
  const Tensor order = arange(kCount), all = dataset.images();
  Tensor first;
  for (const Device device : devices()) {
    DeviceImages on(dataset, device);
    on.random_horizontal_flip(1);
    CHECK(on.batch(order.to(device)).data.cpu().allclose(all.flip({3}), 1e-6, 1e-7));
    CHECK(on.batch(order.to(device), /*augment=*/false).data.cpu().allclose(all, 1e-6, 1e-7));

    // Each result is one of the 18 possible crops of its padded image: 9 positions, mirrored or not. Results of
    // different images use different crops.
    on.random_horizontal_flip(0.5).random_crop(1);
    manual_seed(8);
    const Tensor made = on.batch(order.to(device)).data.cpu();
    std::vector<int> kinds(18);
    for (int64_t i = 0; i < kCount; ++i) {
      const Tensor padded = pad(all[i], {1, 1, 1, 1});
      int found = -1;
      for (int kind = 0; kind < 18; ++kind) {
        Tensor crop = padded.narrow(1, kind / 2 / 3, kHeight).narrow(2, kind / 2 % 3, kWidth);
        if (kind % 2) crop = crop.flip({2});
        if (made[i].allclose(crop, 1e-6, 1e-7)) found = kind;
      }
      REQUIRE(found >= 0);
      ++kinds[static_cast<size_t>(found)];
    }
    CHECK(std::count_if(kinds.begin(), kinds.end(), [](int n) { return n > 0; }) > 4);
    if (first.defined()) CHECK(made.equal(first));
    else first = made;
  }
}

TEST_CASE("cutout sets a square of each image to 0, equally on every device", "[data]") {
  const auto dataset = images();
  const Tensor order = arange(kCount), whole = dataset.images() - 2;  // no pixel is 0
  Tensor first;
  for (const Device device : devices()) {
    DeviceImages on(dataset, device);
    on.normalize({2}, {1}).cutout(3);
    manual_seed(8);
    const Tensor made = on.batch(order.to(device)).data.cpu();
    CHECK(on.batch(order.to(device), /*augment=*/false).data.cpu().allclose(whole, 1e-6, 1e-6));
    std::set<std::pair<int64_t, int64_t>> middles;
    for (int64_t i = 0; i < kCount; ++i) {
      bool found = false;
      for (int64_t y = 0; y < kHeight; ++y)
        for (int64_t x = 0; x < kWidth; ++x) {
          const int64_t top = std::max<int64_t>(y - 1, 0), left = std::max<int64_t>(x - 1, 0);
          Tensor expected = whole[i].clone();
          expected.narrow(1, top, std::min(y + 2, kHeight) - top)
              .narrow(2, left, std::min(x + 2, kWidth) - left)
              .zero_();
          if (!made[i].allclose(expected, 1e-6, 1e-6)) continue;
          found = true;
          middles.insert({y, x});
        }
      CHECK(found);
    }
    CHECK(middles.size() > 4);
    if (first.defined()) CHECK(made.equal(first));
    else first = made;
  }
}

TEST_CASE("augmentation of device images draws one number after the other", "[data]") {
  const auto dataset = images();
  const Tensor order = arange(kCount), all = dataset.images();
  const auto draws = [](int64_t low, int64_t high) { return randint(low, high, {kCount, 1}, TensorOptions(kLong)); };
  for (const int64_t padding : {0, 1, 4})
    for (const double p : {0.0, 0.4, 1.0})
      for (const int64_t hole : {0, 1, 4}) {
        CAPTURE(padding, p, hole);
        DeviceImages on(dataset, Device());
        on.normalize({0.5}, {0.25}).random_crop(padding).random_horizontal_flip(p).cutout(hole);
        manual_seed(8);
        const Tensor made = on.batch(order).data;
        const int64_t next = randint(1 << 30, {1}, kLong).item<int64_t>();
        manual_seed(8);
        Tensor down, right, mirrored, top, left;
        if (padding > 0 || p > 0) {
          down = draws(-padding, padding + 1), right = draws(-padding, padding + 1);
          mirrored = rand({kCount, 1}) < p;
        }
        if (hole > 0) top = draws(0, kHeight) - hole / 2, left = draws(0, kWidth) - hole / 2;
        CHECK(randint(1 << 30, {1}, kLong).item<int64_t>() == next);
        const Tensor expected = zeros({kCount, kChannels, kHeight, kWidth});
        for (int64_t i = 0; i < kCount; ++i)
          for (int64_t y = 0; y < kHeight; ++y)
            for (int64_t x = 0; x < kWidth; ++x) {
              const int64_t from_y = down.defined() ? y + down[i].item<int64_t>() : y;
              int64_t from_x = right.defined() ? x + right[i].item<int64_t>() : x;
              if (mirrored.defined() && mirrored[i].item<bool>()) from_x = kWidth - 1 - from_x;
              const bool is_inside = from_y >= 0 && from_y < kHeight && from_x >= 0 && from_x < kWidth;
              const int64_t in_y = hole > 0 ? y - top[i].item<int64_t>() : -1;
              const int64_t in_x = hole > 0 ? x - left[i].item<int64_t>() : -1;
              if (in_y >= 0 && in_y < hole && in_x >= 0 && in_x < hole) continue;
              for (int64_t c = 0; c < kChannels; ++c)
                expected.data_ptr<float>()[((i * kChannels + c) * kHeight + y) * kWidth + x] =
                    ((is_inside ? all[i][c][from_y][from_x].item<float>() : 0) - 0.5f) / 0.25f;
            }
        CHECK(made.allclose(expected, 1e-5, 1e-5));
      }
}

TEST_CASE("invalid arguments of device images are errors", "[data]") {
  DeviceImages on(images(), "cpu");
  CHECK_THROWS_AS(on.normalize({0.5, 0.5}, {1}), ValueError);
  CHECK_THROWS_AS(on.normalize({0.5}, {0}), ValueError);
  CHECK_THROWS_AS(on.random_crop(-1), ValueError);
  CHECK_THROWS_AS(on.cutout(-1), ValueError);
  for (const double p : {-0.1, 1.5}) CHECK_THROWS_AS(on.random_horizontal_flip(p), ValueError);
  for (const double p : {0.0, 1.0}) CHECK_NOTHROW(on.random_horizontal_flip(p));
  CHECK_NOTHROW(on.random_crop(0).cutout(0));
  CHECK_THROWS_WITH(on.normalize({1, 2}, {1}), contains("normalize has 2 numbers for 3 channels"));
  CHECK_THROWS_WITH(on.normalize({1}, {1, 1, 1, 1}), contains("normalize has 4 numbers for 3 channels"));
  for (const double deviation : {0.0, -1.0})
    CHECK_THROWS_WITH(on.normalize({1}, {1, 1, deviation}), contains("normalize divides by a deviation of "));
  CHECK_THROWS_AS(on.batch(tensor(int64_t{kCount}).view({1})), IndexError);
}

TEST_CASE("a batch of device images can be part of a captured step", "[data]") {
  if (!cuda::is_available() && test::skip("1 CUDA device")) return;
  DeviceImages on(images(), "cuda");
  on.random_crop(2).random_horizontal_flip().cutout(2);
  const Tensor indices = arange(4, TensorOptions(kLong).device("cuda"));
  manual_seed(5);
  std::vector<Tensor> eager;
  for (int i = 0; i < 3; ++i) eager.push_back(on.batch(indices).data.cpu());
  CHECK_FALSE(eager[0].equal(eager[1]));
  manual_seed(5);
  cuda::Graph graph;
  Tensor made;
  graph.capture([&] { made = on.batch(indices).data; });
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    CHECK(made.cpu().equal(eager[static_cast<size_t>(i)]));
  }
}
