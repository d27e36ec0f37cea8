// Images moved by affine maps.
#include <gradus/data/image_ops.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradus::data::transforms::functional {
namespace {

using detail::Planes;

double radians(double degrees) { return degrees * std::numbers::pi / 180; }

// A position in the image: the pixel at or before it and the way to the next, for each axis.
struct Place {
  int64_t x, y;
  float a, b;
};

// std::floor is a function call on baseline x86-64; positions are far from the limits of int here.
int64_t floor_of(float value) {
  const int truncated = static_cast<int>(value);
  return truncated - (value < static_cast<float>(truncated));
}

// To the nearest whole number, halves to the even one, as grid_sample does. Adding 1.5 * 2^23 leaves no room for a fraction.
int64_t round_of(float value) { return static_cast<int64_t>((value + 12582912.0f) - 12582912.0f); }

float pixel_or(const float* plane, const Planes& image, int64_t x, int64_t y, float outside) {
  return x >= 0 && x < image.width && y >= 0 && y < image.height ? plane[y * image.width + x] : outside;
}

float bilinear(const float* plane, const Planes& image, const Place& at, float outside) {
  float p00, p10, p01, p11;
  if (at.x >= 0 && at.y >= 0 && at.x + 1 < image.width && at.y + 1 < image.height) {
    const float* corner = plane + at.y * image.width + at.x;
    p00 = corner[0], p10 = corner[1], p01 = corner[image.width], p11 = corner[image.width + 1];
  } else {
    p00 = pixel_or(plane, image, at.x, at.y, outside), p10 = pixel_or(plane, image, at.x + 1, at.y, outside);
    p01 = pixel_or(plane, image, at.x, at.y + 1, outside), p11 = pixel_or(plane, image, at.x + 1, at.y + 1, outside);
  }
  const float top = p00 + at.a * (p10 - p00), bottom = p01 + at.a * (p11 - p01);
  return top + at.b * (bottom - top);
}

}  // namespace

AffineMap inverse_affine_map(double angle, double translate_x, double translate_y, double scale, double shear_x,
                             double shear_y, double center_x, double center_y) {
  GRADUS_CHECK(scale > 0, ValueError, "affine needs a scale above 0, got ", scale);
  const double rotation = radians(angle), sx = radians(shear_x), sy = radians(shear_y);
  const double a = std::cos(rotation - sy) / std::cos(sy);
  const double b = -std::cos(rotation - sy) * std::tan(sx) / std::cos(sy) - std::sin(rotation);
  const double c = std::sin(rotation - sy) / std::cos(sy);
  const double d = -std::sin(rotation - sy) * std::tan(sx) / std::cos(sy) + std::cos(rotation);
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
  const bool nearest = interpolation == Interpolation::kNearest;
  const float step_u = static_cast<float>(map.m[0]), step_v = static_cast<float>(map.m[3]);
  // Positions farther out than this are outside all the same.
  const float far_u = static_cast<float>(x.width) + 2, far_v = static_cast<float>(x.height) + 2;
  const float* const from = x.plane(0);
  float* to = y.plane(0);
  for (int64_t row = 0; row < size.height; ++row) {
    // Positions count from the middle of an image; pixel 0 has its middle at 1/2 - size / 2.
    const double first_x = 0.5 - static_cast<double>(size.width) / 2;
    const double row_y = static_cast<double>(row) + 0.5 - static_cast<double>(size.height) / 2;
    const float first_u =
        static_cast<float>(map.m[0] * first_x + map.m[1] * row_y + map.m[2] + static_cast<double>(x.width) / 2 - 0.5);
    const float first_v =
        static_cast<float>(map.m[3] * first_x + map.m[4] * row_y + map.m[5] + static_cast<double>(x.height) / 2 - 0.5);
    for (int64_t column = 0; column < size.width; ++column, ++to) {
      const float u = std::clamp(first_u + static_cast<float>(column) * step_u, -2.0f, far_u);
      const float v = std::clamp(first_v + static_cast<float>(column) * step_v, -2.0f, far_v);
      if (nearest) {
        const int64_t source_x = round_of(u), source_y = round_of(v);
        for (int64_t i = 0; i < x.count; ++i)
          to[i * y.pixels()] = pixel_or(from + i * x.pixels(), x, source_x, source_y, outside[static_cast<size_t>(i)]);
      } else {
        const int64_t x0 = floor_of(u), y0 = floor_of(v);
        const Place at = {x0, y0, u - static_cast<float>(x0), v - static_cast<float>(y0)};
        for (int64_t i = 0; i < x.count; ++i)
          to[i * y.pixels()] = bilinear(from + i * x.pixels(), x, at, outside[static_cast<size_t>(i)]);
      }
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
  // How far the turned corners lie apart; what is within 1e-4 of a whole pixel counts as one.
  const double width = static_cast<double>(x.width), height = static_cast<double>(x.height);
  const auto pixels = [](double extent) { return static_cast<int64_t>(std::ceil(extent - 1e-4)); };
  const ImageSize size(pixels(std::abs(map.m[3]) * width + std::abs(map.m[4]) * height),
                       pixels(std::abs(map.m[0]) * width + std::abs(map.m[1]) * height));
  return sample_affine(image, map, size, interpolation, fill);
}

}  // namespace gradus::data::transforms::functional
