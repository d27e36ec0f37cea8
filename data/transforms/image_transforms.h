// Transforms of images, random and fixed, with the names, parameters and defaults of torchvision.transforms:
//
//   auto train = data::datasets::CIFAR10(root)
//                    .map(data::transforms::RandomCrop(32).padding(4))
//                    .map(data::transforms::RandomHorizontalFlip())
//                    .map(data::transforms::Normalize<>({0.491, 0.482, 0.447}, {0.247, 0.243, 0.262}))
//                    .map(data::transforms::Stack<>());
//
// Images are float32 (…, C, H, W). data/images/image_ops.h has the formulas. In a loader, the random numbers of a
// transform depend on (seed, epoch, index of the sample) and not on the number of workers; elsewhere they come from the
// default generator. Constructors and setters throw a ValueError for invalid parameters.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <gradus/core/options.h>
#include <gradus/data/images/image_ops.h>

namespace gradus::data::transforms {

/// The base of all transforms of images: a function object with a description.
class ImageTransform {
 public:
  virtual ~ImageTransform() = default;
  virtual Tensor operator()(const Tensor& image) const = 0;
  /// Returns the text for BatchDataset::explain(), such as "RandomCrop(32x32, padding 4)".
  virtual std::string describe() const = 0;
};

/// The base of transforms that change an image with probability p and otherwise return it unchanged. Derived classes
/// implement change.
class RandomImageTransform : public ImageTransform {
 public:
  Tensor operator()(const Tensor& image) const override;
  /// Returns the name, p and details(), such as "RandomErasing(0.5, normal noise)".
  std::string describe() const override;

 protected:
  RandomImageTransform(double p, const char* name);
  virtual Tensor change(const Tensor& image) const = 0;
  /// Further text for describe(), after p.
  virtual std::string details() const { return ""; }

 private:
  double p_;
  const char* name_;
};

namespace detail {
/// Returns `size`. Throws a ValueError that names the transform if the height or the width is below 1.
ImageSize checked_size(ImageSize size, const char* name);
/// Returns a size as text: "32x32".
std::string text_of(ImageSize size);
}  // namespace detail

// ---- Size and position ----

/// Resizes an image to height x width or, given a single number, so that its shorter side has this length and its
/// aspect ratio is kept.
class Resize : public ImageTransform {
  GRADUS_ARG(Interpolation, interpolation) = Interpolation::kBilinear;
  GRADUS_ARG(bool, antialias) = true;

 public:
  explicit Resize(int64_t shorter_side) : size_(detail::checked_size(shorter_side, "Resize")), shorter_side_(true) {}
  explicit Resize(ImageSize size) : size_(detail::checked_size(size, "Resize")), shorter_side_(false) {}
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  ImageSize size_;
  bool shorter_side_;
};

/// Takes the middle part of the image. Pixels outside of a smaller image are 0.
class CenterCrop : public ImageTransform {
 public:
  explicit CenterCrop(ImageSize size) : size_(detail::checked_size(size, "CenterCrop")) {}
  Tensor operator()(const Tensor& image) const override { return functional::center_crop(image, size_); }
  std::string describe() const override { return "CenterCrop(" + detail::text_of(size_) + ")"; }

 private:
  ImageSize size_;
};

class Pad : public ImageTransform {
 public:
  explicit Pad(Padding padding, Fill fill = 0, PaddingMode mode = PaddingMode::kConstant)
      : padding_(padding), fill_(std::move(fill)), mode_(mode) {}
  Tensor operator()(const Tensor& image) const override { return functional::pad(image, padding_, fill_, mode_); }
  std::string describe() const override;

 private:
  Padding padding_;
  Fill fill_;
  PaddingMode mode_;
};

/// Takes a random part of the given size from the padded image. A padded image that is too small is a ShapeError,
/// unless pad_if_needed is set, which pads it further.
class RandomCrop : public ImageTransform {
  GRADUS_ARG(Fill, fill);
  GRADUS_ARG(PaddingMode, padding_mode) = PaddingMode::kConstant;

 public:
  explicit RandomCrop(ImageSize size) : size_(detail::checked_size(size, "RandomCrop")) {}
  RandomCrop& padding(Padding value) { return padding_ = value, *this; }
  RandomCrop& pad_if_needed(bool value = true) { return pad_if_needed_ = value, *this; }
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  ImageSize size_;
  std::optional<Padding> padding_;
  bool pad_if_needed_ = false;
};

/// Takes a random part of the image and resizes it. The part's share of the image's area is drawn uniformly from
/// `scale`, and its aspect ratio (width / height) log-uniformly from `ratio`. If ten drawn parts in a row do not fit
/// into the image, takes the largest middle part with an allowed ratio ("Going deeper with convolutions", 2015).
class RandomResizedCrop : public ImageTransform {
  GRADUS_ARG(Interpolation, interpolation) = Interpolation::kBilinear;
  GRADUS_ARG(bool, antialias) = true;

 public:
  explicit RandomResizedCrop(ImageSize size) : size_(detail::checked_size(size, "RandomResizedCrop")) {}
  RandomResizedCrop& scale(double low, double high);
  RandomResizedCrop& ratio(double low, double high);
  Tensor operator()(const Tensor& image) const override;
  std::string describe() const override;

 private:
  ImageSize size_;
  std::pair<double, double> scale_ = {0.08, 1.0}, ratio_ = {3.0 / 4, 4.0 / 3};
};

/// Mirrors the image horizontally (left becomes right) with probability p.
class RandomHorizontalFlip : public RandomImageTransform {
 public:
  explicit RandomHorizontalFlip(double p = 0.5) : RandomImageTransform(p, "RandomHorizontalFlip") {}

 private:
  Tensor change(const Tensor& image) const override { return functional::hflip(image); }
};

/// Mirrors the image vertically (top becomes bottom) with probability p.
class RandomVerticalFlip : public RandomImageTransform {
 public:
  explicit RandomVerticalFlip(double p = 0.5) : RandomImageTransform(p, "RandomVerticalFlip") {}

 private:
  Tensor change(const Tensor& image) const override { return functional::vflip(image); }
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

/// Rotates, moves, scales and shears the image at random. The angle is in [-degrees, degrees] or [low, high]. By
/// default it only rotates; setters add the other changes:
///   RandomAffine(10).translate(0.1, 0.1).scale(0.9, 1.1).shear(5).interpolation(Interpolation::kBilinear)
class RandomAffine : public ImageTransform {
  GRADUS_ARG(Interpolation, interpolation) = Interpolation::kNearest;
  GRADUS_ARG(Fill, fill);

 public:
  explicit RandomAffine(double degrees);
  RandomAffine(double low, double high);
  /// Moves by whole pixels, at most by these shares (in [0, 1]) of the image's width and height.
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

/// Converts the image to grey, with one channel or with three equal channels.
class Grayscale : public ImageTransform {
 public:
  explicit Grayscale(int64_t num_output_channels = 1);
  Tensor operator()(const Tensor& image) const override { return functional::rgb_to_grayscale(image, channels_); }
  std::string describe() const override { return "Grayscale(" + std::to_string(channels_) + ")"; }

 private:
  int64_t channels_;
};

/// Converts the image to grey with probability p. The number of channels stays the same.
class RandomGrayscale : public RandomImageTransform {
 public:
  explicit RandomGrayscale(double p = 0.1) : RandomImageTransform(p, "RandomGrayscale") {}

 private:
  Tensor change(const Tensor& image) const override;
};

/// Changes brightness, contrast, saturation and hue in a random order. Multiplies each of the first three by a factor
/// from [max(0, 1 - value), 1 + value], where value is the parameter of that name, and rotates the hue by a share of
/// the colour circle from [-hue, hue]; hue is at most 0.5. If a parameter is 0, its property is not changed.
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
/// 2017). The rectangle's share of the image's area is drawn uniformly from `scale`, and its aspect ratio (height /
/// width) log-uniformly from `ratio`. If ten drawn rectangles in a row do not fit into the image, the image is not
/// changed.
class RandomErasing : public RandomImageTransform {
 public:
  explicit RandomErasing(double p = 0.5) : RandomImageTransform(p, "RandomErasing") {}
  RandomErasing& scale(double low, double high);
  RandomErasing& ratio(double low, double high);
  RandomErasing& value(Fill value) { return value_ = std::move(value), noise_ = false, *this; }
  /// Fills the rectangle with standard normal numbers (torchvision's value="random").
  RandomErasing& random_value() { return noise_ = true, *this; }

 private:
  Tensor change(const Tensor& image) const override;
  std::string details() const override { return noise_ ? ", normal noise" : ""; }

  std::pair<double, double> scale_ = {0.02, 0.33}, ratio_ = {0.3, 3.3};
  Fill value_;
  bool noise_ = false;
};

/// Fills `n_holes` squares around random pixels with a value. Their sides have `length` pixels; a square may extend
/// beyond the image (DeVries, Taylor: "Improved regularization of convolutional neural networks with Cutout", 2017).
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
