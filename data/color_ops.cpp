// Colours of images: the formulas of torchvision.transforms.functional.
#include <gradus/data/image_ops.h>

#include <algorithm>
#include <cmath>

namespace gradus::data::transforms::functional {
namespace {

using detail::Planes;

// An image of one or three channels, and the result in its shape.
struct Colors {
  Planes x, y;
  bool gray;  // one channel
  int64_t images() const { return gray ? x.count : x.count / 3; }
};

Colors colors_of(const Tensor& image, std::string_view name) {
  const Planes x = detail::planes_of(image, name);
  const int64_t channels = x.array.ndim() >= 3 ? x.array.size(-3) : 1;
  GRADUS_CHECK(channels == 1 || channels == 3, ShapeError, name, " needs images with 1 or 3 channels, got shape ",
               x.array.shape());
  return {x, detail::planes_like(x, {x.height, x.width}), channels == 1};
}

void check_factor(double factor, std::string_view name) {
  GRADUS_CHECK(factor >= 0 && std::isfinite(factor), ValueError, name, " needs a factor of at least 0, got ", factor);
}

float gray_of(float r, float g, float b) { return 0.2989f * r + 0.587f * g + 0.114f * b; }
float in_range(float value) { return std::clamp(value, 0.0f, 1.0f); }

struct Hsv {
  float h, s, v;
};

Hsv hsv_of(float r, float g, float b) {
  const float most = std::max({r, g, b}), least = std::min({r, g, b}), range = most - least;
  if (range == 0) return {0, 0, most};
  const float rc = (most - r) / range, gc = (most - g) / range, bc = (most - b) / range;
  const float sextant = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;
  return {std::fmod(sextant / 6 + 1, 1.0f), range / most, most};
}

void write_rgb(const Hsv& color, float* r, float* g, float* b) {
  const float sextant = std::floor(color.h * 6), f = color.h * 6 - sextant, v = color.v;
  const float p = in_range(v * (1 - color.s)), q = in_range(v * (1 - color.s * f)),
              t = in_range(v * (1 - color.s * (1 - f)));
  switch (static_cast<int>(sextant) % 6) {
    case 0: *r = v, *g = t, *b = p; break;
    case 1: *r = q, *g = v, *b = p; break;
    case 2: *r = p, *g = v, *b = t; break;
    case 3: *r = p, *g = q, *b = v; break;
    case 4: *r = t, *g = p, *b = v; break;
    default: *r = v, *g = p, *b = q; break;
  }
}

}  // namespace

Tensor rgb_to_grayscale(const Tensor& image, int64_t num_output_channels) {
  GRADUS_CHECK(num_output_channels == 1 || num_output_channels == 3, ValueError,
               "rgb_to_grayscale gives 1 or 3 channels, not ", num_output_channels);
  const Colors colors = colors_of(image, "rgb_to_grayscale");
  if (colors.gray && num_output_channels == 1) return Tensor(colors.x.array);
  Shape shape = colors.x.array.shape();
  if (shape.size() == 2) shape.insert(0, 1);
  shape[shape.size() - 3] = num_output_channels;
  const Array y = Array::empty(shape);
  const int64_t pixels = colors.x.pixels();
  const float* from = colors.x.plane(0);
  float* to = y.data<float>();
  for (int64_t i = 0; i < colors.images(); ++i) {
    if (colors.gray) std::copy_n(from, pixels, to);
    else
      for (int64_t k = 0; k < pixels; ++k) to[k] = gray_of(from[k], from[pixels + k], from[2 * pixels + k]);
    for (int64_t c = 1; c < num_output_channels; ++c) std::copy_n(to, pixels, to + c * pixels);
    from += (colors.gray ? 1 : 3) * pixels, to += num_output_channels * pixels;
  }
  return Tensor(y);
}

Tensor adjust_brightness(const Tensor& image, double factor) {
  check_factor(factor, "adjust_brightness");
  const Colors colors = colors_of(image, "adjust_brightness");
  const float* from = colors.x.plane(0);
  float* to = colors.y.plane(0);
  const float f = static_cast<float>(factor);
  for (int64_t k = 0; k < colors.x.array.numel(); ++k) to[k] = in_range(f * from[k]);
  return Tensor(colors.y.array);
}

Tensor adjust_contrast(const Tensor& image, double factor) {
  check_factor(factor, "adjust_contrast");
  const Colors colors = colors_of(image, "adjust_contrast");
  const int64_t pixels = colors.x.pixels(), size = (colors.gray ? 1 : 3) * pixels;
  const float f = static_cast<float>(factor);
  for (int64_t i = 0; i < colors.images(); ++i) {
    const float* from = colors.x.plane(0) + i * size;
    float* to = colors.y.plane(0) + i * size;
    double sum = 0;
    for (int64_t k = 0; k < pixels; ++k)
      sum += colors.gray ? from[k] : gray_of(from[k], from[pixels + k], from[2 * pixels + k]);
    const float rest = (1 - f) * static_cast<float>(sum / static_cast<double>(pixels));
    for (int64_t k = 0; k < size; ++k) to[k] = in_range(f * from[k] + rest);
  }
  return Tensor(colors.y.array);
}

Tensor adjust_saturation(const Tensor& image, double factor) {
  check_factor(factor, "adjust_saturation");
  const Colors colors = colors_of(image, "adjust_saturation");
  if (colors.gray) return Tensor(colors.x.array);
  const int64_t pixels = colors.x.pixels();
  const float f = static_cast<float>(factor);
  for (int64_t i = 0; i < colors.images(); ++i) {
    const float* from = colors.x.plane(3 * i);
    float* to = colors.y.plane(3 * i);
    for (int64_t k = 0; k < pixels; ++k) {
      const float rest = (1 - f) * gray_of(from[k], from[pixels + k], from[2 * pixels + k]);
      for (int64_t c = 0; c < 3; ++c) to[c * pixels + k] = in_range(f * from[c * pixels + k] + rest);
    }
  }
  return Tensor(colors.y.array);
}

Tensor adjust_hue(const Tensor& image, double factor) {
  GRADUS_CHECK(factor >= -0.5 && factor <= 0.5, ValueError, "adjust_hue needs a factor in [-0.5, 0.5], got ", factor);
  const Colors colors = colors_of(image, "adjust_hue");
  if (colors.gray) return Tensor(colors.x.array);
  const int64_t pixels = colors.x.pixels();
  const float turn = static_cast<float>(factor);
  for (int64_t i = 0; i < colors.images(); ++i) {
    const float* from = colors.x.plane(3 * i);
    float* to = colors.y.plane(3 * i);
    for (int64_t k = 0; k < pixels; ++k) {
      Hsv color = hsv_of(from[k], from[pixels + k], from[2 * pixels + k]);
      color.h += turn;
      color.h -= std::floor(color.h);
      write_rgb(color, &to[k], &to[pixels + k], &to[2 * pixels + k]);
    }
  }
  return Tensor(colors.y.array);
}

}  // namespace gradus::data::transforms::functional
