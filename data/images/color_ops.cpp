// Operations on colours, with the formulas of torchvision.transforms.functional.
#include <gradus/data/images/image_ops.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace gradus::data::transforms::functional {
namespace {

using detail::Planes;

// An image x with one or three channels, and the memory for a result y of the same shape.
struct Colors {
  Planes x, y;
  bool gray;  // true if the image has one channel
  int64_t images() const { return gray ? x.count : x.count / 3; }

  /// Calls change(from, to) with the first pixels of each image and of its result. Returns the result.
  template <class Change>
  Tensor changed(const Change& change) const {
    const int64_t size = gray ? x.pixels() : 3 * x.pixels();
    for (int64_t i = 0; i < images(); ++i) change(x.plane(0) + i * size, y.plane(0) + i * size);
    return Tensor(y.array);
  }
};

Colors colors_of(const Tensor& image, std::string_view name) {
  const Planes x = detail::planes_of(image, name);
  const int64_t channels = x.array.ndim() >= 3 ? x.array.size(-3) : 1;
  GRADUS_CHECK(channels == 1 || channels == 3, ShapeError, name, " needs images with 1 or 3 channels, got shape ",
               x.array.shape());
  return {x, detail::planes_like(x, {x.height, x.width}), channels == 1};
}

Colors adjustable(const Tensor& image, double factor, std::string_view name) {
  GRADUS_CHECK(factor >= 0 && std::isfinite(factor), ValueError, name, " needs a factor of at least 0, got ", factor);
  return colors_of(image, name);
}

float gray_of(float r, float g, float b) { return 0.2989f * r + 0.587f * g + 0.114f * b; }
float in_range(float value) { return std::clamp(value, 0.0f, 1.0f); }

// Converts the red, green and blue plane at `from` to a grey plane.
void to_gray(const float* from, float* __restrict gray, int64_t pixels) {
  for (int64_t k = 0; k < pixels; ++k) gray[k] = gray_of(from[k], from[pixels + k], from[2 * pixels + k]);
}

void saturate(const float* from, float* __restrict red, float* __restrict green, float* __restrict blue, int64_t pixels,
              float factor) {
  for (int64_t k = 0; k < pixels; ++k) {
    const float r = from[k], g = from[pixels + k], b = from[2 * pixels + k];
    const float rest = (1 - factor) * gray_of(r, g, b);
    red[k] = in_range(factor * r + rest);
    green[k] = in_range(factor * g + rest);
    blue[k] = in_range(factor * b + rest);
  }
}

// The formulas for the hue are templates that compute one pixel (float) or four pixels at once (Four). With Four, the
// expression c ? a : b computes both a and b and selects one of them for each pixel.
using Four = float __attribute__((vector_size(16)));
using FourIntegers = int32_t __attribute__((vector_size(16)));

template <class V>
struct Rgb {
  V r, g, b;
};

template <class V>
Rgb<V> load(const float* from, int64_t pixels) {
  Rgb<V> color;
  std::memcpy(&color.r, from, sizeof(V));
  std::memcpy(&color.g, from + pixels, sizeof(V));
  std::memcpy(&color.b, from + 2 * pixels, sizeof(V));
  return color;
}

template <class V>
void store(const Rgb<V>& color, float* to, int64_t pixels) {
  std::memcpy(to, &color.r, sizeof(V));
  std::memcpy(to + pixels, &color.g, sizeof(V));
  std::memcpy(to + 2 * pixels, &color.b, sizeof(V));
}

// Rounds towards 0. (std::trunc and std::floor are function calls on baseline x86-64.)
float whole(float value) { return static_cast<float>(static_cast<int32_t>(value)); }
Four whole(Four value) { return __builtin_convertvector(__builtin_convertvector(value, FourIntegers), Four); }

// Converts a colour to hue, saturation and value, adds `turn` to the hue, and converts it back to red, green and blue.
template <class V>
Rgb<V> turned(const Rgb<V>& color, float turn) {
  const V zero = {}, one = zero + 1;
  const auto [r, g, b] = color;
  const V most_rg = r < g ? g : r, most = most_rg < b ? b : most_rg;
  const V least_rg = g < r ? g : r, least = b < least_rg ? b : least_rg, range = most - least;
  const V rc = (most - r) / range, gc = (most - g) / range, bc = (most - b) / range;
  const V sextant = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;  // in [-1, 5]
  const V hue = sextant / 6 + 1, s = range == 0 ? zero : range / most, v = most;

  const V h = (range == 0 ? zero : hue < 1 ? hue : hue - 1) + turn;  // in [-1/2, 3/2)
  const V h6 = 6 * (h - (whole(h) - (h < whole(h) ? one : zero)));
  const V side = whole(h6), f = h6 - side;  // side: 0 … 6, where 6 means the same as 0
  const auto in_range = [&](const V& x) { return x < 0 ? zero : 1 < x ? one : x; };
  const V p = in_range(v * (1 - s)), q = in_range(v * (1 - s * f)), t = in_range(v * (1 - s * (1 - f)));
  // Chooses a value by the side (0 … 5) of the colour hexagon on which the hue is; `first` is for side 0.
  const auto pick = [&](const V& first, const V& second, const V& third, const V& fourth, const V& fifth,
                        const V& sixth) {
    const V upper = side == 3 ? fourth : side == 4 ? fifth : side == 5 ? sixth : first;
    return side == 1 ? second : side == 2 ? third : upper;
  };
  return {pick(v, q, p, p, t, v), pick(t, v, v, q, p, p), pick(p, p, t, v, v, q)};
}

}  // namespace

Tensor rgb_to_grayscale(const Tensor& image, int64_t num_output_channels) {
  GRADUS_CHECK(num_output_channels == 1 || num_output_channels == 3, ValueError,
               "rgb_to_grayscale needs 1 or 3 output channels, got ", num_output_channels);
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
    else to_gray(from, to, pixels);
    for (int64_t c = 1; c < num_output_channels; ++c) std::copy_n(to, pixels, to + c * pixels);
    from += (colors.gray ? 1 : 3) * pixels;
    to += num_output_channels * pixels;
  }
  return Tensor(y);
}

Tensor adjust_brightness(const Tensor& image, double factor) {
  const Colors colors = adjustable(image, factor, "adjust_brightness");
  const float f = static_cast<float>(factor);
  std::transform(colors.x.plane(0), colors.x.plane(colors.x.count), colors.y.plane(0),
                 [f](float value) { return in_range(f * value); });
  return Tensor(colors.y.array);
}

Tensor adjust_contrast(const Tensor& image, double factor) {
  const Colors colors = adjustable(image, factor, "adjust_contrast");
  const int64_t pixels = colors.x.pixels(), size = (colors.gray ? 1 : 3) * pixels;
  const float f = static_cast<float>(factor);
  return colors.changed([&](const float* from, float* to) {
    if (!colors.gray) to_gray(from, to, pixels);
    const double sum = std::accumulate(colors.gray ? from : to, (colors.gray ? from : to) + pixels, 0.0);
    const float rest = (1 - f) * static_cast<float>(sum / static_cast<double>(pixels));
    for (int64_t k = 0; k < size; ++k) to[k] = in_range(f * from[k] + rest);
  });
}

Tensor adjust_saturation(const Tensor& image, double factor) {
  const Colors colors = adjustable(image, factor, "adjust_saturation");
  if (colors.gray) return Tensor(colors.x.array);
  const int64_t pixels = colors.x.pixels();
  return colors.changed([&](const float* from, float* to) {
    saturate(from, to, to + pixels, to + 2 * pixels, pixels, static_cast<float>(factor));
  });
}

Tensor adjust_hue(const Tensor& image, double factor) {
  GRADUS_CHECK(factor >= -0.5 && factor <= 0.5, ValueError, "adjust_hue needs a factor in [-0.5, 0.5], got ", factor);
  const Colors colors = colors_of(image, "adjust_hue");
  if (colors.gray) return Tensor(colors.x.array);
  const int64_t pixels = colors.x.pixels();
  const float turn = static_cast<float>(factor);
  return colors.changed([&](const float* from, float* to) {
    int64_t k = 0;
    for (; k + 4 <= pixels; k += 4) store(turned(load<Four>(from + k, pixels), turn), to + k, pixels);
    for (; k < pixels; ++k) store(turned(load<float>(from + k, pixels), turn), to + k, pixels);
  });
}

}  // namespace gradus::data::transforms::functional
