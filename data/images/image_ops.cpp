#include <gradus/data/images/image_ops.h>

#include <gradus/core/io/array_bytes.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace gradus::data::transforms {
namespace detail {

Planes planes_of(const Tensor& image, std::string_view name) {
  const Array x = io::contiguous_on_cpu(image.array());
  GRADUS_CHECK(x.dtype() == DType::f32, DTypeError, name, " needs float32 images, got ", x.dtype());
  GRADUS_CHECK(x.ndim() >= 2, ShapeError, name, " needs images (…, H, W), got shape ", x.shape());
  const int64_t height = x.size(-2), width = x.size(-1);
  GRADUS_CHECK(height > 0 && width > 0, ShapeError, name, " needs images with pixels, got shape ", x.shape());
  return {x, x.numel() / (height * width), height, width};
}

Planes planes_like(const Planes& planes, ImageSize size) {
  GRADUS_CHECK(size.height > 0 && size.width > 0, ValueError, "an image needs a height and a width above 0, got ",
               size.height, " and ", size.width);
  Shape shape = planes.array.shape();
  shape[shape.size() - 2] = size.height;
  shape[shape.size() - 1] = size.width;
  return {Array::empty(shape), planes.count, size.height, size.width};
}

float fill_of(const Fill& fill, const Planes& planes, int64_t i, std::string_view name) {
  const int64_t count = std::ssize(fill.values);
  if (count == 1) return static_cast<float>(fill.values[0]);
  const Array& x = planes.array;
  GRADUS_CHECK(x.ndim() >= 3 && x.size(-3) == count, ValueError, name, " has ", count,
               " fill values for an image of shape ", x.shape());
  return static_cast<float>(fill.values[static_cast<size_t>(i % count)]);
}

}  // namespace detail

namespace functional {
namespace {

using detail::Planes;
using detail::planes_like;
using detail::planes_of;

double half(int64_t size) { return static_cast<double>(size) / 2; }

// Returns the rows or columns of the image (0 … size - 1) that `mode` shows at `count` rows or columns from `first` on,
// which may be outside of the image; -1 where it shows the fill value.
std::vector<int64_t> source_indices(int64_t first, int64_t count, int64_t size, PaddingMode mode) {
  std::vector<int64_t> indices(static_cast<size_t>(count), -1);
  for (int64_t& index : indices) {
    const int64_t i = first++;
    if (i >= 0 && i < size) index = i;
    else if (mode == PaddingMode::kEdge) index = i < 0 ? 0 : size - 1;
    else if (mode == PaddingMode::kReflect) index = i < 0 ? -i : 2 * (size - 1) - i;
    else if (mode == PaddingMode::kSymmetric) index = i < 0 ? -i - 1 : 2 * size - 1 - i;
  }
  return indices;
}

// Returns rows [top, top + height) and columns [left, left + width) of an image that `mode` continues beyond its
// borders.
Tensor window(const Planes& x, int64_t top, int64_t left, ImageSize size, const Fill& fill, PaddingMode mode,
              std::string_view name) {
  const Planes y = planes_like(x, size);
  const std::vector<int64_t> rows = source_indices(top, size.height, x.height, mode);
  const std::vector<int64_t> columns = source_indices(left, size.width, x.width, mode);
  // The columns [first, last) of the result are within the image.
  const int64_t first = std::clamp<int64_t>(-left, 0, size.width);
  const int64_t last = std::clamp<int64_t>(x.width - left, first, size.width);
  for (int64_t i = 0; i < x.count; ++i) {
    const float outside = detail::fill_of(fill, x, i, name);
    float* to = y.plane(i);
    for (int64_t row : rows) {
      const float* from = x.plane(i) + row * x.width;
      const auto pixel = [&](int64_t column) {
        const int64_t source = columns[static_cast<size_t>(column)];
        return row < 0 || source < 0 ? outside : from[source];
      };
      for (int64_t column = 0; column < first; ++column) to[column] = pixel(column);
      if (row < 0) std::fill(to + first, to + last, outside);
      else if (last > first)
        std::memcpy(to + first, from + left + first, sizeof(float) * static_cast<size_t>(last - first));
      for (int64_t column = last; column < size.width; ++column) to[column] = pixel(column);
      to += size.width;
    }
  }
  return Tensor(y.array);
}

// Returns the size of the padded image. Throws a ValueError if the padding is invalid.
ImageSize padded_size(const Planes& x, const Padding& padding, PaddingMode mode) {
  const int64_t least = std::min({padding.left, padding.top, padding.right, padding.bottom});
  GRADUS_CHECK(least >= 0, ValueError, "pad needs paddings of at least 0, got ", least);
  if (mode == PaddingMode::kReflect || mode == PaddingMode::kSymmetric) {
    const int64_t spare = mode == PaddingMode::kReflect ? 1 : 0;
    GRADUS_CHECK(std::max(padding.left, padding.right) <= x.width - spare &&
                     std::max(padding.top, padding.bottom) <= x.height - spare,
                 ValueError, "pad cannot mirror more than there is of an image of shape ", x.array.shape());
  }
  return {x.height + padding.top + padding.bottom, x.width + padding.left + padding.right};
}

// The pixels of an axis from which each pixel of the resized axis is computed, and their weights.
struct Taps {
  std::vector<int64_t> first;  // for each output pixel, the first of the `count` pixels that contribute
  std::vector<float> weights;
  int64_t count = 0;
};

Taps taps_of(int64_t from, int64_t to, Interpolation interpolation, bool antialias) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double radius = antialias ? std::max(scale, 1.0) : 1.0;
  const bool nearest = interpolation == Interpolation::kNearest;
  Taps taps;
  taps.count = nearest ? 1 : std::min(static_cast<int64_t>(std::ceil(2 * radius)) + 1, from);
  taps.weights.assign(static_cast<size_t>(to * taps.count), 1);
  float* weights = taps.weights.data();
  for (int64_t i = 0; i < to; ++i, weights += taps.count) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const double begin = nearest ? static_cast<double>(i) * scale : center - radius;
    const int64_t first = std::clamp<int64_t>(static_cast<int64_t>(begin), 0, from - taps.count);
    taps.first.push_back(first);
    if (nearest) continue;
    double sum = 0;
    for (int64_t j = 0; j < taps.count; ++j) {
      const double weight = 1 - std::abs(static_cast<double>(first + j) + 0.5 - center) / radius;
      weights[j] = static_cast<float>(std::max(weight, 0.0));
      sum += std::max(weight, 0.0);
    }
    for (int64_t j = 0; j < taps.count; ++j) weights[j] = static_cast<float>(weights[j] / sum);
  }
  return taps;
}

}  // namespace

Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  return window(planes_of(image, "crop"), top, left, {height, width}, 0, PaddingMode::kConstant, "crop");
}

Tensor center_crop(const Tensor& image, ImageSize size) {
  const Planes x = planes_of(image, "center_crop");
  // Rounds halves to the even number, as Python's round() does.
  const auto middle = [](int64_t rest) { return static_cast<int64_t>(std::nearbyint(half(rest))); };
  return window(x, middle(x.height - size.height), middle(x.width - size.width), size, 0, PaddingMode::kConstant,
                "center_crop");
}

Tensor pad(const Tensor& image, const Padding& padding, const Fill& fill, PaddingMode mode) {
  const Planes x = planes_of(image, "pad");
  return window(x, -padding.top, -padding.left, padded_size(x, padding, mode), fill, mode, "pad");
}

Tensor padded_crop(const Tensor& image, const Padding& padding, int64_t top, int64_t left, ImageSize size,
                   const Fill& fill, PaddingMode mode) {
  const Planes x = planes_of(image, "padded_crop");
  const ImageSize padded = padded_size(x, padding, mode);
  GRADUS_CHECK(top >= 0 && left >= 0 && size.height <= padded.height - top && size.width <= padded.width - left,
               ValueError, "padded_crop: rows ", top, " + ", size.height, " and columns ", left, " + ", size.width,
               " are not within a padded image of ", padded.height, "x", padded.width);
  return window(x, top - padding.top, left - padding.left, size, fill, mode, "padded_crop");
}

Tensor hflip(const Tensor& image) {
  const Planes x = planes_of(image, "hflip"), y = planes_like(x, {x.height, x.width});
  for (int64_t row = 0; row < x.count * x.height; ++row)
    std::reverse_copy(x.plane(0) + row * x.width, x.plane(0) + (row + 1) * x.width, y.plane(0) + row * x.width);
  return Tensor(y.array);
}

Tensor vflip(const Tensor& image) {
  const Planes x = planes_of(image, "vflip"), y = planes_like(x, {x.height, x.width});
  for (int64_t i = 0; i < x.count; ++i)
    for (int64_t row = 0; row < x.height; ++row)
      std::copy_n(x.plane(i) + (x.height - 1 - row) * x.width, x.width, y.plane(i) + row * x.width);
  return Tensor(y.array);
}

Tensor resize(const Tensor& image, ImageSize size, Interpolation interpolation, bool antialias) {
  const Planes x = planes_of(image, "resize"), narrow = planes_like(x, {x.height, size.width}),
               y = planes_like(x, size);
  const Taps columns = taps_of(x.width, size.width, interpolation, antialias);
  const Taps rows = taps_of(x.height, size.height, interpolation, antialias);
  for (int64_t row = 0; row < x.count * x.height; ++row) {
    const float* from = x.plane(0) + row * x.width;
    float* to = narrow.plane(0) + row * size.width;
    const float* weights = columns.weights.data();
    for (int64_t first : columns.first) {
      float sum = 0;
      for (int64_t j = 0; j < columns.count; ++j) sum += weights[j] * from[first + j];
      weights += columns.count;
      *to++ = sum;
    }
  }
  for (int64_t plane = 0; plane < x.count; ++plane)
    for (int64_t i = 0; i < size.height; ++i) {
      float* to = y.plane(plane) + i * size.width;
      std::fill_n(to, size.width, 0.0f);
      for (int64_t j = 0; j < rows.count; ++j) {
        const float weight = rows.weights[static_cast<size_t>(i * rows.count + j)];
        const float* from = narrow.plane(plane) + (rows.first[static_cast<size_t>(i)] + j) * size.width;
        for (int64_t column = 0; column < size.width; ++column) to[column] += weight * from[column];
      }
    }
  return Tensor(y.array);
}

Tensor resized_crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width, ImageSize size,
                    Interpolation interpolation, bool antialias) {
  return resize(crop(image, top, left, height, width), size, interpolation, antialias);
}

Tensor erase(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width, const Fill& value) {
  const Planes x = planes_of(image, "erase"), y = planes_like(x, {x.height, x.width});
  GRADUS_CHECK(
      top >= 0 && left >= 0 && height >= 0 && width >= 0 && height <= x.height - top && width <= x.width - left,
      ValueError, "erase: rows ", top, " + ", height, " and columns ", left, " + ", width,
      " are not within an image of shape ", x.array.shape());
  std::copy_n(x.plane(0), x.array.numel(), y.plane(0));
  for (int64_t i = 0; i < x.count; ++i)
    for (int64_t row = top; row < top + height; ++row)
      std::fill_n(y.plane(i) + row * x.width + left, width, detail::fill_of(value, x, i, "erase"));
  return Tensor(y.array);
}

// ---- Affine maps ----

namespace {

double radians(double degrees) { return degrees * std::numbers::pi / 180; }

// Positions are clamped to [-2, size + 2]. This changes no result, because at these two limits, as beyond them, all
// pixels around the position are outside of the image. `bordered` adds a border of the fill value that contains the
// four pixels around each clamped position, so that the inner loops need no checks.
constexpr int64_t kBefore = 2, kAfter = 4;

Planes bordered(const Planes& x, const Fill& outside) {
  const Planes y = detail::planes_like(x, {x.height + kBefore + kAfter, x.width + kBefore + kAfter});
  for (int64_t i = 0; i < x.count; ++i) {
    const float fill = detail::fill_of(outside, x, i, "affine");
    const float* from = x.plane(i);
    float* to = std::fill_n(y.plane(i), kBefore * y.width, fill);
    for (int64_t row = 0; row < x.height; ++row, from += x.width)
      to = std::fill_n(std::copy_n(from, x.width, std::fill_n(to, kBefore, fill)), kAfter, fill);
    std::fill_n(to, kAfter * y.width, fill);
  }
  return y;
}

// Positions in the image for up to kMost output pixels of a row. For bilinear interpolation, (x, y) is the pixel at or
// before the position, and (a, b) the fraction of the way to the next pixel. Otherwise (x, y) is the nearest pixel.
struct Places {
  static constexpr int64_t kMost = 128;
  int32_t x[kMost], y[kMost];
  float a[kMost], b[kMost];
};

// Clamps a value. NaN becomes `low`, which is outside of the image.
float within(float value, float low, float high) {
  const float raised = value > low ? value : low;
  return raised < high ? raised : high;
}

// Rounds down. Truncates to int32, because std::floor is a function call on baseline x86-64; positions are far within
// the range of int32.
int32_t floor_of(float value) {
  const int32_t truncated = static_cast<int32_t>(value);
  return truncated - (value < static_cast<float>(truncated) ? 1 : 0);
}

// Rounds to the nearest integer, and halves to the even integer, as grid_sample does. Adding 12582912 = 1.5 * 2^23
// rounds, because a float of this size has no bits for a fraction.
int32_t round_of(float value) { return static_cast<int32_t>((value + 12582912.0f) - 12582912.0f); }

// Computes the positions of `count` output pixels starting at `column`: u = first_u + column * step_u, and v likewise.
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

// `corner` points to pixel (0, 0) of the image within its border.
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
  // The inverse needs no division by a determinant, because the determinant of [a b; c d] is 1.
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
  const Planes source = bordered(x, fill);
  const auto sample = interpolation == Interpolation::kNearest ? sample_nearest : sample_bilinear;
  const float step_u = static_cast<float>(map.m[0]), step_v = static_cast<float>(map.m[3]);
  const float far_u = static_cast<float>(x.width) + 2, far_v = static_cast<float>(x.height) + 2;
  Places at;
  for (int64_t row = 0; row < size.height; ++row) {
    // Positions are relative to the middle of the image, so the middle of pixel 0 is at 1/2 - size / 2.
    const double first_x = 0.5 - half(size.width), row_y = static_cast<double>(row) + 0.5 - half(size.height);
    const double u = map.m[0] * first_x + map.m[1] * row_y + map.m[2] + half(x.width) - 0.5;
    const double v = map.m[3] * first_x + map.m[4] * row_y + map.m[5] + half(x.height) - 0.5;
    for (int64_t column = 0; column < size.width; column += Places::kMost) {
      const int64_t count = std::min(Places::kMost, size.width - column);
      find_places(at, column, count, static_cast<float>(u), step_u, far_u, static_cast<float>(v), step_v, far_v,
                  interpolation);
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
  const double center_x = center ? center->first - half(x.width) : 0;
  const double center_y = center ? center->second - half(x.height) : 0;
  const AffineMap map = inverse_affine_map(angle, translate.first, translate.second, scale, shear.first, shear.second,
                                           center_x, center_y);
  return sample_affine(image, map, {x.height, x.width}, interpolation, fill);
}

Tensor rotate(const Tensor& image, double angle, Interpolation interpolation, bool expand,
              std::optional<std::pair<double, double>> center, const Fill& fill) {
  if (!expand) return affine(image, -angle, {0, 0}, 1, {0, 0}, interpolation, fill, center);
  const Planes x = detail::planes_of(image, "rotate");
  const AffineMap map = inverse_affine_map(-angle, 0, 0, 1, 0, 0);
  // The size of the result is the distance between the outermost rotated corners, rounded up. An excess of up to 1e-4
  // pixels is ignored, because it comes from rounding errors.
  const double width = static_cast<double>(x.width), height = static_cast<double>(x.height);
  const auto pixels = [](double extent) { return static_cast<int64_t>(std::ceil(extent - 1e-4)); };
  const ImageSize size(pixels(std::abs(map.m[3]) * width + std::abs(map.m[4]) * height),
                       pixels(std::abs(map.m[0]) * width + std::abs(map.m[1]) * height));
  return sample_affine(image, map, size, interpolation, fill);
}

}  // namespace functional
}  // namespace gradus::data::transforms
