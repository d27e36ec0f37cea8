// Operations on images of which random transforms are composed, with the names and formulas of
// torchvision.transforms.functional.
//
// Images are float32 on the CPU of shape (…, H, W), or (…, C, H, W) where channels matter. Anything else is a
// ShapeError or a DTypeError. Results are new tensors; the image is not changed. Nothing is recorded for gradients,
// because these operations run in a loader's threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::data::transforms {

/// How a value between pixels is computed: from the nearest pixel, or from the four surrounding pixels.
enum class Interpolation : uint8_t { kNearest, kBilinear };
/// Content outside of an image: a constant, the nearest pixel, or the image mirrored without or with its border pixels.
enum class PaddingMode : uint8_t { kConstant, kEdge, kReflect, kSymmetric };

/// Size in pixels, (height, width).
struct ImageSize {
  ImageSize(int64_t side) : height(side), width(side) {}  // NOLINT(google-explicit-constructor)
  ImageSize(int64_t height_, int64_t width_) : height(height_), width(width_) {}
  int64_t height, width;
};
/// Number of pixels added on each side.
struct Padding {
  Padding(int64_t all) : left(all), top(all), right(all), bottom(all) {}  // NOLINT(google-explicit-constructor)
  Padding(int64_t horizontal, int64_t vertical)
      : left(horizontal), top(vertical), right(horizontal), bottom(vertical) {}
  Padding(int64_t left_, int64_t top_, int64_t right_, int64_t bottom_)
      : left(left_), top(top_), right(right_), bottom(bottom_) {}
  int64_t left, top, right, bottom;
};
/// One value for all channels, or one for each channel.
struct Fill {
  Fill(double value = 0) : values{value} {}                          // NOLINT(google-explicit-constructor)
  Fill(std::vector<double> values_) : values(std::move(values_)) {}  // NOLINT(google-explicit-constructor)
  std::vector<double> values;
};

namespace functional {

/// The part (…, height, width) whose upper left corner is row `top`, column `left`. Pixels outside of the image are 0.
Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width);
/// The middle part, starting round((H - height) / 2) rows from the top.
Tensor center_crop(const Tensor& image, ImageSize size);
/// kReflect needs less padding than the image's size, kSymmetric at most as much (ValueError).
Tensor pad(const Tensor& image, const Padding& padding, const Fill& fill = 0,
           PaddingMode mode = PaddingMode::kConstant);
/// crop(pad(image, padding, fill, mode), top, left, height, width), computed without the padded image. The window must
/// be within the padded image (ValueError).
Tensor padded_crop(const Tensor& image, const Padding& padding, int64_t top, int64_t left, ImageSize size,
                   const Fill& fill = 0, PaddingMode mode = PaddingMode::kConstant);
/// Mirrors left and right.
Tensor hflip(const Tensor& image);
/// Mirrors top and bottom.
Tensor vflip(const Tensor& image);

/// Resizes to (…, height, width). The centre of output pixel i is at c = (i + 1/2) s in the image, where s = H /
/// height.
/// Bilinear: the weighted mean of the pixels j near it with weights 1 - |j + 1/2 - c| / r where positive. r is 1, or
/// with antialias max(1, s), so that a smaller image uses all pixels (as in Pillow).
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
/// Maps pixels of an affinely transformed image to the original: the inverse of
///   T(center + translate) R(angle) Shear(shear) Scale(scale) T(-center)
/// in pixels, with y pointing down, angles in degrees (clockwise) and `center` relative to the middle of the image:
///   R Shear = [cos(a - sy) / cos(sy), -cos(a - sy) tan(sx) / cos(sy) - sin(a); sin(a - sy) / cos(sy),
///              -sin(a - sy) tan(sx) / cos(sy) + cos(a)]
/// A scale of 0 or less is a ValueError.
AffineMap inverse_affine_map(double angle, double translate_x, double translate_y, double scale, double shear_x,
                             double shear_y, double center_x = 0, double center_y = 0);
/// Returns (…, height, width) in which output pixel (x, y) is the image at map(x, y). Both positions are relative to
/// the middle of their image and denote the middle of the pixel. Between pixels, with u = x0 + a and v = y0 + b:
///   bilinear: (1 - b) ((1 - a) p(x0, y0) + a p(x0 + 1, y0)) + b ((1 - a) p(x0, y0 + 1) + a p(x0 + 1, y0 + 1))
/// where p is `fill` outside of the image. (torchvision blends pixels on the border with `fill` twice.)
Tensor sample_affine(const Tensor& image, const AffineMap& map, ImageSize size, Interpolation interpolation,
                     const Fill& fill);
/// Rotates by `angle` degrees clockwise, moves by whole or fractional pixels, scales and shears. The centre is `center`
/// (x, y) in pixels from the upper left corner, by default the middle.
Tensor affine(const Tensor& image, double angle, std::pair<double, double> translate, double scale,
              std::pair<double, double> shear, Interpolation interpolation = Interpolation::kNearest,
              const Fill& fill = 0, std::optional<std::pair<double, double>> center = std::nullopt);
/// Rotates by `angle` degrees counter-clockwise. With `expand` the result is just large enough for the whole image,
/// which is rotated about its middle (torchvision's result may be one pixel larger).
Tensor rotate(const Tensor& image, double angle, Interpolation interpolation = Interpolation::kNearest,
              bool expand = false, std::optional<std::pair<double, double>> center = std::nullopt,
              const Fill& fill = 0);

/// 0.2989 R + 0.587 G + 0.114 B, as one channel or three equal ones. Images with one channel are not changed.
Tensor rgb_to_grayscale(const Tensor& image, int64_t num_output_channels = 1);
/// clamp(factor x, 0, 1)
Tensor adjust_brightness(const Tensor& image, double factor);
/// clamp(factor x + (1 - factor) mean, 0, 1), where mean is that of the grey image
Tensor adjust_contrast(const Tensor& image, double factor);
/// clamp(factor x + (1 - factor) grey, 0, 1); images with one channel are not changed
Tensor adjust_saturation(const Tensor& image, double factor);
/// Rotates the hue by `factor` of the colour circle, in [-0.5, 0.5]; images with one channel are not changed
Tensor adjust_hue(const Tensor& image, double factor);

/// Fills the rectangle with a value, or one value for each channel.
Tensor erase(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width, const Fill& value = 0);

}  // namespace functional

namespace detail {

/// An image as planes in memory.
struct Planes {
  Array array;
  int64_t count, height, width;  ///< numbers of planes, rows and columns
  int64_t pixels() const { return height * width; }
  float* plane(int64_t i) const { return array.data<float>() + i * pixels(); }
};
/// The planes of `image`, row-major on the CPU; `name` names the operation in messages.
Planes planes_of(const Tensor& image, std::string_view name);
/// Uninitialised planes for a result of another size.
Planes planes_like(const Planes& planes, ImageSize size);
/// The fill of plane i of an image with C channels.
float fill_of(const Fill& fill, const Planes& planes, int64_t i, std::string_view name);

}  // namespace detail
}  // namespace gradus::data::transforms
