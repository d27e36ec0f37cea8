// Compares the operations of data/images/image_ops.h bit by bit with their formulas, which this file computes pixel by
// pixel.
#include <gradus/data/images/image_ops.h>

#include <algorithm>
#include <cmath>
#include <functional>

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

namespace {

/// Shapes of images and of batches of them.
const std::vector<Shape> kShapes = {{5, 7}, {1, 4, 6}, {3, 6, 3}, {2, 3, 4, 5}, {2, 1, 1, 1}, {2, 2, 3, 1, 6}};

/// Computes an image pixel by pixel: value(plane, row, column), where `plane` is an image (H, W) of x.
template <class Value>
Tensor each_pixel(const Tensor& x, int64_t height, int64_t width, const Value& value) {
  const int64_t rows = x.size(-2), columns = x.size(-1);
  Shape shape = x.sizes();
  shape[shape.size() - 2] = height, shape[shape.size() - 1] = width;
  const Tensor y = empty(shape);
  float* to = y.data_ptr<float>();
  for (int64_t plane = 0; plane < x.numel() / (rows * columns); ++plane)
    for (int64_t row = 0; row < height; ++row)
      for (int64_t column = 0; column < width; ++column)
        *to++ = value(x.data_ptr<float>() + plane * rows * columns, plane, row, column);
  return y;
}

/// The row or column of an image of `size` that padding shows at `i`; -1 outside of the image. Mirrors one step after
/// the other.
int64_t place_of(int64_t i, int64_t size, PaddingMode mode) {
  if (i >= 0 && i < size) return i;
  switch (mode) {
    case PaddingMode::kConstant: return -1;
    case PaddingMode::kEdge: return i < 0 ? 0 : size - 1;
    case PaddingMode::kReflect: return place_of(i < 0 ? -i : size - 1 - (i - (size - 1)), size, mode);
    default: return place_of(i < 0 ? -1 - i : size - 1 - (i - size), size, mode);
  }
}

}  // namespace

TEST_CASE("parts of padded images equal their formula exactly", "[data][image]") {
  manual_seed(15);
  for (const Shape& shape : kShapes) {
    CAPTURE(shape);
    const Tensor x = rand(shape);
    const int64_t rows = x.size(-2), columns = x.size(-1);
    const auto window = [&](int64_t top, int64_t left, int64_t height, int64_t width, PaddingMode mode, float fill) {
      return each_pixel(x, height, width, [&](const float* from, int64_t, int64_t row, int64_t column) {
        const int64_t i = place_of(top + row, rows, mode), j = place_of(left + column, columns, mode);
        return i < 0 || j < 0 ? fill : from[i * columns + j];
      });
    };
    const auto constant = PaddingMode::kConstant;
    for (const int64_t top : {-9, -2, -1, 0, 1, 3, 9})
      for (const int64_t left : {-9, -2, -1, 0, 1, 4, 9})
        for (const int64_t side : {1, 2, 12})
          CHECK(f::crop(x, top, left, side, 13 - side).equal(window(top, left, side, 13 - side, constant, 0)));
    for (int64_t height = 1; height < 10; ++height)
      for (const int64_t width : {height, 10 - height}) {
        const auto middle = [](int64_t rest) {  // rounds halves to the even number
          const int64_t lower = (rest - (rest % 2 != 0)) / 2;
          return rest % 2 != 0 && lower % 2 != 0 ? lower + 1 : lower;
        };
        CHECK(f::center_crop(x, {height, width})
                  .equal(window(middle(rows - height), middle(columns - width), height, width, constant, 0)));
      }
    for (PaddingMode mode : {constant, PaddingMode::kEdge, PaddingMode::kReflect, PaddingMode::kSymmetric}) {
      CAPTURE(static_cast<int>(mode));
      const int64_t spare = mode == PaddingMode::kReflect ? 1 : 0, most_x = columns - spare, most_y = rows - spare;
      const auto padded = [&](const Padding& padding) {
        return window(-padding.top, -padding.left, rows + padding.top + padding.bottom,
                      columns + padding.left + padding.right, mode, 0.5);
      };
      for (const Padding& padding : {Padding(0), Padding(most_x, 0, 0, most_y), Padding(0, most_y, most_x, 0),
                                     Padding(most_x, most_y), Padding(most_x / 2, most_y / 2, most_x, 0)})
        CHECK(f::pad(x, padding, 0.5, mode).equal(padded(padding)));
      for (const Padding& padding : {Padding(most_x + 1, 0, 0, 0), Padding(0, most_y + 1, 0, 0),
                                     Padding(0, 0, most_x + 1, 0), Padding(0, 0, 0, most_y + 1)}) {
        if (mode == constant || mode == PaddingMode::kEdge) CHECK(f::pad(x, padding, 0.5, mode).equal(padded(padding)));
        else CHECK_THROWS_WITH(f::pad(x, padding, 0.5, mode), contains("cannot mirror more than there is"));
      }
      for (const Padding& padding :
           {Padding(-1, 0, 0, 0), Padding(0, -1, 0, 0), Padding(0, 0, -1, 0), Padding(0, 0, 0, -1)})
        CHECK_THROWS_WITH(f::pad(x, padding, 0.5, mode), contains("paddings of at least 0, got -1"));
    }
    CHECK(f::hflip(x).equal(each_pixel(x, rows, columns, [&](const float* from, int64_t, int64_t row, int64_t column) {
      return from[row * columns + columns - 1 - column];
    })));
    CHECK(f::vflip(x).equal(each_pixel(x, rows, columns, [&](const float* from, int64_t, int64_t row, int64_t column) {
      return from[(rows - 1 - row) * columns + column];
    })));
  }
  // A padded_crop may touch each side of the padded image.
  const Tensor x = rand({2, 4, 6});
  const Padding padding(1, 2, 3, 4);  // 10 x 10
  CHECK(f::padded_crop(x, padding, 4, 7, {6, 3}).equal(f::crop(x, 2, 6, 6, 3)));
  CHECK_THROWS_WITH(f::padded_crop(x, padding, 4, 7, {7, 3}), contains("rows 4 + 7 and columns 7 + 3 are not within"));
  CHECK_THROWS_WITH(f::padded_crop(x, padding, 4, 7, {6, 4}), contains("not within a padded image of 10x10"));
  CHECK_THROWS_WITH(f::padded_crop(x, padding, -1, 7, {6, 3}), contains("not within"));
  CHECK_THROWS_WITH(f::padded_crop(x, padding, 4, -1, {6, 3}), contains("not within"));
}

TEST_CASE("resize equals its formula", "[data][image]") {
  manual_seed(16);
  for (const Shape& shape : kShapes) {
    const Tensor x = rand(shape);
    const int64_t rows = x.size(-2), columns = x.size(-1);
    for (const ImageSize& size : {ImageSize(1), ImageSize(2, 5), ImageSize(5, 2), ImageSize(13, 3), ImageSize(4, 17),
                                  ImageSize(rows, columns), ImageSize(2 * rows, 3 * columns)}) {
      CAPTURE(shape, size.height, size.width);
      CHECK(f::resize(x, size, Interpolation::kNearest)
                .equal(each_pixel(x, size.height, size.width, [&](const float* from, int64_t, int64_t i, int64_t j) {
                  return from[i * rows / size.height * columns + j * columns / size.width];
                })));
      for (const bool antialias : {false, true}) {
        const auto weight = [&](int64_t j, int64_t i, int64_t from, int64_t to) {
          const double scale = static_cast<double>(from) / static_cast<double>(to);
          const double radius = antialias ? std::max(1.0, scale) : 1;
          const double distance = static_cast<double>(j) + 0.5 - (static_cast<double>(i) + 0.5) * scale;
          return std::max(0.0, 1 - std::abs(distance) / radius);
        };
        const Tensor expected =
            each_pixel(x, size.height, size.width, [&](const float* from, int64_t, int64_t i, int64_t j) {
              double sum = 0, weights = 0;
              for (int64_t row = 0; row < rows; ++row)
                for (int64_t column = 0; column < columns; ++column) {
                  const double w = weight(row, i, rows, size.height) * weight(column, j, columns, size.width);
                  sum += w * from[row * columns + column], weights += w;
                }
              return static_cast<float>(sum / weights);
            });
        CHECK(f::resize(x, size, Interpolation::kBilinear, antialias).allclose(expected, 1e-5, 1e-6));
      }
    }
  }
  const Tensor x = rand({2, 6, 7});
  CHECK(f::resized_crop(x, 1, 2, 4, 3, {5, 6}, Interpolation::kNearest)
            .equal(f::resize(x.slice(1, 1, 5).slice(2, 2, 5), {5, 6}, Interpolation::kNearest)));
  CHECK(f::resized_crop(x, 1, 2, 4, 3, {2, 2}, Interpolation::kBilinear, false)
            .equal(f::resize(x.slice(1, 1, 5).slice(2, 2, 5), {2, 2}, Interpolation::kBilinear, false)));
}

TEST_CASE("erase fills a rectangle of every image", "[data][image]") {
  manual_seed(17);
  for (const Shape& shape : kShapes) {
    const Tensor x = rand(shape);
    const int64_t rows = x.size(-2), columns = x.size(-1), channels = x.dim() > 2 ? x.size(-3) : 1;
    Fill fill;
    for (int64_t c = 1; c < channels; ++c) fill.values.push_back(0.25 * static_cast<double>(c));
    for (int64_t top = 0; top <= rows; ++top)
      for (int64_t left = 0; left <= columns; ++left) {
        const int64_t height = (rows - top + 1) / 2, width = columns - left;
        CHECK(
            f::erase(x, top, left, height, width, fill)
                .equal(each_pixel(x, rows, columns, [&](const float* from, int64_t plane, int64_t row, int64_t column) {
                  const bool is_inside = row >= top && row < top + height && column >= left && column < left + width;
                  return is_inside ? static_cast<float>(fill.values[static_cast<size_t>(plane % channels)])
                                   : from[row * columns + column];
                })));
      }
    const auto refuses = [&](int64_t top, int64_t left, int64_t height, int64_t width) {
      CHECK_THROWS_WITH(f::erase(x, top, left, height, width), contains("are not within an image of shape"));
    };
    refuses(-1, 0, 1, 1), refuses(0, -1, 1, 1), refuses(0, 0, -1, 1), refuses(0, 0, 1, -1);
    refuses(1, 0, rows, 1), refuses(0, 1, 1, columns), refuses(rows + 1, 0, 0, 0), refuses(0, columns + 1, 0, 0);
  }
  const Fill two = std::vector<double>{1, 2};
  CHECK_NOTHROW(f::pad(zeros({2, 3, 3}), 1, two));
  CHECK_THROWS_WITH(f::pad(zeros({3, 3, 3}), 1, two),
                    contains("pad has 2 fill values for an image of shape (3, 3, 3)"));
  CHECK_THROWS_WITH(f::erase(zeros({2, 2}), 0, 0, 1, 1, two), contains("erase has 2 fill values"));
}

TEST_CASE("the size of a rotated image is that of its corners' box", "[data][image]") {
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{3, 8}, {9, 4}, {1, 1}, {5, 5}})
    for (const double angle : {0.0, 10.0, 45.0, 90.0, 100.0, 180.0, -30.0, 270.0}) {
      CAPTURE(height, width, angle);
      const double turn = angle / 180 * 3.14159265358979323846, c = std::abs(std::cos(turn)),
                   s = std::abs(std::sin(turn));
      const double h = static_cast<double>(height), w = static_cast<double>(width);
      const Tensor y = f::rotate(ones({2, height, width}), angle, Interpolation::kNearest, true);
      CHECK(y.sizes() == Shape{2, static_cast<int64_t>(std::ceil(s * w + c * h - 1e-4)),
                               static_cast<int64_t>(std::ceil(c * w + s * h - 1e-4))});
    }
  const Tensor x = rand({2, 3, 5});
  CHECK(f::rotate(x, 90, Interpolation::kNearest, true).equal(f::vflip(x.transpose(1, 2).contiguous())));
  CHECK(f::rotate(x, -90, Interpolation::kNearest, true).equal(f::hflip(x.transpose(1, 2).contiguous())));
  CHECK(f::rotate(x, 180).equal(f::hflip(f::vflip(x))));
}

TEST_CASE("grey images and batches have the colour operations of single images", "[data][image]") {
  manual_seed(18);
  const Tensor batch = rand({2, 3, 5, 7}), grey = rand({2, 1, 5, 7}), plane = rand({5, 7});
  const std::vector<std::function<Tensor(const Tensor&)>> operations = {
      [](const Tensor& x) { return f::rgb_to_grayscale(x); },
      [](const Tensor& x) { return f::rgb_to_grayscale(x, 3); },
      [](const Tensor& x) { return f::adjust_brightness(x, 1.5); },
      [](const Tensor& x) { return f::adjust_contrast(x, 1.5); },
      [](const Tensor& x) { return f::adjust_saturation(x, 1.5); },
      [](const Tensor& x) { return f::adjust_hue(x, 0.25); }};
  for (const auto& f : operations) {
    for (const Tensor& images : {batch, grey}) CHECK(f(images).equal(stack({f(images[0]), f(images[1])})));
    CHECK(f(plane).numel() == f(plane.unsqueeze(0)).numel());
    CHECK(f(plane).reshape({-1}).equal(f(plane.unsqueeze(0)).reshape({-1})));
  }
  CHECK(f::rgb_to_grayscale(plane, 3).equal(stack({plane, plane, plane})));
  CHECK(f::rgb_to_grayscale(grey, 3).equal(cat({grey, grey, grey}, 1)));
  const auto clamped = [](const Tensor& x) { return x.clamp(0, 1); };
  CHECK(f::adjust_brightness(plane, 1.5).allclose(clamped(plane * 1.5)));
  CHECK(f::adjust_contrast(plane, 1.5).allclose(clamped(plane * 1.5 - plane.mean() * 0.5), 1e-5, 1e-6));
  CHECK(f::adjust_saturation(plane, 1.5).equal(plane));
  CHECK(f::adjust_hue(plane, 0.25).equal(plane));
  const double infinite = INFINITY;
  for (const double factor : {-0.1, infinite, -infinite, std::nan("")}) {
    CHECK_THROWS_WITH(f::adjust_brightness(batch, factor), contains("adjust_brightness needs a factor of at least 0"));
    CHECK_THROWS_WITH(f::adjust_contrast(batch, factor), contains("adjust_contrast needs a factor"));
    CHECK_THROWS_WITH(f::adjust_saturation(batch, factor), contains("adjust_saturation needs a factor"));
    CHECK_THROWS_WITH(f::adjust_hue(batch, 6 * factor), contains("adjust_hue needs a factor in [-0.5, 0.5]"));
  }
  for (const int64_t channels : {0, 2, 4})
    CHECK_THROWS_WITH(f::rgb_to_grayscale(batch, channels), contains("1 or 3 output channels, got "));
  CHECK(f::adjust_brightness(batch, 0).equal(zeros({2, 3, 5, 7})));
}

TEST_CASE("images without pixels, without rows or of another type are refused", "[data][image]") {
  const Tensor image = rand({2, 3, 4});
  for (const Shape& shape : {Shape{3, 0, 4}, {3, 4, 0}, {0, 4}, {4, 0}})
    CHECK_THROWS_WITH(f::hflip(empty(shape)), contains("hflip needs images with pixels, got shape "));
  for (const Shape& shape : {Shape{}, {4}})
    CHECK_THROWS_WITH(f::vflip(empty(shape)), contains("vflip needs images (…, H, W), got shape "));
  CHECK_THROWS_WITH(f::erase(image.to(kByte), 0, 0, 1, 1), contains("erase needs float32 images, got uint8"));
  CHECK(f::hflip(empty({0, 4, 5})).sizes() == Shape{0, 4, 5});  // no images, but of a size
  for (const ImageSize& size : {ImageSize(0, 1), ImageSize(1, 0), ImageSize(-1, 1), ImageSize(1, -1)}) {
    const std::string message = "an image needs a height and a width above 0, got ";
    CHECK_THROWS_WITH(f::crop(image, 0, 0, size.height, size.width),
                      contains(message + std::to_string(size.height) + " and " + std::to_string(size.width)));
    CHECK_THROWS_WITH(f::resize(image, size), contains(message));
  }
  for (const double scale : {0.0, -1.0})
    CHECK_THROWS_WITH(f::inverse_affine_map(0, 0, 0, scale, 0, 0), contains("affine needs a scale above 0, got "));
  for (int i = 0; i < 6; ++i) {
    f::AffineMap map = {{1, 0, 0, 0, 1, 0}};
    map.m[i] = INFINITY;
    CHECK_THROWS_WITH(f::sample_affine(image, map, 3, Interpolation::kNearest, 0),
                      contains("affine needs finite numbers"));
  }
}
