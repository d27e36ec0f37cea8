// Operations on images that random transforms are made of, with the names and formulas of
// torchvision.transforms.functional.
//
// Images are float32 on the CPU, (…, H, W), with their channels, where they matter, in front of the two: (…, C, H, W).
// Anything else is a ShapeError or a DTypeError. Results are new tensors; the image is not touched. No gradients: this
// is work for a loader's threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::data::transforms {

/// How a value between pixels is found: the pixel whose square it lies in, or from the four around it.
enum class Interpolation : uint8_t { kNearest, kBilinear };
/// What lies beyond an image: a value, the nearest pixel, or the image mirrored without or with its outermost pixels.
enum class PaddingMode : uint8_t { kConstant, kEdge, kReflect, kSymmetric };

/// Pixels as (height, width).
struct ImageSize {
  ImageSize(int64_t side) : height(side), width(side) {}  // NOLINT(google-explicit-constructor)
  ImageSize(int64_t height_, int64_t width_) : height(height_), width(width_) {}
  int64_t height, width;
};
/// Pixels added to the four sides.
struct Padding {
  Padding(int64_t all) : left(all), top(all), right(all), bottom(all) {}  // NOLINT(google-explicit-constructor)
  Padding(int64_t horizontal, int64_t vertical)
      : left(horizontal), top(vertical), right(horizontal), bottom(vertical) {}
  Padding(int64_t left_, int64_t top_, int64_t right_, int64_t bottom_)
      : left(left_), top(top_), right(right_), bottom(bottom_) {}
  int64_t left, top, right, bottom;
};
/// One value for all channels, or one for each.
struct Fill {
  Fill(double value = 0) : values{value} {}                          // NOLINT(google-explicit-constructor)
  Fill(std::vector<double> values_) : values(std::move(values_)) {}  // NOLINT(google-explicit-constructor)
  std::vector<double> values;
};

namespace functional {

/// (…, height, width) from row `top` and column `left` on; what lies outside of the image is 0.
Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width);
/// The middle; round((H - height) / 2) rows from the top.
Tensor center_crop(const Tensor& image, ImageSize size);
/// kReflect needs less padding than the image is wide, kSymmetric at most as much (ValueError).
Tensor pad(const Tensor& image, const Padding& padding, const Fill& fill = 0,
           PaddingMode mode = PaddingMode::kConstant);
/// crop(pad(image, padding, fill, mode), top, left, height, width) of a window within the padded image (ValueError),
/// without that image in between.
Tensor padded_crop(const Tensor& image, const Padding& padding, int64_t top, int64_t left, ImageSize size,
                   const Fill& fill = 0, PaddingMode mode = PaddingMode::kConstant);
/// Left and right exchanged.
Tensor hflip(const Tensor& image);
/// Top and bottom exchanged.
Tensor vflip(const Tensor& image);

/// (…, height, width). Output pixel i has its middle at c = (i + 1/2) s in the image, s = H / height.
/// Bilinear: the weighted mean of the pixels j around it with weights 1 - |j + 1/2 - c| / r where that is positive;
/// r = 1 or, with antialias, max(1, s), so that a smaller image takes all pixels into account (as Pillow does).
/// Nearest: pixel floor(i s).
Tensor resize(const Tensor& image, ImageSize size, Interpolation interpolation = Interpolation::kBilinear,
              bool antialias = true);
/// crop, then resize.
Tensor resized_crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width, ImageSize size,
                    Interpolation interpolation = Interpolation::kBilinear, bool antialias = true);

/// A map of the plane: (x, y) -> (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]).
struct AffineMap {
  double m[6];
};
/// Where the pixels of an affinely moved image come from: the inverse of
///   T(center + translate) R(angle) Shear(shear) Scale(scale) T(-center)
/// in pixels, with y pointing down, angles in degrees (clockwise) and `center` relative to the middle of the image:
///   R Shear = [cos(a - sy) / cos(sy), -cos(a - sy) tan(sx) / cos(sy) - sin(a); sin(a - sy) / cos(sy),
///              -sin(a - sy) tan(sx) / cos(sy) + cos(a)]
/// A scale that is not positive is a ValueError.
AffineMap inverse_affine_map(double angle, double translate_x, double translate_y, double scale, double shear_x,
                             double shear_y, double center_x = 0, double center_y = 0);
/// (…, height, width) with output pixel (x, y) = image at map(x, y), both counted from the middle of their image to the
/// middle of the pixel. Between pixels, with u = x0 + a and v = y0 + b:
///   bilinear: (1 - b) ((1 - a) p(x0, y0) + a p(x0 + 1, y0)) + b ((1 - a) p(x0, y0 + 1) + a p(x0 + 1, y0 + 1))
/// where p is `fill` outside of the image. (torchvision fades pixels on the border to `fill` twice.)
Tensor sample_affine(const Tensor& image, const AffineMap& map, ImageSize size, Interpolation interpolation,
                     const Fill& fill);
/// Rotates by `angle` degrees clockwise, moves by whole or broken pixels, scales and shears, about `center` (x, y) in
/// pixels from the top left corner, or the middle.
Tensor affine(const Tensor& image, double angle, std::pair<double, double> translate, double scale,
              std::pair<double, double> shear, Interpolation interpolation = Interpolation::kNearest,
              const Fill& fill = 0, std::optional<std::pair<double, double>> center = std::nullopt);
/// Rotates by `angle` degrees counter-clockwise. With `expand` the result is just large enough for the whole image,
/// which is then turned about its middle (torchvision's may be a pixel larger).
Tensor rotate(const Tensor& image, double angle, Interpolation interpolation = Interpolation::kNearest,
              bool expand = false, std::optional<std::pair<double, double>> center = std::nullopt,
              const Fill& fill = 0);

/// 0.2989 R + 0.587 G + 0.114 B, in one channel or three. Images of one channel stay as they are.
Tensor rgb_to_grayscale(const Tensor& image, int64_t num_output_channels = 1);
/// clamp(factor x, 0, 1)
Tensor adjust_brightness(const Tensor& image, double factor);
/// clamp(factor x + (1 - factor) mean, 0, 1) with the mean of the image in grey
Tensor adjust_contrast(const Tensor& image, double factor);
/// clamp(factor x + (1 - factor) grey, 0, 1); images of one channel stay as they are
Tensor adjust_saturation(const Tensor& image, double factor);
/// Turns the hue by `factor` of the colour circle, in [-0.5, 0.5]; images of one channel stay as they are
Tensor adjust_hue(const Tensor& image, double factor);

/// The rectangle filled with a value (for each channel).
Tensor erase(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width, const Fill& value = 0);

}  // namespace functional

namespace detail {

/// An image as planes of memory.
struct Planes {
  Array array;
  int64_t count, height, width;  ///< planes, rows, columns
  int64_t pixels() const { return height * width; }
  float* plane(int64_t i) const { return array.data<float>() + i * pixels(); }
};
/// `image`, row-major on the CPU; `name` stands for the operation in messages.
Planes planes_of(const Tensor& image, std::string_view name);
/// Uninitialised, for a result of another size.
Planes planes_like(const Planes& planes, ImageSize size);
/// The fill of plane i of an image with C channels.
float fill_of(const Fill& fill, const Planes& planes, int64_t i, std::string_view name);

}  // namespace detail
}  // namespace gradus::data::transforms
