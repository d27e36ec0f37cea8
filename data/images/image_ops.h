// Operations on images with the names and formulas of torchvision.transforms.functional. The transforms of
// data/transforms/image_transforms.h call them.
//
// Images are float32 tensors of shape (…, H, W), or (…, C, H, W) where channels matter. Another shape is a ShapeError,
// another type a DTypeError. The operations compute on the CPU, do not change the image, and are not recorded for
// gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::data::transforms {

/// How the value at a position between pixels is computed: from the nearest pixel, or from the four surrounding pixels.
enum class Interpolation : uint8_t { kNearest, kBilinear };
/// The pixels outside of an image: a constant, the nearest pixel, or the image mirrored at its border, where kReflect
/// does not repeat the pixels at the border and kSymmetric does.
enum class PaddingMode : uint8_t { kConstant, kEdge, kReflect, kSymmetric };

/// Size in pixels: (height, width), or one number for both.
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
/// The value of pixels outside of an image: one value for all channels, or one value for each channel.
struct Fill {
  Fill(double value = 0) : values{value} {}                          // NOLINT(google-explicit-constructor)
  Fill(std::vector<double> values_) : values(std::move(values_)) {}  // NOLINT(google-explicit-constructor)
  std::vector<double> values;
};

namespace functional {

/// Returns the part (…, height, width) whose upper left pixel is in row `top` and column `left`. Pixels outside of the
/// image are 0.
Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width);
/// Returns the middle part. It begins in row round((H - height) / 2) and column round((W - width) / 2).
Tensor center_crop(const Tensor& image, ImageSize size);
/// Adds pixels around the image. The padding on each side must be less than the image's size for kReflect, and at most
/// the image's size for kSymmetric (ValueError).
Tensor pad(const Tensor& image, const Padding& padding, const Fill& fill = 0,
           PaddingMode mode = PaddingMode::kConstant);
/// Equals crop(pad(image, padding, fill, mode), top, left, height, width), but does not make the padded image. The part
/// must be within the padded image (ValueError).
Tensor padded_crop(const Tensor& image, const Padding& padding, int64_t top, int64_t left, ImageSize size,
                   const Fill& fill = 0, PaddingMode mode = PaddingMode::kConstant);
/// Mirrors horizontally: left becomes right.
Tensor hflip(const Tensor& image);
/// Mirrors vertically: top becomes bottom.
Tensor vflip(const Tensor& image);

/// Resizes to (…, height, width). The centre of output pixel i is at c = (i + 1/2) s in the image, where s = H /
/// height. Bilinear: the weighted mean of the image's pixels j with the weights max(0, 1 - |j + 1/2 - c| / r). r is 1,
/// or max(1, s) with antialias, so that all pixels contribute to a smaller image (as in Pillow). Nearest: the image's
/// pixel floor(i s).
Tensor resize(const Tensor& image, ImageSize size, Interpolation interpolation = Interpolation::kBilinear,
              bool antialias = true);
/// resize(crop(image, top, left, height, width), size, interpolation, antialias)
Tensor resized_crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width, ImageSize size,
                    Interpolation interpolation = Interpolation::kBilinear, bool antialias = true);

/// A map of the plane: (x, y) -> (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]).
struct AffineMap {
  double m[6];
};
/// Returns the map from positions in an affinely transformed image to positions in the original image. It is the
/// inverse of
///   T(center + translate) R(angle) Shear(shear) Scale(scale) T(-center)
/// in pixels, with y pointing down, angles in degrees (clockwise) and `center` relative to the middle of the image:
///   R Shear = [cos(a - sy) / cos(sy), -cos(a - sy) tan(sx) / cos(sy) - sin(a); sin(a - sy) / cos(sy),
///              -sin(a - sy) tan(sx) / cos(sy) + cos(a)]
/// A scale of 0 or less is a ValueError.
AffineMap inverse_affine_map(double angle, double translate_x, double translate_y, double scale, double shear_x,
                             double shear_y, double center_x = 0, double center_y = 0);
/// Returns an image (…, height, width) whose pixel (x, y) is the value of `image` at map(x, y). Positions are those of
/// the middle of a pixel, relative to the middle of the image. At a position (u, v) = (x0 + a, y0 + b) between pixels:
///   bilinear: (1 - b) ((1 - a) p(x0, y0) + a p(x0 + 1, y0)) + b ((1 - a) p(x0, y0 + 1) + a p(x0 + 1, y0 + 1))
/// where p is `fill` outside of the image. (Results at the border differ from torchvision's, which blends with `fill` a
/// second time there.)
Tensor sample_affine(const Tensor& image, const AffineMap& map, ImageSize size, Interpolation interpolation,
                     const Fill& fill);
/// Shears, scales, rotates by `angle` degrees clockwise, and moves by `translate` pixels, which need not be whole. The
/// centre of these changes is `center` (x, y) in pixels from the upper left corner; by default it is the middle of the
/// image.
Tensor affine(const Tensor& image, double angle, std::pair<double, double> translate, double scale,
              std::pair<double, double> shear, Interpolation interpolation = Interpolation::kNearest,
              const Fill& fill = 0, std::optional<std::pair<double, double>> center = std::nullopt);
/// Rotates by `angle` degrees counter-clockwise about `center`. With `expand`, rotates about the middle and returns an
/// image that is just large enough for the whole rotated image (torchvision's may be one pixel larger).
Tensor rotate(const Tensor& image, double angle, Interpolation interpolation = Interpolation::kNearest,
              bool expand = false, std::optional<std::pair<double, double>> center = std::nullopt,
              const Fill& fill = 0);

/// Returns 0.2989 R + 0.587 G + 0.114 B as one channel or three equal channels. For an image with one channel, returns
/// that channel.
Tensor rgb_to_grayscale(const Tensor& image, int64_t num_output_channels = 1);
/// clamp(factor x, 0, 1)
Tensor adjust_brightness(const Tensor& image, double factor);
/// clamp(factor x + (1 - factor) mean, 0, 1), where mean is the mean of the grey image
Tensor adjust_contrast(const Tensor& image, double factor);
/// clamp(factor x + (1 - factor) grey, 0, 1); images with one channel are not changed
Tensor adjust_saturation(const Tensor& image, double factor);
/// Rotates the hue by the share `factor`, in [-0.5, 0.5], of the colour circle; images with one channel are not changed
Tensor adjust_hue(const Tensor& image, double factor);

/// Fills a rectangle, whose upper left pixel is in row `top` and column `left`, with a value, or with one value for
/// each channel.
Tensor erase(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width, const Fill& value = 0);

}  // namespace functional

namespace detail {

/// An image in memory as planes (H, W), one for each channel of each image of a batch.
struct Planes {
  Array array;
  int64_t count, height, width;  ///< numbers of planes, rows and columns
  int64_t pixels() const { return height * width; }
  float* plane(int64_t i) const { return array.data<float>() + i * pixels(); }
};
/// Returns the planes of `image`, copied to the CPU and to row-major order if necessary. Messages call the operation
/// `name`.
Planes planes_of(const Tensor& image, std::string_view name);
/// Allocates uninitialised planes for a result: as many planes as `planes` has, of the given size.
Planes planes_like(const Planes& planes, ImageSize size);
/// Returns the fill value for plane i: that of its channel, or the only value. A number of values that is neither 1 nor
/// the number of channels is a ValueError.
float fill_of(const Fill& fill, const Planes& planes, int64_t i, std::string_view name);

}  // namespace detail
}  // namespace gradus::data::transforms
