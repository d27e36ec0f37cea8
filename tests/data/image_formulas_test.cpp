// Compares the operations of data/images/image_ops.h bit by bit with their formulas, which this file computes pixel by
// pixel.
#include <gradus/data/images/image_ops.h>

#include <algorithm>
#include <cmath>

#include <gradus/autograd/autograd.h>
#include <gradus/data/transforms/image_transforms.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using namespace gradus::data::transforms;
namespace f = gradus::data::transforms::functional;

namespace {

// Returns an image (channels, height, width) in [0, 1). Some of its pixels are grey, black or white.
Tensor picture(int64_t channels, int64_t height, int64_t width) {
  const Tensor x = rand({channels, height, width});
  float* to = x.data_ptr<float>();
  const int64_t pixels = height * width;
  for (int64_t k = 0; k < pixels; ++k)
    for (int64_t c = 0; c < channels; ++c) {
      if (k % 7 == 1) to[c * pixels + k] = to[k];
      if (k % 7 == 2) to[c * pixels + k] = static_cast<float>(k % 2);
      if (k % 7 == 3 && c == 2) to[c * pixels + k] = to[k];  // red and blue are equal
    }
  return x;
}

// Computes one pixel of one plane of sample_affine.
float sampled(const float* plane, int64_t height, int64_t width, const f::AffineMap& map, ImageSize size, int64_t row,
              int64_t column, Interpolation interpolation, float fill) {
  const double x = 0.5 - static_cast<double>(size.width) / 2;
  const double y = static_cast<double>(row) + 0.5 - static_cast<double>(size.height) / 2;
  const auto position = [&](const double* m, int64_t extent) {
    const float first = static_cast<float>(m[0] * x + m[1] * y + m[2] + static_cast<double>(extent) / 2 - 0.5);
    return std::clamp(first + static_cast<float>(column) * static_cast<float>(m[0]), -2.0f,
                      static_cast<float>(extent) + 2);
  };
  const float u = position(map.m, width), v = position(map.m + 3, height);
  const auto pixel = [&](float px, float py) {
    const int64_t i = static_cast<int64_t>(px), j = static_cast<int64_t>(py);
    return i >= 0 && i < width && j >= 0 && j < height ? plane[j * width + i] : fill;
  };
  if (interpolation == Interpolation::kNearest) return pixel(std::nearbyint(u), std::nearbyint(v));
  const float x0 = std::floor(u), y0 = std::floor(v), a = u - x0, b = v - y0;
  const float top = pixel(x0, y0) + a * (pixel(x0 + 1, y0) - pixel(x0, y0));
  const float bottom = pixel(x0, y0 + 1) + a * (pixel(x0 + 1, y0 + 1) - pixel(x0, y0 + 1));
  return top + b * (bottom - top);
}

struct Color {
  float r, g, b;
};

// Applies a formula for the colour of one pixel to all pixels of an image.
template <class Formula>
Tensor each_color(const Tensor& image, const Formula& formula) {
  const Tensor y = empty_like(image);
  const int64_t pixels = image.numel() / 3;
  const float* from = image.data_ptr<float>();
  float* to = y.data_ptr<float>();
  for (int64_t k = 0; k < pixels; ++k) {
    const Color color = formula(Color{from[k], from[pixels + k], from[2 * pixels + k]});
    to[k] = color.r, to[pixels + k] = color.g, to[2 * pixels + k] = color.b;
  }
  return y;
}

float in_range(float value) { return std::clamp(value, 0.0f, 1.0f); }
float gray(const Color& c) { return 0.2989f * c.r + 0.587f * c.g + 0.114f * c.b; }

Color turned(const Color& c, float turn) {
  const float most = std::max({c.r, c.g, c.b}), range = most - std::min({c.r, c.g, c.b});
  float h = 0, s = 0;
  if (range != 0) {
    const float rc = (most - c.r) / range, gc = (most - c.g) / range, bc = (most - c.b) / range;
    const float sextant = most == c.r ? bc - gc : most == c.g ? 2 + rc - bc : 4 + gc - rc;
    h = std::fmod(sextant / 6 + 1, 1.0f), s = range / most;
  }
  h += turn;
  h -= std::floor(h);
  const float side = std::floor(h * 6), rest = h * 6 - side, v = most;
  const float p = in_range(v * (1 - s)), q = in_range(v * (1 - s * rest)), t = in_range(v * (1 - s * (1 - rest)));
  switch (static_cast<int>(side) % 6) {
    case 0: return {v, t, p};
    case 1: return {q, v, p};
    case 2: return {p, v, t};
    case 3: return {p, q, v};
    case 4: return {t, p, v};
    default: return {v, p, q};
  }
}

}  // namespace

TEST_CASE("sample_affine equals its formula exactly", "[data][image]") {
  manual_seed(11);
  const f::AffineMap maps[] = {f::inverse_affine_map(7, 2, -1, 1.05, 3, 0),
                               f::inverse_affine_map(-200, 0.3, 5, 0.4, 0, 20), f::inverse_affine_map(0, 0, 0, 1, 0, 0),
                               f::inverse_affine_map(45, 1e9, 0, 1e-3, 0, 0)};
  for (const auto& [channels, height, width] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 28, 28}, {3, 9, 14}, {1, 1, 1}, {2, 3, 300}}) {
    const Tensor x = picture(channels, height, width);
    std::vector<double> fill;
    for (int64_t c = 0; c < channels; ++c) fill.push_back(0.25 * static_cast<double>(c));
    for (const f::AffineMap& map : maps)
      for (const ImageSize& size : {ImageSize(height, width), ImageSize(5, 270)})
        for (Interpolation interpolation : {Interpolation::kNearest, Interpolation::kBilinear}) {
          const Tensor expected = empty({channels, size.height, size.width});
          float* to = expected.data_ptr<float>();
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t row = 0; row < size.height; ++row)
              for (int64_t column = 0; column < size.width; ++column)
                *to++ = sampled(x.data_ptr<float>() + c * height * width, height, width, map, size, row, column,
                                interpolation, static_cast<float>(fill[static_cast<size_t>(c)]));
          CHECK(f::sample_affine(x, map, size, interpolation, fill).equal(expected));
        }
  }
  // If a position is NaN, the pixel counts as outside of the image.
  const f::AffineMap lost = {{-1e300, 1e300, 0, 1e300, 1e300, 0}};
  for (Interpolation interpolation : {Interpolation::kNearest, Interpolation::kBilinear})
    CHECK(f::sample_affine(picture(1, 4, 4), lost, 4, interpolation, 0.5).equal(full({1, 4, 4}, 0.5)));
}

TEST_CASE("colour operations equal their formulas exactly", "[data][image]") {
  manual_seed(12);
  for (const int64_t width : {1, 3, 8, 61}) {
    const Tensor x = picture(3, 5, width);
    for (const float turn : {0.f, 0.1f, -0.1f, 0.5f, -0.5f, 1e-9f, -1e-9f})
      CHECK(f::adjust_hue(x, turn).equal(each_color(x, [&](const Color& c) { return turned(c, turn); })));
    for (const float factor : {0.f, 0.6f, 1.4f}) {
      CHECK(f::adjust_saturation(x, factor).equal(each_color(x, [&](const Color& c) {
        const float rest = (1 - factor) * gray(c);
        return Color{in_range(factor * c.r + rest), in_range(factor * c.g + rest), in_range(factor * c.b + rest)};
      })));
      double sum = 0;
      each_color(x, [&](const Color& c) { return sum += gray(c), c; });
      const float rest = (1 - factor) * static_cast<float>(sum / static_cast<double>(5 * width));
      const auto contrast = [&](float value) { return in_range(factor * value + rest); };
      CHECK(f::adjust_contrast(x, factor).equal(each_color(x, [&](const Color& c) {
        return Color{contrast(c.r), contrast(c.g), contrast(c.b)};
      })));
    }
  }
}

TEST_CASE("padded_crop is a crop of the padded image", "[data][image]") {
  manual_seed(13);
  const Tensor x = picture(3, 6, 9);
  const Padding padding(2, 1, 4, 3);
  for (PaddingMode mode :
       {PaddingMode::kConstant, PaddingMode::kEdge, PaddingMode::kReflect, PaddingMode::kSymmetric}) {
    const Tensor padded = f::pad(x, padding, 0.5, mode);  // 10 x 15
    for (const int64_t top : {0, 1, 4})
      for (const int64_t left : {0, 3, 8})
        CHECK(f::padded_crop(x, padding, top, left, {6, 7}, 0.5, mode).equal(f::crop(padded, top, left, 6, 7)));
    CHECK(f::padded_crop(x, padding, 0, 0, {10, 15}, 0.5, mode).equal(padded));
  }
  CHECK_THROWS_WITH(f::padded_crop(x, padding, 5, 0, {6, 7}), contains("not within a padded image of 10x15"));
  CHECK_THROWS_AS(f::padded_crop(x, padding, 0, -1, {6, 7}), ValueError);
  CHECK_THROWS_AS(f::padded_crop(x, {0, 7}, 0, 0, 4, 0, PaddingMode::kReflect), ValueError);
}

TEST_CASE("RandomCrop pads a second time if the image is too small", "[data][transforms]") {
  manual_seed(14);
  const Tensor x = picture(1, 4, 5);
  const RandomCrop crop = RandomCrop({9, 6}).padding(1).pad_if_needed().padding_mode(PaddingMode::kReflect);
  const Tensor padded = f::pad(f::pad(x, 1, 0, PaddingMode::kReflect), {0, 3}, 0, PaddingMode::kReflect);  // 12 x 7
  bool found = false;
  const Tensor y = crop(x);
  for (int64_t top = 0; top <= 3; ++top)
    for (int64_t left = 0; left <= 1; ++left) found = found || y.equal(f::crop(padded, top, left, 9, 6));
  CHECK(found);
}
