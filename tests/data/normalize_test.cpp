// Normalize: (x - mean) / deviation for each channel, or with one mean and deviation for all channels.
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

using namespace gradus;
using data::Example;
using data::transforms::Normalize;

namespace {

// Shape (3, 2, 4): the elements of channel c are 10 c, 10 c + 1, …
Tensor channels_of_tens() {
  const Tensor x = empty({3, 2, 4});
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] = static_cast<float>(10 * (i / 8) + i % 8);
  return x;
}

}  // namespace

TEST_CASE("Normalize takes each channel's mean and deviation") {
  const Tensor x = channels_of_tens();
  const Tensor mean = tensor({1.0, 2.0, 3.0}).view({3, 1, 1}), deviation = tensor({2.0, 4.0, 8.0}).view({3, 1, 1});
  Normalize<> normalize({1, 2, 3}, {2, 4, 8});
  CHECK(test::error(normalize(x), (x - mean) / deviation) <= 1e-6);
  const Tensor batch = stack({x, x * 2});  // (2, 3, 2, 4): the channels of every image are normalised
  CHECK(test::error(normalize.apply_stacked({batch, Tensor()}).data, (batch - mean) / deviation) <= 1e-6);
}

TEST_CASE("Normalize with one mean and one deviation applies them to all channels") {
  const Tensor x = channels_of_tens();
  Normalize<> normalize(3, 4);
  CHECK(test::error(normalize(x), (x - 3) / 4) <= 1e-6);
  CHECK(test::error(normalize.apply_stacked({x.unsqueeze(0), Tensor()}).data, (x.unsqueeze(0) - 3) / 4) <= 1e-6);
  CHECK(test::error(normalize(x[1]), (x[1] - 3) / 4) <= 1e-6);  // (H, W)
}

TEST_CASE("Normalize with equal means and different deviations differs by channel") {
  const Tensor x = ones({2, 1, 1});
  Normalize<> normalize({0, 0}, {1, 2});
  const Tensor y = normalize(x);
  CHECK(y[0].item<double>() == 1);
  CHECK(y[1].item<double>() == 0.5);
}
