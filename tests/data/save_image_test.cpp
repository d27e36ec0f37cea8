#include <gradus/data/images/image_file.h>

#include <algorithm>
#include <cmath>

#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using namespace gradus::test;

TEST_CASE("a saved image is read back", "[data]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("image.png");
  manual_seed(3);
  const Tensor bytes = randint(256, {3, 5, 7}, kLong).to(kByte);
  data::save_image(bytes, path);
  CHECK(Tensor(data::read_image(path)).equal(bytes));

  // Floating-point values are clamped and rounded to the nearest byte.
  const Tensor values = tensor({-0.5F, 0.0F, 0.4F / 255, 0.6F / 255, 1.0F, 1.5F}).reshape({1, 2, 3});
  data::save_image(values, path);
  CHECK(Tensor(data::read_image(path))[0].equal(tensor({0, 0, 0, 1, 255, 255}).reshape({2, 3}).to(kByte)));
  data::save_image(values[0].t(), path);  // (H, W), not contiguous
  CHECK(Tensor(data::read_image(path))[2].equal(tensor({0, 1, 0, 255, 0, 255}).reshape({3, 2}).to(kByte)));
  data::save_image(values.to(kHalf).set_requires_grad(true), path);
  CHECK(Tensor(data::read_image(path)).size(2) == 3);
}

TEST_CASE("images are arranged in a grid", "[data]") {
  const Tensor images = arange(1, 5 * 2 * 3 + 1).reshape({5, 1, 2, 3}).to(kFloat);
  const Tensor grid = data::make_grid(images, 2, 1, -1);
  REQUIRE(grid.sizes() == Shape({1, 3 * 3 + 1, 2 * 4 + 1}));
  double padding = 0, pixels = 0;
  for (int64_t y = 0; y < grid.size(1); ++y) {
    for (int64_t x = 0; x < grid.size(2); ++x) {
      const auto value = grid[0][y][x].item<double>();
      const int64_t row = (y - 1) / 3, column = (x - 1) / 4, image = 2 * row + column;
      const bool is_pixel = y > 0 && x > 0 && (y - 1) % 3 < 2 && (x - 1) % 4 < 3 && image < 5;
      if (!is_pixel) padding += value;
      else pixels += std::abs(value - (6 * image + 3 * ((y - 1) % 3) + (x - 1) % 4 + 1));
    }
  }
  CHECK(pixels == 0);
  CHECK(padding == -1.0 * (90 - 30));
  CHECK(data::make_grid(images.squeeze(1), 8, 0).sizes() == Shape({1, 2, 15}));
  CHECK(data::make_grid(rand({3, 3, 4, 4}).to(kByte)).dtype() == kByte);
}

TEST_CASE("tensors that are not images are errors", "[data]") {
  CHECK_THROWS_WITH(data::make_grid(ones({3, 4})), contains("takes images (N, C, H, W) or (N, H, W), not (3, 4)"));
  CHECK_THROWS_WITH(data::make_grid(ones({0, 1, 2, 2})), contains("needs an image"));
  CHECK_THROWS_WITH(data::make_grid(ones({1, 1, 2, 2}), 0), contains("nrow 0"));
  CHECK_THROWS_WITH(data::encode_image(ones({2, 4, 4})), contains("of 1, 3 or 4 channels, not (2, 4, 4)"));
  CHECK_THROWS_WITH(data::encode_image(ones({3, 4, 4}).to(kLong)), contains("takes bytes or floating-point values"));
  CHECK_THROWS_WITH(data::save_image(ones({1, 0, 4}), "/tmp/none.png"),
                    contains("a PNG of 0 rows of 4 pixels cannot be written"));
}

TEST_CASE("a grid has as many rows and columns as its images need", "[data]") {
  for (const int64_t count : {1, 2, 5, 6})
    for (const int64_t nrow : {1, 2, 3, 9})
      for (const int64_t padding : {0, 1, 3}) {
        CAPTURE(count, nrow, padding);
        const Tensor images = rand({count, 3, 2, 4});
        const int64_t columns = std::min(nrow, count), rows = (count + columns - 1) / columns;
        Tensor expected = full({3, rows * (2 + padding) + padding, columns * (4 + padding) + padding}, 0.5);
        for (int64_t i = 0; i < count; ++i)
          expected.slice(1, i / columns * (2 + padding) + padding, i / columns * (2 + padding) + padding + 2)
              .slice(2, i % columns * (4 + padding) + padding, i % columns * (4 + padding) + padding + 4)
              .copy_(images[i]);
        CHECK(data::make_grid(images, nrow, padding, 0.5).equal(expected));
        CHECK(data::make_grid(images.select(1, 0), nrow, padding, 0.5).equal(expected.slice(0, 0, 1)));
      }
  const Tensor nine = zeros({9, 1, 2, 2});  // by default rows of 8 images, and 2 black pixels around each
  CHECK(data::make_grid(nine).sizes() == Shape{1, 2 * 4 + 2, 8 * 4 + 2});
  CHECK(data::make_grid(nine + 1).sum().item<double>() == 9 * 4);
  for (const Shape& shape : {Shape{2, 2}, {1, 1, 1, 2, 2}})
    CHECK_THROWS_WITH(data::make_grid(ones(shape)), contains("takes images (N, C, H, W) or (N, H, W)"));
  const std::string needs = "needs an image, nrow of at least 1 and padding of at least 0";
  CHECK_THROWS_WITH(data::make_grid(ones({1, 1, 2, 2}), -1), contains(needs));
  CHECK_THROWS_WITH(data::make_grid(ones({1, 1, 2, 2}), 1, -1), contains(needs));
  CHECK_NOTHROW(data::make_grid(ones({1, 1, 2, 2}), 1, 0));
}

TEST_CASE("images of 1, 3 and 4 channels are encoded", "[data]") {
  const Tensor bytes = randint(256, {4, 3, 5}, kLong).to(kByte);
  const auto decoded = [](const Tensor& image) {
    return Tensor(data::decode_image(data::encode_image(image), "test"));
  };
  CHECK(decoded(bytes[0]).equal(stack({bytes[0], bytes[0], bytes[0]})));
  CHECK(decoded(bytes.slice(0, 0, 1)).equal(stack({bytes[0], bytes[0], bytes[0]})));
  CHECK(decoded(bytes.slice(0, 0, 3)).equal(bytes.slice(0, 0, 3)));
  CHECK(decoded(bytes).equal(bytes.slice(0, 0, 3)));  // without alpha
  for (const int64_t channels : {2, 5})
    CHECK_THROWS_WITH(data::encode_image(ones({channels, 3, 3})), contains("of 1, 3 or 4 channels, not ("));
  for (const Shape& shape : {Shape{3}, {1, 1, 3, 3}})
    CHECK_THROWS_WITH(data::encode_image(ones(shape)), contains("takes an image (H, W) or (C, H, W)"));
  for (const DType dtype : {kInt, kBool})
    CHECK_THROWS_WITH(data::encode_image(ones({3, 3}).to(dtype)), contains("takes bytes or floating-point values"));
  const Tensor half_way = tensor({0.5F / 255, 1.5F / 255, 254.4F / 255, 254.6F / 255}).reshape({1, 4});
  for (const DType dtype : {kFloat, kDouble})
    CHECK(decoded(half_way.to(dtype))[0].equal(tensor({0, 2, 254, 255}).reshape({1, 4}).to(kByte)));
  // A single image is not arranged in a grid; several are.
  const TemporaryDirectory directory;
  data::save_image(bytes.slice(0, 0, 3), directory.file("one.png"), 1, 7);
  CHECK(Tensor(data::read_image(directory.file("one.png"))).equal(bytes.slice(0, 0, 3)));
  data::save_image(bytes.unsqueeze(1), directory.file("four.png"), 3, 1, 9);
  const Tensor grid = data::make_grid(bytes.unsqueeze(1), 3, 1, 9);
  CHECK(Tensor(data::read_image(directory.file("four.png")))[1].equal(grid[0]));
}
