#include <algorithm>
#include <cmath>
#include <set>

#include <gradus/autograd/autograd.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using namespace gradus::data::transforms;
using data::DataLoaderOptions;
using data::Example;
using data::make_data_loader;
namespace f = gradus::data::transforms::functional;

namespace {

// Returns an image (channels, height, width) with different numbers in (0, 1).
Tensor image(int64_t channels, int64_t height, int64_t width) {
  const int64_t count = channels * height * width;
  return ((arange(count).to(kFloat) + 1) / static_cast<double>(count + 1)).reshape({channels, height, width});
}

// Applies a transform `count` times and returns the share of results for which `holds` is true.
template <class Transform, class Holds>
double share(const Transform& transform, const Tensor& x, int count, const Holds& holds) {
  manual_seed(3);
  int found = 0;
  for (int i = 0; i < count; ++i) found += holds(transform(x));
  return static_cast<double>(found) / count;
}

}  // namespace

TEST_CASE("flips and grey happen with their probability", "[data][transforms]") {
  const Tensor x = image(3, 4, 5);
  auto flipped = [&](const Tensor& y) { return y.equal(f::hflip(x)); };
  CHECK(share(RandomHorizontalFlip(), x, 2000, flipped) == Approx(0.5).margin(0.04));
  CHECK(share(RandomHorizontalFlip(1), x, 20, flipped) == 1);
  CHECK(share(RandomHorizontalFlip(0), x, 20, flipped) == 0);
  CHECK(share(RandomVerticalFlip(0.2), x, 2000, [&](const Tensor& y) { return y.equal(f::vflip(x)); }) ==
        Approx(0.2).margin(0.035));
  CHECK(share(RandomGrayscale(), x, 2000, [&](const Tensor& y) { return y.equal(f::rgb_to_grayscale(x, 3)); }) ==
        Approx(0.1).margin(0.03));
  CHECK(Grayscale(3)(x).equal(f::rgb_to_grayscale(x, 3)));
  CHECK(RandomGrayscale(1)(image(1, 2, 2)).sizes() == Shape{1, 2, 2});
}

TEST_CASE("RandomCrop takes every window equally often", "[data][transforms]") {
  const Tensor x = image(1, 3, 4), padded = f::pad(x, 1);
  manual_seed(5);
  std::vector<int> counts(16);  // 4 x 4 positions of a 2x3 window in 5x6
  for (int i = 0; i < 3200; ++i) {
    const Tensor y = RandomCrop({2, 3}).padding(1)(x);
    for (int64_t place = 0; place < 16; ++place)
      counts[static_cast<size_t>(place)] += y.equal(f::crop(padded, place / 4, place % 4, 2, 3));
  }
  double chi_squared = 0;  // with 15 degrees of freedom, 99.9 % of the values are below 37.7
  for (int count : counts) chi_squared += (count - 200.0) * (count - 200.0) / 200;
  CHECK(chi_squared < 37.7);
  CHECK(RandomCrop({3, 4})(x).equal(x));
  CHECK(RandomCrop(8).pad_if_needed().padding_mode(PaddingMode::kEdge)(x).sizes() == Shape{1, 8, 8});
  CHECK_THROWS_WITH(RandomCrop(8)(x), contains("8x8 out of an image of 3x4"));
}

TEST_CASE("RandomResizedCrop keeps scale and ratio", "[data][transforms]") {
  // The value of each pixel is the number of its column or row, so that minimum and maximum of the result show which
  // part was taken.
  const int64_t side = 64;
  const Tensor columns = arange(side).to(kFloat).expand({1, side, side}).contiguous();
  manual_seed(6);
  double area = 0;
  for (int i = 0; i < 400; ++i) {
    const RandomResizedCrop crop = RandomResizedCrop({8, 200}).scale(0.25, 0.5).ratio(0.8, 1.25);
    const Tensor y = crop(columns);
    REQUIRE(y.sizes() == Shape{1, 8, 200});
    const double width = y.max().item<double>() - y.min().item<double>() + 1;
    CHECK(width >= std::sqrt(0.25 * 0.8) * side - 1);
    CHECK(width <= std::sqrt(0.5 * 1.25) * side + 1);
    area += width * width / 400;
  }
  CHECK(area == Approx(0.375 * side * side).epsilon(0.08));
  // No drawn part can fit, so the transform takes the middle part with the nearest allowed ratio.
  const Tensor wide = image(1, 4, 40);
  CHECK(RandomResizedCrop(6).scale(1, 1).ratio(1, 1)(wide).equal(f::resized_crop(wide, 0, 18, 4, 4, 6)));
  CHECK_THROWS_AS(RandomResizedCrop(6).ratio(0, 1), ValueError);
  CHECK_THROWS_AS(RandomResizedCrop(0), ValueError);
}

TEST_CASE("RandomAffine and RandomRotation stay within their ranges", "[data][transforms]") {
  // Rotation, scale and shear do not move a bright pixel that is in the middle of an image of odd size.
  Tensor dot = zeros({1, 21, 21});
  dot[0][10][10].fill_(1.0);
  manual_seed(7);
  std::set<std::pair<int64_t, int64_t>> places;
  for (int i = 0; i < 300; ++i) {
    const Tensor still = RandomAffine(180).scale(0.9, 1.2).shear(10)(dot);
    CHECK(still[0][10][10].item<float>() == 1);
    const Tensor moved = RandomAffine(0).translate(0.1, 0.05)(dot);  // by up to 2 and 1 pixels
    CHECK(moved.sum().item<float>() == 1);
    const int64_t at = moved.argmax().item<int64_t>();
    places.insert({at / 21 - 10, at % 21 - 10});
  }
  CHECK(places.size() == 15);
  for (const auto& [row, column] : places) {
    CHECK(std::abs(row) <= 1);
    CHECK(std::abs(column) <= 2);
  }
  const Tensor x = image(2, 6, 9);
  CHECK(RandomRotation(90, 90).expand()(x).sizes() == Shape{2, 9, 6});
  CHECK(RandomRotation(0)(x).equal(x));
  CHECK(RandomAffine(30, 30).interpolation(Interpolation::kBilinear)(x).equal(
      f::affine(x, 30, {0, 0}, 1, {0, 0}, Interpolation::kBilinear)));
  CHECK(RandomAffine(0)
            .shear(5, 5, 3, 3)
            .center(1, 2)
            .fill(0.5)(x)
            .equal(f::affine(x, 0, {0, 0}, 1, {5, 3}, Interpolation::kNearest, 0.5, std::pair(1.0, 2.0))));
  CHECK_THROWS_AS(RandomAffine(-1), ValueError);
  CHECK_THROWS_AS(RandomAffine(0).translate(1.5, 0), ValueError);
  CHECK_THROWS_AS(RandomAffine(0).scale(0, 1), ValueError);
  CHECK_THROWS_AS(RandomRotation(2, 1), ValueError);
}

TEST_CASE("ColorJitter changes only the selected properties", "[data][transforms]") {
  const Tensor x = image(3, 5, 5) * 0.4 + 0.3;  // no number leaves [0, 1] below
  manual_seed(8);
  CHECK(ColorJitter()(x).equal(x));
  CHECK(ColorJitter()(x * 9 - 4).equal(x * 9 - 4));  // nor are numbers outside of [0, 1] clamped
  struct Property {
    ColorJitter jitter;
    Tensor (*adjust)(const Tensor&, double);
  };
  for (const Property& property :
       {Property{ColorJitter(0.3), f::adjust_brightness}, Property{ColorJitter(0, 0.3), f::adjust_contrast},
        Property{ColorJitter(0, 0, 0.3), f::adjust_saturation}}) {
    INFO(property.jitter.describe());
    const Tensor none = property.adjust(x, 0);
    const auto at_corner = [](const Tensor& y) { return y[0][0][0].item<double>(); };
    double least = 2, most = 0;
    for (int i = 0; i < 50; ++i) {
      const Tensor y = property.jitter(x);
      const double factor = (at_corner(y) - at_corner(none)) / (at_corner(x) - at_corner(none));
      least = std::min(least, factor), most = std::max(most, factor);
      CHECK(y.allclose(property.adjust(x, factor), 1e-5, 1e-6));
    }
    CHECK(least >= 0.7 - 1e-6);
    CHECK(least < 0.8);
    CHECK(most > 1.2);
    CHECK(most <= 1.3 + 1e-6);
  }
  const Tensor turned = ColorJitter(0, 0, 0, 0.1)(x);
  CHECK_FALSE(turned.allclose(x));
  CHECK(turned.amax(0).allclose(x.amax(0)));  // a hue changes neither the greatest nor the least of three colours
  CHECK(turned.amin(0).allclose(x.amin(0)));
  const Tensor all = ColorJitter(0.4, 0.4, 0.4, 0.1)(x);
  CHECK_FALSE(all.allclose(x));
  CHECK(all.min().item<float>() >= 0);
  CHECK(all.max().item<float>() <= 1);
  CHECK_THROWS_AS(ColorJitter(0, 0, 0, 0.6), ValueError);
  CHECK_THROWS_AS(ColorJitter(-0.1), ValueError);
}

TEST_CASE("RandomErasing and Cutout erase areas of the given size", "[data][transforms]") {
  const Tensor x = ones({2, 40, 40});
  manual_seed(9);
  int erased = 0;
  for (int i = 0; i < 400; ++i) {
    const double gone = 1 - RandomErasing()(x).mean().item<double>();
    if (gone == 0) continue;
    ++erased;
    CHECK(gone >= 0.02 - 0.01);
    CHECK(gone <= 0.33 + 0.03);
  }
  CHECK(erased > 150);
  CHECK(erased < 250);
  const Tensor noisy = RandomErasing(1).scale(0.3, 0.3).ratio(1, 1).random_value()(x);
  CHECK((noisy - 1).abs().gt(1e-7).to(kFloat).mean().item<float>() == Approx(0.3).margin(0.02));
  CHECK(noisy.min().item<float>() < -1);
  CHECK(RandomErasing(1).scale(1, 1).ratio(1, 1)(x).equal(x));  // no rectangle fits
  for (int i = 0; i < 200; ++i) {
    const Tensor hole = Cutout(8)(x);
    const double pixels = (1 - hole.mean().item<double>()) * 1600;
    CHECK(pixels >= 16 - 0.1);  // at least the quarter of the square that is within the image if its centre is a corner
    CHECK(pixels <= 64 + 0.1);
    CHECK(hole[0].equal(hole[1]));
  }
  CHECK(Cutout(100, 2, 3)(x).equal(full({2, 40, 40}, 3.0)));
  CHECK_THROWS_AS(Cutout(0), ValueError);
  CHECK_THROWS_AS(RandomErasing(2), ValueError);
}

TEST_CASE("Resize, CenterCrop and Pad", "[data][transforms]") {
  const Tensor x = image(3, 20, 30);
  CHECK(Resize(10)(x).sizes() == Shape{3, 10, 15});
  CHECK(Resize(7)(image(1, 30, 20)).sizes() == Shape{1, 10, 7});
  CHECK(Resize({4, 5})(x).equal(f::resize(x, {4, 5})));
  CHECK(CenterCrop(6)(x).equal(f::center_crop(x, 6)));
  CHECK(Pad({1, 2}, 0.5)(x).equal(f::pad(x, {1, 2}, 0.5)));
}

TEST_CASE("MixUp blends neighbours and their targets", "[data][transforms]") {
  const Tensor x = image(5, 2, 2), y = tensor({0, 2, 1, 1, 0});
  manual_seed(10);
  double sum = 0, squares = 0;
  for (int i = 0; i < 2000; ++i) {
    const Example<> mixed = MixUp(3, 0.4).apply_batch({x, y});
    const double lambda = mixed.target[1][2].item<double>();  // only sample 1 has this class
    sum += lambda, squares += lambda * lambda;
    if (i >= 20) continue;
    REQUIRE(mixed.target.sizes() == Shape{5, 3});
    CHECK(mixed.target.sum(1).allclose(ones({5})));
    CHECK(mixed.target[1][0].item<double>() == Approx(1 - lambda));
    CHECK(mixed.target[0][0].item<double>() == 1);  // mixed with the last sample, which has the same class
    CHECK(mixed.data[1].allclose(x[1] * lambda + x[0] * (1 - lambda)));
    CHECK(mixed.data[0].allclose(x[0] * lambda + x[4] * (1 - lambda)));
  }
  // Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2 a + 1)).
  CHECK(sum / 2000 == Approx(0.5).margin(0.04));
  CHECK(squares / 2000 - sum / 2000 * (sum / 2000) == Approx(1 / (4 * 1.8)).margin(0.015));
  CHECK_THROWS_WITH(MixUp(2).apply_batch({x, y}), contains("2 classes got class 2"));
  CHECK_THROWS_AS(MixUp(3).apply_batch({x, y.slice(0, 0, 4)}), ShapeError);
  CHECK_THROWS_AS(MixUp(3).apply_batch({x, x}), DTypeError);
  CHECK_THROWS_AS(MixUp(3, 0), ValueError);
}

TEST_CASE("augmented batches do not depend on the number of workers", "[data][transforms]") {
  auto train = data::datasets::SyntheticDigits(40)
                   .map(RandomAffine(15).translate(0.1, 0.1).scale(0.9, 1.1).interpolation(Interpolation::kBilinear))
                   .map(RandomCrop(28).padding(2))
                   .map(ColorJitter(0.2, 0.2))
                   .map(RandomErasing().random_value())
                   .map(Cutout(6))
                   .map(Stack<>())
                   .map(MixUp(10, 0.2));
  CHECK(train.explain() ==
        "synthetic digits, 40 images of 1x28x28\n"
        "map RandomAffine(-15, 15 degrees; translate 0.1, 0.1; scale 0.9, 1.1; bilinear)\n"
        "map RandomCrop(28x28, padding 2)\n"
        "map ColorJitter(brightness, contrast, saturation, hue: 0.2, 0.2, 0, 0)\n"
        "map RandomErasing(0.5, normal noise)\n"
        "map Cutout(6)\n"
        "map Stack\n"
        "map MixUp(10 classes, alpha 0.2)\n");
  auto batches = [&](size_t workers) {
    auto loader = make_data_loader(train, DataLoaderOptions(16).workers(workers).seed(4));
    TensorList all;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (auto& batch : *loader) all.push_back(batch.data), all.push_back(batch.target);
    return all;
  };
  const TensorList alone = batches(0);
  REQUIRE(alone.size() == 12);
  for (size_t workers : {1, 2}) {
    const TensorList same = batches(workers);
    for (size_t i = 0; i < alone.size(); ++i) CHECK(same[i].equal(alone[i]));
  }
  CHECK_FALSE(alone[0].equal(alone[6]));
}
