// Affine maps of images.
#include <gradus/data/images/image_ops.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradus::data::transforms::functional {
namespace {

using detail::Planes;

double radians(double degrees) { return degrees * std::numbers::pi / 180; }

// Positions are clamped to [-2, size + 2], because everything beyond is outside of the image in any case. The image
// gets a border of `outside` that contains the four pixels around every such position, so that the inner loops need no
// checks.
constexpr int64_t kBefore = 2, kAfter = 4;

Planes bordered(const Planes& x, const std::vector<float>& outside) {
  const Planes y = detail::planes_like(x, {x.height + kBefore + kAfter, x.width + kBefore + kAfter});
  for (int64_t i = 0; i < x.count; ++i) {
    const float fill = outside[static_cast<size_t>(i)];
    const float* from = x.plane(i);
    float* to = std::fill_n(y.plane(i), kBefore * y.width, fill);
    for (int64_t row = 0; row < x.height; ++row, from += x.width)
      to = std::fill_n(std::copy_n(from, x.width, std::fill_n(to, kBefore, fill)), kAfter, fill);
    std::fill_n(to, kAfter * y.width, fill);
  }
  return y;
}

// The sources of a part of a row: the pixel at or before each position and the fraction to the next pixel.
struct Places {
  static constexpr int64_t kMost = 128;
  int32_t x[kMost], y[kMost];
  float a[kMost], b[kMost];
};

// NaN is treated as outside, too.
float within(float value, float low, float high) {
  const float raised = value > low ? value : low;
  return raised < high ? raised : high;
}

// std::floor is a function call on baseline x86-64, so truncate to int32; positions are far from its limits.
int32_t floor_of(float value) {
  const int32_t truncated = static_cast<int32_t>(value);
  return truncated - (value < static_cast<float>(truncated) ? 1 : 0);
}

// Rounds to the nearest integer and halves to the even integer, as grid_sample does. After adding 1.5 * 2^23, a float
// has no bits left for a fraction.
int32_t round_of(float value) { return static_cast<int32_t>((value + 12582912.0f) - 12582912.0f); }

// Computes the positions first + column * step of `count` pixels starting at `column`.
void find_places(Places& at, int64_t column, int64_t count, float first_u, float step_u, float far_u, float first_v,
                 float step_v, float far_v, Interpolation interpolation) {
  const bool nearest = interpolation == Interpolation::kNearest;
  const int32_t start = static_cast<int32_t>(column), size = static_cast<int32_t>(count);
  for (int32_t i = 0; i < size; ++i) {
    const float place = static_cast<float>(start + i);
    const float u = within(first_u + place * step_u, -2.0f, far_u);
    const float v = within(first_v + place * step_v, -2.0f, far_v);
    at.x[i] = nearest ? round_of(u) : floor_of(u);
    at.y[i] = nearest ? round_of(v) : floor_of(v);
    at.a[i] = u - static_cast<float>(at.x[i]);
    at.b[i] = v - static_cast<float>(at.y[i]);
  }
}

// `corner` is pixel (0, 0) of a bordered image.
void sample_nearest(const Places& at, int64_t count, const float* corner, int64_t row_length, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = corner[at.y[i] * row_length + at.x[i]];
}

void sample_bilinear(const Places& at, int64_t count, const float* corner, int64_t row_length, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    const float* p = corner + at.y[i] * row_length + at.x[i];
    const float* q = p + row_length;
    const float top = p[0] + at.a[i] * (p[1] - p[0]), bottom = q[0] + at.a[i] * (q[1] - q[0]);
    to[i] = top + at.b[i] * (bottom - top);
  }
}

}  // namespace

AffineMap inverse_affine_map(double angle, double translate_x, double translate_y, double scale, double shear_x,
                             double shear_y, double center_x, double center_y) {
  GRADUS_CHECK(scale > 0, ValueError, "affine needs a scale above 0, got ", scale);
  const double rotation = radians(angle), sx = radians(shear_x), sy = radians(shear_y);
  const double cosine = std::cos(rotation - sy), sine = std::sin(rotation - sy);
  const double cos_sy = std::cos(sy), tan_sx = std::tan(sx);
  const double a = cosine / cos_sy, b = -cosine * tan_sx / cos_sy - std::sin(rotation);
  const double c = sine / cos_sy, d = -sine * tan_sx / cos_sy + std::cos(rotation);
  // The determinant of [a b; c d] is 1.
  AffineMap map = {{d / scale, -b / scale, 0, -c / scale, a / scale, 0}};
  const double x = -center_x - translate_x, y = -center_y - translate_y;
  map.m[2] = map.m[0] * x + map.m[1] * y + center_x;
  map.m[5] = map.m[3] * x + map.m[4] * y + center_y;
  return map;
}

Tensor sample_affine(const Tensor& image, const AffineMap& map, ImageSize size, Interpolation interpolation,
                     const Fill& fill) {
  const Planes x = detail::planes_of(image, "affine"), y = detail::planes_like(x, size);
  for (double value : map.m) GRADUS_CHECK(std::isfinite(value), ValueError, "affine needs finite numbers");
  std::vector<float> outside;
  for (int64_t i = 0; i < x.count; ++i) outside.push_back(detail::fill_of(fill, x, i, "affine"));
  const Planes source = bordered(x, outside);
  const auto sample = interpolation == Interpolation::kNearest ? sample_nearest : sample_bilinear;
  const float step_u = static_cast<float>(map.m[0]), step_v = static_cast<float>(map.m[3]);
  const float far_u = static_cast<float>(x.width) + 2, far_v = static_cast<float>(x.height) + 2;
  Places at;
  for (int64_t row = 0; row < size.height; ++row) {
    // Positions are relative to the middle of an image; the middle of pixel 0 is at 1/2 - size / 2.
    const double first_x = 0.5 - static_cast<double>(size.width) / 2;
    const double row_y = static_cast<double>(row) + 0.5 - static_cast<double>(size.height) / 2;
    const float first_u =
        static_cast<float>(map.m[0] * first_x + map.m[1] * row_y + map.m[2] + static_cast<double>(x.width) / 2 - 0.5);
    const float first_v =
        static_cast<float>(map.m[3] * first_x + map.m[4] * row_y + map.m[5] + static_cast<double>(x.height) / 2 - 0.5);
    for (int64_t column = 0; column < size.width; column += Places::kMost) {
      const int64_t count = std::min(Places::kMost, size.width - column);
      find_places(at, column, count, first_u, step_u, far_u, first_v, step_v, far_v, interpolation);
      for (int64_t i = 0; i < x.count; ++i)
        sample(at, count, source.plane(i) + kBefore * source.width + kBefore, source.width,
               y.plane(i) + row * size.width + column);
    }
  }
  return Tensor(y.array);
}

Tensor affine(const Tensor& image, double angle, std::pair<double, double> translate, double scale,
              std::pair<double, double> shear, Interpolation interpolation, const Fill& fill,
              std::optional<std::pair<double, double>> center) {
  const Planes x = detail::planes_of(image, "affine");
  const double center_x = center ? center->first - static_cast<double>(x.width) / 2 : 0;
  const double center_y = center ? center->second - static_cast<double>(x.height) / 2 : 0;
  const AffineMap map = inverse_affine_map(angle, translate.first, translate.second, scale, shear.first, shear.second,
                                           center_x, center_y);
  return sample_affine(image, map, {x.height, x.width}, interpolation, fill);
}

Tensor rotate(const Tensor& image, double angle, Interpolation interpolation, bool expand,
              std::optional<std::pair<double, double>> center, const Fill& fill) {
  if (!expand) return affine(image, -angle, {0, 0}, 1, {0, 0}, interpolation, fill, center);
  const Planes x = detail::planes_of(image, "rotate");
  const AffineMap map = inverse_affine_map(-angle, 0, 0, 1, 0, 0);
  // The extent of the rotated corners. A size within 1e-4 of a whole pixel is rounded to it.
  const double width = static_cast<double>(x.width), height = static_cast<double>(x.height);
  const auto pixels = [](double extent) { return static_cast<int64_t>(std::ceil(extent - 1e-4)); };
  const ImageSize size(pixels(std::abs(map.m[3]) * width + std::abs(map.m[4]) * height),
                       pixels(std::abs(map.m[0]) * width + std::abs(map.m[1]) * height));
  return sample_affine(image, map, size, interpolation, fill);
}

}  // namespace gradus::data::transforms::functional
