// Computes what random transforms must return from the numbers that they draw, in the order in which they draw them, so
// that the images of a seed stay the same.
#include <algorithm>
#include <cmath>

#include <gradus/autograd/autograd.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using namespace gradus::data::transforms;
using data::detail::draw_chance;
using data::detail::draw_integer;
using data::detail::draw_normal;
using data::detail::draw_uniform;
namespace f = gradus::data::transforms::functional;

namespace {

constexpr auto bilinear = Interpolation::kBilinear;
constexpr auto nearest = Interpolation::kNearest;

/// Compares a transform with `expected`, which draws the same numbers, for several seeds.
template <class Expected>
void check_drawn(const ImageTransform& transform, const Tensor& x, const Expected& expected) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(transform.describe(), x.sizes(), seed);
    manual_seed(seed);
    const Tensor y = transform(x);
    const uint64_t next = data::sample_generator().next().offset;
    manual_seed(seed);
    CHECK(y.equal(expected()));
    CHECK(data::sample_generator().next().offset == next);  // both have drawn as many numbers
  }
}

double draw_ratio(double low, double high) { return std::exp(draw_uniform(std::log(low), std::log(high))); }

/// An image (channels, height, width) of different numbers in (0, 1), which is not symmetric in any direction.
Tensor image(int64_t channels, int64_t height, int64_t width) {
  const int64_t count = channels * height * width;
  return ((arange(count) * 37 % count).to(kFloat) + 1)
      .div(static_cast<double>(count + 1))
      .reshape({channels, height, width});
}

}  // namespace

TEST_CASE("random flips and RandomGrayscale draw whether they change the image", "[data][transforms]") {
  const Tensor x = image(3, 4, 5);
  for (const double p : {0.0, 0.3, 0.5, 1.0}) {
    check_drawn(RandomHorizontalFlip(p), x, [&] { return draw_chance(p) ? f::hflip(x) : x; });
    check_drawn(RandomVerticalFlip(p), x, [&] { return draw_chance(p) ? f::vflip(x) : x; });
    check_drawn(RandomGrayscale(p), x, [&] { return draw_chance(p) ? f::rgb_to_grayscale(x, 3) : x; });
  }
  // The number of channels stays the same; an image without channels is grey.
  for (const Shape& shape : {Shape{1, 4, 5}, {2, 1, 4, 5}, {2, 3, 4, 5}})
    CHECK(RandomGrayscale(1)(rand(shape)).sizes() == shape);
  const Tensor plane = rand({3, 5});
  CHECK(RandomGrayscale(1)(plane).equal(plane));
}

TEST_CASE("RandomCrop draws a row and a column of the padded image", "[data][transforms]") {
  const Tensor x = image(2, 6, 9);
  const Padding padding(1, 2, 3, 0);  // the padded image is 8 x 13
  check_drawn(RandomCrop({3, 5}).padding(padding).fill(0.5), x, [&] {
    const int64_t top = draw_integer(0, 6), left = draw_integer(0, 9);
    return f::crop(f::pad(x, padding, 0.5), top, left, 3, 5);
  });
  check_drawn(RandomCrop({8, 13}).padding(padding).padding_mode(PaddingMode::kEdge), x, [&] {
    draw_integer(0, 1), draw_integer(0, 1);
    return f::pad(x, padding, 0, PaddingMode::kEdge);
  });
  CHECK_THROWS_WITH(RandomCrop({9, 13}).padding(padding)(x), contains("cannot take 9x13 out of an image of 8x13"));
  CHECK_THROWS_WITH(RandomCrop({8, 14}).padding(padding)(x), contains("cannot take 8x14 out of an image of 8x13"));
  // Pads both sides by all that is missing.
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{8, 13}, {3, 5}, {9, 4}, {7, 15}, {11, 16}})
    check_drawn(RandomCrop({height, width}).padding(padding).pad_if_needed().fill(2), x, [&, h = height, w = width] {
      const int64_t more_rows = std::max<int64_t>(h - 8, 0), more_columns = std::max<int64_t>(w - 13, 0);
      const Tensor padded = f::pad(f::pad(x, padding, 2), {more_columns, more_rows}, 2);
      const int64_t top = draw_integer(0, 8 + 2 * more_rows - h + 1);
      return f::crop(padded, top, draw_integer(0, 13 + 2 * more_columns - w + 1), h, w);
    });
  CHECK(RandomCrop({2, 3}).describe() == "RandomCrop(2x3)");
  CHECK(RandomCrop({2, 3}).padding({4, 5, 6, 7}).describe() == "RandomCrop(2x3, padding 4)");
}

TEST_CASE("RandomResizedCrop draws an area and a ratio until the part fits", "[data][transforms]") {
  const auto check = [](const Tensor& x, std::pair<double, double> scale, std::pair<double, double> ratio,
                        const Tensor& middle) {
    const ImageSize size(4, 7);
    const int64_t rows = x.size(1), columns = x.size(2);
    const RandomResizedCrop crop =
        RandomResizedCrop(size).scale(scale.first, scale.second).ratio(ratio.first, ratio.second).antialias(false);
    int fitted = 0;
    check_drawn(crop, x, [&] {
      for (int attempt = 0; attempt < 10; ++attempt) {
        const double area = static_cast<double>(rows * columns) * draw_uniform(scale.first, scale.second);
        const double drawn_ratio = draw_ratio(ratio.first, ratio.second);
        const int64_t width = std::llround(std::sqrt(area * drawn_ratio));
        const int64_t height = std::llround(std::sqrt(area / drawn_ratio));
        if (width < 1 || width > columns || height < 1 || height > rows) continue;
        const int64_t top = draw_integer(0, rows - height + 1), left = draw_integer(0, columns - width + 1);
        ++fitted;
        return f::resized_crop(x, top, left, height, width, size, bilinear, false);
      }
      return f::resize(middle, size, bilinear, false);
    });
    return fitted;
  };
  const Tensor x = image(2, 9, 12), wide = image(1, 4, 40), high = image(1, 40, 4), half = image(2, 10, 20);
  const auto part = [](const Tensor& t, int64_t top, int64_t left, int64_t h, int64_t w) {
    return f::crop(t, top, left, h, w);
  };
  CHECK(check(x, {0.08, 1}, {0.75, 1.33}, x) > 15);
  CHECK(check(x, {0.9, 1}, {0.5, 2}, x) > 10);
  CHECK(check(image(1, 3, 3), {0.001, 0.5}, {0.1, 10}, image(1, 3, 3)) > 10);
  // None fits: takes the middle part of the nearest ratio.
  CHECK(check(wide, {1, 1}, {0.5, 2}, part(wide, 0, 16, 4, 8)) == 0);
  CHECK(check(high, {1, 1}, {0.5, 2}, part(high, 16, 0, 8, 4)) == 0);
  CHECK(check(wide, {1, 1}, {0.4, 0.6}, part(wide, 0, 19, 4, 2)) == 0);
  CHECK(check(high, {1, 1}, {2, 4}, part(high, 19, 0, 2, 4)) == 0);
  CHECK(check(half, {1.5, 2}, {1.9, 2.1}, half) == 0);
  CHECK(check(half, {1.5, 2}, {2, 2}, half) == 0);
  CHECK(check(half, {1, 1}, {2, 2}, half) == 20);
  CHECK(RandomResizedCrop({2, 3}).describe() == "RandomResizedCrop(2x3, scale 0.08, 1; ratio 0.75, 1.33333)");
}

TEST_CASE("RandomRotation and RandomAffine draw their parameters", "[data][transforms]") {
  const Tensor x = image(3, 8, 11);
  const Fill fill = std::vector<double>{0.1, 0.2, 0.3};
  check_drawn(RandomRotation(40), x, [&] { return f::rotate(x, draw_uniform(-40, 40)); });
  check_drawn(RandomRotation(10, 80).expand().fill(fill).interpolation(bilinear), x,
              [&] { return f::rotate(x, draw_uniform(10, 80), bilinear, true, std::nullopt, fill); });
  check_drawn(RandomRotation(10, 80).center(3, 2).fill(fill), x,
              [&] { return f::rotate(x, draw_uniform(10, 80), nearest, false, std::pair(3.0, 2.0), fill); });
  check_drawn(RandomAffine(25).translate(0.2, 0.4), x, [&] {
    const double angle = draw_uniform(-25, 25), move_x = std::nearbyint(draw_uniform(-2.2, 2.2));
    return f::affine(x, angle, {move_x, std::nearbyint(draw_uniform(-3.2, 3.2))}, 1, {0, 0});
  });
  check_drawn(RandomAffine(5, 30).scale(0.5, 2).shear(12).fill(fill), x, [&] {
    const double angle = draw_uniform(5, 30);
    draw_uniform(0, 0), draw_uniform(0, 0);
    const double scale = draw_uniform(0.5, 2);
    return f::affine(x, angle, {0, 0}, scale, {draw_uniform(-12, 12), 0}, nearest, fill);
  });
  check_drawn(RandomAffine(0).shear(-5, 20, 3, 9).center(2, 7).interpolation(bilinear), x, [&] {
    const double angle = draw_uniform(0, 0);
    draw_uniform(0, 0), draw_uniform(0, 0);
    const double shear_x = draw_uniform(-5, 20), shear_y = draw_uniform(3, 9);
    return f::affine(x, angle, {0, 0}, 1, {shear_x, shear_y}, bilinear, 0, std::pair(2.0, 7.0));
  });
  CHECK(RandomRotation(40).describe() == "RandomRotation(-40, 40 degrees, nearest)");
  CHECK(RandomRotation(1, 2).interpolation(bilinear).describe() == "RandomRotation(1, 2 degrees, bilinear)");
  CHECK(RandomAffine(3).describe() == "RandomAffine(-3, 3 degrees; nearest)");
  CHECK(RandomAffine(3).translate(0, 0.5).shear(2).describe() ==
        "RandomAffine(-3, 3 degrees; translate 0, 0.5; shear -2, 2; nearest)");
  CHECK(RandomAffine(3).shear(1, 2, 3, 4).describe() ==
        "RandomAffine(-3, 3 degrees; shear 1, 2; shear y 3, 4; nearest)");
}

TEST_CASE("ColorJitter draws an order, and a number for each step", "[data][transforms]") {
  const Tensor x = image(3, 4, 5);
  const auto check = [&](double brightness, double contrast, double saturation, double hue) {
    const auto factor = [](double value) { return draw_uniform(std::max(0.0, 1 - value), 1 + value); };
    check_drawn(ColorJitter(brightness, contrast, saturation, hue), x, [&] {
      std::vector<int> order = {0, 1, 2, 3};
      for (size_t i = 3; i > 0; --i)
        std::swap(order[i], order[static_cast<size_t>(draw_integer(0, static_cast<int64_t>(i) + 1))]);
      Tensor y = x;
      for (int step : order) {
        if (step == 0 && brightness != 0) y = f::adjust_brightness(y, factor(brightness));
        if (step == 1 && contrast != 0) y = f::adjust_contrast(y, factor(contrast));
        if (step == 2 && saturation != 0) y = f::adjust_saturation(y, factor(saturation));
        if (step == 3 && hue != 0) y = f::adjust_hue(y, draw_uniform(-hue, hue));
      }
      return y;
    });
  };
  check(0.3, 0.4, 0.5, 0.2);
  check(1.5, 0, 0, 0);  // the factor is never negative
  check(0, 2, 0.1, 0);
  check(0, 0, 3, 0.5);
  check(0, 0, 0, 0);
}

TEST_CASE("RandomErasing draws a rectangle until one fits", "[data][transforms]") {
  const auto check = [](const Tensor& x, double p, std::pair<double, double> scale, std::pair<double, double> ratio,
                        const std::optional<double>& value) {
    RandomErasing erasing = RandomErasing(p).scale(scale.first, scale.second).ratio(ratio.first, ratio.second);
    if (value) erasing.value(*value);
    else erasing.random_value();
    int erased = 0;
    check_drawn(erasing, x, [&] {
      if (!draw_chance(p)) return x;
      for (int attempt = 0; attempt < 10; ++attempt) {
        const double area = static_cast<double>(x.size(1) * x.size(2)) * draw_uniform(scale.first, scale.second);
        const double drawn_ratio = draw_ratio(ratio.first, ratio.second);
        const int64_t height = std::llround(std::sqrt(area * drawn_ratio));
        const int64_t width = std::llround(std::sqrt(area / drawn_ratio));
        if (height >= x.size(1) || width >= x.size(2)) continue;
        ++erased;
        const int64_t top = draw_integer(0, x.size(1) - height + 1), left = draw_integer(0, x.size(2) - width + 1);
        const Tensor y = f::erase(x, top, left, height, width, value.value_or(0));
        if (value) return y;
        const RandomState noise = data::sample_generator().next();
        uint64_t drawn = 0;
        for (int64_t c = 0; c < x.size(0); ++c)
          for (int64_t row = top; row < top + height; ++row)
            for (int64_t column = left; column < left + width; ++column)
              y.data_ptr<float>()[(c * x.size(1) + row) * x.size(2) + column] =
                  static_cast<float>(random_normal(noise.seed, noise.offset, drawn++));
        return y;
      }
      return x;
    });
    return erased;
  };
  const Tensor x = image(2, 9, 12);
  CHECK(check(x, 0.5, {0.1, 0.5}, {0.3, 3}, 0.25) > 5);
  CHECK(check(x, 1, {0.6, 1}, {0.2, 5}, 2) > 5);  // some do not fit
  CHECK(check(x, 1, {0.1, 0.4}, {0.5, 2}, std::nullopt) == 20);
  CHECK(check(image(1, 1, 8), 1, {0.1, 0.2}, {0.01, 0.02}, 1) > 5);  // rectangles without pixels
  CHECK(check(image(1, 6, 6), 1, {1, 1}, {1, 1}, 1) == 0);
  CHECK(RandomErasing(0.25).describe() == "RandomErasing(0.25)");
  CHECK(RandomErasing(0.25).random_value().describe() == "RandomErasing(0.25, normal noise)");
  CHECK(RandomErasing(0.25).random_value().value(1).describe() == "RandomErasing(0.25)");
  const Tensor squares = ones({1, 64, 64});  // the defaults: 2 to 33 %, ratios from 0.3 to 3.3, and the value 0
  check_drawn(RandomErasing(1), squares, [&] { return RandomErasing(1).scale(0.02, 0.33).ratio(0.3, 3.3)(squares); });
  CHECK(RandomErasing(1)(squares).min().item<float>() == 0);
}

TEST_CASE("Cutout draws the centre of each hole", "[data][transforms]") {
  const Tensor x = image(2, 6, 9);
  for (const int64_t length : {1, 2, 5, 8})
    for (const int64_t holes : {1, 3})
      check_drawn(Cutout(length, holes, 0.5), x, [&] {
        const Tensor y = x.clone();
        for (int64_t hole = 0; hole < holes; ++hole) {
          const int64_t top = draw_integer(0, 6) - length / 2, left = draw_integer(0, 9) - length / 2;
          for (int64_t row = std::max<int64_t>(top, 0); row < std::min<int64_t>(top + length, 6); ++row)
            for (int64_t column = std::max<int64_t>(left, 0); column < std::min<int64_t>(left + length, 9); ++column)
              y.slice(1, row, row + 1).slice(2, column, column + 1).fill_(0.5);
        }
        return y;
      });
  CHECK(Cutout(3).describe() == "Cutout(3)");
  CHECK(Cutout(3, 2).describe() == "Cutout(3, 2 holes)");
}

TEST_CASE("MixUp draws from the beta distribution", "[data][transforms]") {
  const auto gamma = [](double shape) {  // by the method of Marsaglia and Tsang; the logarithm
    double log_power = 0;
    if (shape < 1) shape += 1, log_power = -1;
    for (;;) {
      const double d = shape - 1.0 / 3, x = draw_normal(), t = 1 + x / std::sqrt(9 * d), v = t * t * t;
      if (t <= 0) continue;
      if (std::log(1 - draw_uniform(0, 1)) >= 0.5 * x * x + d - d * v + d * std::log(v)) continue;
      return std::log(d * v) + (log_power == 0 ? 0 : std::log(1 - draw_uniform(0, 1)) / (shape - 1));
    }
  };
  const Tensor x = randn({4, 3}), y = tensor({0, 2, 1, 0});
  for (const double alpha : {0.05, 0.3, 1.0, 2.5})
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      CAPTURE(alpha, seed);
      manual_seed(seed);
      const double log_a = gamma(alpha), log_b = gamma(alpha), lambda = 1 / (1 + std::exp(log_b - log_a));
      const uint64_t next = data::sample_generator().next().offset;
      manual_seed(seed);
      const data::Example<> mixed = MixUp(3, alpha).apply_batch({x, y});
      CHECK(data::sample_generator().next().offset == next);
      CHECK(mixed.data.allclose(x * lambda + x.roll(1, 0) * (1 - lambda), 1e-5, 1e-6));
      CHECK(mixed.target.allclose(one_hot(y, 3) * lambda + one_hot(y.roll(1, 0), 3) * (1 - lambda), 1e-5, 1e-6));
    }
}

TEST_CASE("transforms of images refuse parameters outside of their range", "[data][transforms]") {
  const double infinite = INFINITY, nan = NAN;
  // Constructors and setters, and what their messages contain.
  const std::vector<std::pair<std::function<void()>, std::string>> wrong = {
      {[] { RandomHorizontalFlip(-0.1); }, "RandomHorizontalFlip needs a probability in [0, 1], got -0.1"},
      {[] { RandomVerticalFlip(1.1); }, "RandomVerticalFlip needs a probability"},
      {[&] { RandomGrayscale r(nan); }, "RandomGrayscale needs a probability"},
      {[] { Resize(0); }, "Resize needs a height and a width above 0, got 0 and 0"},
      {[] {
         Resize({3, 0});
       },
       "got 3 and 0"},
      {[] {
         CenterCrop({-1, 3});
       },
       "CenterCrop needs a height"},
      {[] {
         RandomCrop({3, 0});
       },
       "RandomCrop needs a height"},
      {[] {
         RandomResizedCrop({0, 3});
       },
       "RandomResizedCrop needs a height"},
      {[] { RandomResizedCrop(3).scale(0, 1); }, "RandomResizedCrop's scale needs numbers above 0, got 0"},
      {[] { RandomResizedCrop(3).scale(1, 0.5); }, "RandomResizedCrop's scale needs a range from low to high"},
      {[&] { RandomResizedCrop(3).ratio(1, infinite); }, "RandomResizedCrop's ratio needs a range"},
      {[] { RandomRotation(-1); }, "RandomRotation's degrees needs a number of at least 0 or a range, got -1"},
      {[&] { RandomRotation r(infinite); }, "RandomRotation's degrees needs a range"},
      {[&] { RandomRotation(-infinite, 0); }, "RandomRotation's degrees needs a range"},
      {[] { RandomRotation(2, 1); }, "from low to high, got 2 and 1"},
      {[] { RandomAffine(-1); }, "RandomAffine's degrees needs a number"},
      {[] { RandomAffine(2, 1); }, "RandomAffine's degrees needs a range"},
      {[] { RandomAffine(0).translate(1.5, 0); }, "RandomAffine's translate needs a probability"},
      {[] { RandomAffine(0).translate(0, -0.5); }, "RandomAffine's translate needs a probability"},
      {[] { RandomAffine(0).scale(-1, 1); }, "RandomAffine's scale needs numbers above 0"},
      {[] { RandomAffine(0).scale(2, 1); }, "RandomAffine's scale needs a range"},
      {[] { RandomAffine(0).shear(-1); }, "RandomAffine's shear needs a number"},
      {[] { RandomAffine(0).shear(2, 1); }, "RandomAffine's shear needs a range"},
      {[] { RandomAffine(0).shear(1, 2, 4, 3); }, "RandomAffine's shear needs a range"},
      {[] { Grayscale(2); }, "Grayscale needs 1 or 3 output channels, got 2"},
      {[] { ColorJitter(-1); }, "ColorJitter needs numbers of at least 0, got -1"},
      {[&] { ColorJitter(0, infinite); }, "ColorJitter needs numbers"},
      {[&] { ColorJitter(0, 0, nan); }, "ColorJitter needs numbers"},
      {[] { ColorJitter(0, 0, 0, -0.1); }, "ColorJitter needs a hue in [0, 0.5]"},
      {[] { ColorJitter(0, 0, 0, 0.51); }, "ColorJitter needs a hue"},
      {[] { RandomErasing(0.5).scale(-0.1, 1); }, "RandomErasing needs a scale"},
      {[] { RandomErasing(0.5).scale(0.5, 0.4); }, "RandomErasing needs a scale"},
      {[] { RandomErasing(0.5).scale(0.5, 1.1); }, "RandomErasing needs a scale"},
      {[] { RandomErasing(0.5).ratio(0, 1); }, "RandomErasing needs a ratio"},
      {[] { RandomErasing(0.5).ratio(2, 1); }, "RandomErasing needs a ratio"},
      {[&] { RandomErasing(0.5).ratio(2, infinite); }, "RandomErasing needs a ratio"},
      {[] { Cutout(0); }, "Cutout needs a length and a number of holes above 0, got 0 and 1"},
      {[] { Cutout(1, 0); }, "got 1 and 0"},
      {[] { MixUp(0); }, "MixUp needs at least one class, got 0"},
      {[] { MixUp(1, 0); }, "MixUp needs an alpha above 0, got 0"},
      {[&] { MixUp(1, infinite); }, "MixUp needs an alpha"}};
  for (const auto& [make, message] : wrong) {
    CAPTURE(message);
    CHECK_THROWS_AS(make(), ValueError);
    CHECK_THROWS_WITH(make(), contains(message));
  }
  // The ends of the ranges.
  CHECK_NOTHROW(RandomHorizontalFlip(0));
  CHECK_NOTHROW(RandomHorizontalFlip(1));
  CHECK_NOTHROW(RandomResizedCrop({1, 1}).scale(0.5, 0.5).ratio(2, 2));
  CHECK_NOTHROW(RandomRotation(0));
  CHECK_NOTHROW(RandomRotation(1, 1));
  CHECK_NOTHROW(RandomAffine(0).translate(0, 1).scale(1, 1).shear(0));
  CHECK_NOTHROW(ColorJitter(0, 0, 0, 0.5));
  CHECK_NOTHROW(RandomErasing(0.5).scale(0, 0).scale(1, 1).ratio(1, 1));
  CHECK_NOTHROW(Cutout(1, 1));
  CHECK_NOTHROW(MixUp(1));
  CHECK_NOTHROW(Grayscale(1));

  const Tensor data = zeros({2, 3}), classes = tensor({0, 2});
  CHECK_NOTHROW(MixUp(3).apply_batch({data, classes}));
  CHECK_THROWS_WITH(MixUp(2).apply_batch({data, classes}), contains("MixUp for 2 classes got class 2"));
  CHECK_THROWS_WITH(MixUp(3).apply_batch({data, tensor({0, -1})}), contains("got class -1"));
  CHECK_THROWS_AS(MixUp(3).apply_batch({data.to(kDouble), classes}), DTypeError);
  CHECK_THROWS_AS(MixUp(3).apply_batch({data, classes.to(kInt)}), DTypeError);
  CHECK_THROWS_AS(MixUp(3).apply_batch({data, classes.view({2, 1})}), ShapeError);
  CHECK_THROWS_AS(MixUp(3).apply_batch({data, tensor({0, 1, 2})}), ShapeError);
  CHECK_THROWS_AS(MixUp(3).apply_batch({zeros({}), classes}), ShapeError);
}

TEST_CASE("Resize keeps the aspect ratio of an image if it gets one number", "[data][transforms]") {
  for (const auto& [height, width, new_height, new_width] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{20, 30, 7, 10}, {30, 20, 10, 7}, {9, 9, 7, 7}, {5, 19, 7, 26}}) {
    const Tensor x = image(2, height, width);
    CHECK(Resize(7)(x).equal(f::resize(x, {new_height, new_width})));
    CHECK(Resize(7).interpolation(nearest)(x).equal(f::resize(x, {new_height, new_width}, nearest)));
    CHECK(Resize({7, 3}).antialias(false)(x).equal(f::resize(x, {7, 3}, bilinear, false)));
  }
  CHECK(Resize(7).describe() == "Resize(shorter side 7, bilinear, antialias)");
  CHECK(Resize({7, 8}).antialias(false).interpolation(nearest).describe() == "Resize(7x8, nearest)");
  CHECK(CenterCrop({7, 8}).describe() == "CenterCrop(7x8)");
  CHECK(Pad(Padding(1, 2, 3, 4)).describe() == "Pad(left 1, top 2, right 3, bottom 4)");
  CHECK(Pad(Padding(5, 6)).describe() == "Pad(left 5, top 6, right 5, bottom 6)");
  CHECK(Pad(7).describe() == "Pad(left 7, top 7, right 7, bottom 7)");
  CHECK(Grayscale().describe() == "Grayscale(1)");
  CHECK(Pad({1, 2}, 0.5, PaddingMode::kEdge)(image(1, 3, 3))
            .equal(f::pad(image(1, 3, 3), {1, 2}, 0.5, PaddingMode::kEdge)));
}
