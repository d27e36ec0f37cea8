// Random and fixed transforms of images, with the names, parameters and defaults of torchvision.transforms:
//
//   auto train = data::datasets::CIFAR10(root)
//                    .map(data::transforms::RandomCrop(32).padding(4))
//                    .map(data::transforms::RandomHorizontalFlip())
//                    .map(data::transforms::Normalize<>({0.491, 0.482, 0.447}, {0.247, 0.243, 0.262}))
//                    .map(data::transforms::Stack<>());
//
// Images are float32 (…, C, H, W) as in data/images/image_ops.h, which has the formulas. The random numbers of a
// transform depend on (seed, epoch, index of the sample) and not on the number of workers; outside of a loader they
// come from the default generator. Invalid parameters are a ValueError when they are set.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <gradus/core/options.h>
#include <gradus/data/images/image_ops.h>

namespace gradus::data::transforms {

/// Base of the transforms: a function of an image with a description.
class ImageTransform {
 public:
  virtual ~ImageTransform() = default;
  virtual Tensor operator()(const Tensor& image) const = 0;
  /// "RandomCrop(32x32, padding 4)"
  virtual std::string describe() const = 0;
};

// ---- Size and position ----

/// Resizes to height x width or, given one number, makes the shorter side that long.
class Resize : public ImageTransform {
  GRADUS_ARG(Interpolation, interpolation) = Interpolation::kBilinear;
  GRADUS_ARG(bool, antialias) = true;

 public:
  explicit Resize(int64_t shorter_side);
  explicit Resize(ImageSize size);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  ImageSize size_;
  bool shorter_side_;
};

/// Takes the middle of the image, surrounded by 0 if the image is smaller.
class CenterCrop : public ImageTransform {
 public:
  explicit CenterCrop(ImageSize size);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  ImageSize size_;
};

class Pad : public ImageTransform {
 public:
  explicit Pad(Padding padding, Fill fill = 0, PaddingMode mode = PaddingMode::kConstant)
      : padding_(padding), fill_(std::move(fill)), mode_(mode) {}
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  Padding padding_;
  Fill fill_;
  PaddingMode mode_;
};

/// Takes a random part of the given size from the padded image. An image that is too small is a ShapeError, unless
/// pad_if_needed is set.
class RandomCrop : public ImageTransform {
  GRADUS_ARG(Fill, fill);
  GRADUS_ARG(PaddingMode, padding_mode) = PaddingMode::kConstant;

 public:
  explicit RandomCrop(ImageSize size);
  RandomCrop& padding(Padding value) { return padding_ = value, *this; }
  RandomCrop& pad_if_needed(bool value = true) { return pad_if_needed_ = value, *this; }
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  ImageSize size_;
  std::optional<Padding> padding_;
  bool pad_if_needed_ = false;
};

/// Takes a random part and resizes it. The part's area is a share of the image in `scale`, and its aspect ratio (width
/// / height) is log-uniform in `ratio`. After ten draws that do not fit, takes the middle of the image ("Going deeper
/// with convolutions", 2015).
class RandomResizedCrop : public ImageTransform {
  GRADUS_ARG(Interpolation, interpolation) = Interpolation::kBilinear;
  GRADUS_ARG(bool, antialias) = true;

 public:
  explicit RandomResizedCrop(ImageSize size);
  RandomResizedCrop& scale(double low, double high);
  RandomResizedCrop& ratio(double low, double high);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  ImageSize size_;
  std::pair<double, double> scale_ = {0.08, 1.0}, ratio_ = {3.0 / 4, 4.0 / 3};
};

/// Mirrors left and right with probability p.
class RandomHorizontalFlip : public ImageTransform {
 public:
  explicit RandomHorizontalFlip(double p = 0.5);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  double p_;
};

/// Mirrors top and bottom with probability p.
class RandomVerticalFlip : public ImageTransform {
 public:
  explicit RandomVerticalFlip(double p = 0.5);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  double p_;
};

/// Rotates counter-clockwise by a random angle in [-degrees, degrees] or [low, high].
class RandomRotation : public ImageTransform {
  GRADUS_ARG(Interpolation, interpolation) = Interpolation::kNearest;
  GRADUS_ARG(Fill, fill);

 public:
  explicit RandomRotation(double degrees);
  RandomRotation(double low, double high);
  RandomRotation& expand(bool value = true) { return expand_ = value, *this; }
  RandomRotation& center(double x, double y) { return center_ = {x, y}, *this; }
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  std::pair<double, double> degrees_;
  bool expand_ = false;
  std::optional<std::pair<double, double>> center_;
};

/// Rotates by a random angle in [-degrees, degrees] or [low, high], moves by whole pixels up to a share of width and
/// height, scales and shears at random. By default it only rotates:
///   RandomAffine(10).translate(0.1, 0.1).scale(0.9, 1.1).shear(5).interpolation(Interpolation::kBilinear)
class RandomAffine : public ImageTransform {
  GRADUS_ARG(Interpolation, interpolation) = Interpolation::kNearest;
  GRADUS_ARG(Fill, fill);

 public:
  explicit RandomAffine(double degrees);
  RandomAffine(double low, double high);
  /// Maximum shares of the image's width and height, in [0, 1].
  RandomAffine& translate(double horizontal, double vertical);
  RandomAffine& scale(double low, double high);
  /// Shears along x by an angle in [-degrees, degrees].
  RandomAffine& shear(double degrees);
  /// Shears along x and along y by angles in these ranges.
  RandomAffine& shear(double x_low, double x_high, double y_low = 0, double y_high = 0);
  RandomAffine& center(double x, double y) { return center_ = {x, y}, *this; }
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  std::pair<double, double> degrees_;
  std::pair<double, double> translate_ = {0, 0};
  std::optional<std::pair<double, double>> scale_, shear_x_, shear_y_, center_;
};

// ---- Colour ----

/// Converts to grey, as one channel or three equal ones.
class Grayscale : public ImageTransform {
 public:
  explicit Grayscale(int64_t num_output_channels = 1);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  int64_t channels_;
};

/// Converts to grey with probability p and keeps the number of channels.
class RandomGrayscale : public ImageTransform {
 public:
  explicit RandomGrayscale(double p = 0.1);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  double p_;
};

/// Multiplies brightness, contrast and saturation by factors in [max(0, 1 - value), 1 + value] and rotates the hue by a
/// share of the circle in [-hue, hue] (hue is at most 0.5), in random order. A value of 0 disables that step.
class ColorJitter : public ImageTransform {
 public:
  explicit ColorJitter(double brightness = 0, double contrast = 0, double saturation = 0, double hue = 0);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  double brightness_, contrast_, saturation_, hue_;
};

// ---- Erasing ----

/// With probability p, fills a random rectangle with a value or with normal noise ("Random erasing data augmentation",
/// 2017). Its share of the image's area is drawn uniformly from `scale`, and its aspect ratio (height / width)
/// log-uniformly from `ratio`. If none of ten such rectangles fits, the image is not changed.
class RandomErasing : public ImageTransform {
 public:
  explicit RandomErasing(double p = 0.5);
  RandomErasing& scale(double low, double high);
  RandomErasing& ratio(double low, double high);
  RandomErasing& value(Fill value) { return value_ = std::move(value), noise_ = false, *this; }
  /// Fills with standard normal numbers, torchvision's value="random".
  RandomErasing& random_value() { return noise_ = true, *this; }
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  double p_;
  std::pair<double, double> scale_ = {0.02, 0.33}, ratio_ = {0.3, 3.3};
  Fill value_;
  bool noise_ = false;
};

/// Fills `n_holes` squares of `length` pixels around random centres with a value, as far as they are within the image
/// (DeVries, Taylor: "Improved regularization of convolutional neural networks with Cutout", 2017).
class Cutout : public ImageTransform {
 public:
  explicit Cutout(int64_t length, int64_t n_holes = 1, Fill fill = 0);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  int64_t length_, holes_;
  Fill fill_;
};

}  // namespace gradus::data::transforms
