#include <gradus/data/transforms/image_transforms.h>

#include <gradus/data/sample.h>
#include <gradus/data/transforms/transforms.h>

#include <algorithm>
#include <cmath>

namespace gradus::data::transforms {
namespace {

using data::detail::draw_chance;
using data::detail::draw_integer;
using data::detail::draw_uniform;
using data::detail::join_numbers;
using detail::text_of;
using Range = std::pair<double, double>;

Range checked_range(double low, double high, const char* name) {
  GRADUS_CHECK(low <= high && std::isfinite(low) && std::isfinite(high), ValueError, name,
               " needs a range from low to high, got ", low, " and ", high);
  return {low, high};
}
Range positive_range(double low, double high, const char* name) {
  GRADUS_CHECK(low > 0, ValueError, name, " needs numbers above 0, got ", low);
  return checked_range(low, high, name);
}
Range around_zero(double value, const char* name) {
  GRADUS_CHECK(value >= 0, ValueError, name, " needs a number of at least 0 or a range, got ", value);
  return checked_range(-value, value, name);
}
double checked_probability(double p, const char* name) {
  GRADUS_CHECK(p >= 0 && p <= 1, ValueError, name, " needs a probability in [0, 1], got ", p);
  return p;
}
double draw(const Range& range) { return draw_uniform(range.first, range.second); }
// Draws the factor by which ColorJitter multiplies a property, given its parameter for this property.
double draw_factor(double value) { return draw_uniform(std::max(0.0, 1 - value), 1 + value); }
// Draws log-uniformly, so that a ratio and its inverse are equally likely.
double draw_ratio(const Range& range) { return std::exp(draw_uniform(std::log(range.first), std::log(range.second))); }

std::string text_of(const Range& range) { return join_numbers({range.first, range.second}); }
std::string text_of(Interpolation interpolation) {
  return interpolation == Interpolation::kNearest ? "nearest" : "bilinear";
}

}  // namespace

ImageSize detail::checked_size(ImageSize size, const char* name) {
  GRADUS_CHECK(size.height > 0 && size.width > 0, ValueError, name, " needs a height and a width above 0, got ",
               size.height, " and ", size.width);
  return size;
}
std::string detail::text_of(ImageSize size) { return std::to_string(size.height) + "x" + std::to_string(size.width); }

RandomImageTransform::RandomImageTransform(double p, const char* name)
    : p_(checked_probability(p, name)), name_(name) {}
Tensor RandomImageTransform::operator()(const Tensor& image) const { return draw_chance(p_) ? change(image) : image; }
std::string RandomImageTransform::describe() const { return name_ + ("(" + join_numbers({p_}) + details() + ")"); }

Tensor Resize::operator()(const Tensor& image) const {
  ImageSize size = size_;
  if (shorter_side_) {
    const detail::Planes x = detail::planes_of(image, "Resize");
    // The length of the longer side is rounded down, as in torchvision.
    const int64_t side = size_.height, other = side * std::max(x.height, x.width) / std::min(x.height, x.width);
    size = x.height < x.width ? ImageSize(side, other) : ImageSize(other, side);
  }
  return functional::resize(image, size, interpolation_, antialias_);
}
std::string Resize::describe() const {
  return "Resize(" + (shorter_side_ ? "shorter side " + std::to_string(size_.height) : text_of(size_)) + ", " +
         text_of(interpolation_) + (antialias_ ? ", antialias)" : ")");
}

std::string Pad::describe() const {
  return "Pad(left " + std::to_string(padding_.left) + ", top " + std::to_string(padding_.top) + ", right " +
         std::to_string(padding_.right) + ", bottom " + std::to_string(padding_.bottom) + ")";
}

Tensor RandomCrop::operator()(const Tensor& image) const {
  Tensor padded = image;
  Padding padding = padding_.value_or(0);
  detail::Planes x = detail::planes_of(image, "RandomCrop");
  ImageSize room(x.height + padding.top + padding.bottom, x.width + padding.left + padding.right);
  const int64_t missing_width = std::max<int64_t>(size_.width - room.width, 0);
  const int64_t missing_height = std::max<int64_t>(size_.height - room.height, 0);
  if (pad_if_needed_ && missing_width + missing_height > 0) {
    // Pads on both sides by all that is missing, as in torchvision.
    padded = functional::pad(image, padding, fill_, padding_mode_);
    padding = {missing_width, missing_height};
    room.height += 2 * missing_height, room.width += 2 * missing_width;
  }
  GRADUS_CHECK(size_.height <= room.height && size_.width <= room.width, ShapeError, "RandomCrop cannot take ",
               text_of(size_), " out of an image of ", room.height, "x", room.width, "; use pad_if_needed()");
  const int64_t top = draw_integer(0, room.height - size_.height + 1);
  const int64_t left = draw_integer(0, room.width - size_.width + 1);
  return functional::padded_crop(padded, padding, top, left, size_, fill_, padding_mode_);
}
std::string RandomCrop::describe() const {
  return "RandomCrop(" + text_of(size_) + (padding_ ? ", padding " + std::to_string(padding_->left) : "") + ")";
}

RandomResizedCrop& RandomResizedCrop::scale(double low, double high) {
  return scale_ = positive_range(low, high, "RandomResizedCrop's scale"), *this;
}
RandomResizedCrop& RandomResizedCrop::ratio(double low, double high) {
  return ratio_ = positive_range(low, high, "RandomResizedCrop's ratio"), *this;
}

Tensor RandomResizedCrop::operator()(const Tensor& image) const {
  const detail::Planes x = detail::planes_of(image, "RandomResizedCrop");
  const auto cut = [&](int64_t top, int64_t left, int64_t height, int64_t width) {
    return functional::resized_crop(image, top, left, height, width, size_, interpolation_, antialias_);
  };
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(x.pixels()) * draw(scale_);
    const double ratio = draw_ratio(ratio_);
    const int64_t width = std::llround(std::sqrt(area * ratio));
    const int64_t height = std::llround(std::sqrt(area / ratio));
    if (width < 1 || width > x.width || height < 1 || height > x.height) continue;
    const int64_t top = draw_integer(0, x.height - height + 1);
    return cut(top, draw_integer(0, x.width - width + 1), height, width);
  }
  // No part fitted: takes the largest middle part whose ratio is allowed and nearest to the image's.
  const double ratio = static_cast<double>(x.width) / static_cast<double>(x.height);
  int64_t width = x.width, height = x.height;
  if (ratio < ratio_.first) height = std::llround(static_cast<double>(width) / ratio_.first);
  else if (ratio > ratio_.second) width = std::llround(static_cast<double>(height) * ratio_.second);
  return cut((x.height - height) / 2, (x.width - width) / 2, height, width);
}
std::string RandomResizedCrop::describe() const {
  return "RandomResizedCrop(" + text_of(size_) + ", scale " + text_of(scale_) + "; ratio " + text_of(ratio_) + ")";
}

RandomRotation::RandomRotation(double degrees) : degrees_(around_zero(degrees, "RandomRotation's degrees")) {}
RandomRotation::RandomRotation(double low, double high)
    : degrees_(checked_range(low, high, "RandomRotation's degrees")) {}
Tensor RandomRotation::operator()(const Tensor& image) const {
  return functional::rotate(image, draw(degrees_), interpolation_, expand_, center_, fill_);
}
std::string RandomRotation::describe() const {
  return "RandomRotation(" + text_of(degrees_) + " degrees, " + text_of(interpolation_) + ")";
}

RandomAffine::RandomAffine(double degrees) : degrees_(around_zero(degrees, "RandomAffine's degrees")) {}
RandomAffine::RandomAffine(double low, double high) : degrees_(checked_range(low, high, "RandomAffine's degrees")) {}
RandomAffine& RandomAffine::translate(double horizontal, double vertical) {
  translate_ = {checked_probability(horizontal, "RandomAffine's translate"),
                checked_probability(vertical, "RandomAffine's translate")};
  return *this;
}
RandomAffine& RandomAffine::scale(double low, double high) {
  return scale_ = positive_range(low, high, "RandomAffine's scale"), *this;
}
RandomAffine& RandomAffine::shear(double degrees) {
  return shear_x_ = around_zero(degrees, "RandomAffine's shear"), *this;
}
RandomAffine& RandomAffine::shear(double x_low, double x_high, double y_low, double y_high) {
  shear_x_ = checked_range(x_low, x_high, "RandomAffine's shear");
  shear_y_ = checked_range(y_low, y_high, "RandomAffine's shear");
  return *this;
}

Tensor RandomAffine::operator()(const Tensor& image) const {
  const detail::Planes x = detail::planes_of(image, "RandomAffine");
  const double angle = draw(degrees_);
  const double most_x = translate_.first * static_cast<double>(x.width);
  const double most_y = translate_.second * static_cast<double>(x.height);
  const double move_x = std::nearbyint(draw_uniform(-most_x, most_x));
  const double move_y = std::nearbyint(draw_uniform(-most_y, most_y));
  const double scale = scale_ ? draw(*scale_) : 1;
  const double shear_x = shear_x_ ? draw(*shear_x_) : 0, shear_y = shear_y_ ? draw(*shear_y_) : 0;
  return functional::affine(image, angle, {move_x, move_y}, scale, {shear_x, shear_y}, interpolation_, fill_, center_);
}
std::string RandomAffine::describe() const {
  std::string text = "RandomAffine(" + text_of(degrees_) + " degrees";
  if (translate_ != Range(0, 0)) text += "; translate " + text_of(translate_);
  if (scale_) text += "; scale " + text_of(*scale_);
  if (shear_x_) text += "; shear " + text_of(*shear_x_);
  if (shear_y_) text += "; shear y " + text_of(*shear_y_);
  return text + "; " + text_of(interpolation_) + ")";
}

// ---- Colour and erasing ----

Grayscale::Grayscale(int64_t num_output_channels) : channels_(num_output_channels) {
  GRADUS_CHECK(channels_ == 1 || channels_ == 3, ValueError, "Grayscale needs 1 or 3 output channels, got ", channels_);
}

Tensor RandomGrayscale::change(const Tensor& image) const {
  const bool color = image.dim() >= 3 && image.size(-3) == 3;
  return functional::rgb_to_grayscale(image, color ? 3 : 1);
}

ColorJitter::ColorJitter(double brightness, double contrast, double saturation, double hue)
    : brightness_(brightness), contrast_(contrast), saturation_(saturation), hue_(hue) {
  for (double value : {brightness, contrast, saturation})
    GRADUS_CHECK(value >= 0 && std::isfinite(value), ValueError, "ColorJitter needs numbers of at least 0, got ",
                 value);
  GRADUS_CHECK(hue >= 0 && hue <= 0.5, ValueError, "ColorJitter needs a hue in [0, 0.5], got ", hue);
}

Tensor ColorJitter::operator()(const Tensor& image) const {
  int order[] = {0, 1, 2, 3};
  for (int i = 4; i > 1; --i) std::swap(order[i - 1], order[draw_integer(0, i)]);
  Tensor result = image;
  for (int step : order) {
    if (step == 0 && brightness_ > 0) result = functional::adjust_brightness(result, draw_factor(brightness_));
    if (step == 1 && contrast_ > 0) result = functional::adjust_contrast(result, draw_factor(contrast_));
    if (step == 2 && saturation_ > 0) result = functional::adjust_saturation(result, draw_factor(saturation_));
    if (step == 3 && hue_ > 0) result = functional::adjust_hue(result, draw_uniform(-hue_, hue_));
  }
  return result;
}
std::string ColorJitter::describe() const {
  return "ColorJitter(brightness, contrast, saturation, hue: " +
         join_numbers({brightness_, contrast_, saturation_, hue_}) + ")";
}

RandomErasing& RandomErasing::scale(double low, double high) {
  GRADUS_CHECK(low >= 0 && low <= high && high <= 1, ValueError,
               "RandomErasing needs a scale from low to high in [0, 1], got ", low, " and ", high);
  return scale_ = {low, high}, *this;
}
RandomErasing& RandomErasing::ratio(double low, double high) {
  GRADUS_CHECK(low > 0 && low <= high && std::isfinite(high), ValueError,
               "RandomErasing needs a ratio from low to high above 0, got ", low, " and ", high);
  return ratio_ = {low, high}, *this;
}

Tensor RandomErasing::change(const Tensor& image) const {
  const detail::Planes x = detail::planes_of(image, "RandomErasing");
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(x.pixels()) * draw(scale_);
    const double ratio = draw_ratio(ratio_);
    const int64_t height = std::llround(std::sqrt(area * ratio));
    const int64_t width = std::llround(std::sqrt(area / ratio));
    if (height >= x.height || width >= x.width) continue;
    const int64_t top = draw_integer(0, x.height - height + 1);
    const int64_t left = draw_integer(0, x.width - width + 1);
    const Tensor erased = functional::erase(image, top, left, height, width, value_);
    if (noise_) {
      const RandomState noise = sample_generator().next();
      float* pixels = erased.data_ptr<float>();
      uint64_t drawn = 0;
      for (int64_t plane = 0; plane < x.count; ++plane)
        for (int64_t row = top; row < top + height; ++row)
          for (int64_t column = left; column < left + width; ++column)
            pixels[plane * x.pixels() + row * x.width + column] =
                static_cast<float>(random_normal(noise.seed, noise.offset, drawn++));
    }
    return erased;
  }
  return image;
}

Cutout::Cutout(int64_t length, int64_t n_holes, Fill fill) : length_(length), holes_(n_holes), fill_(std::move(fill)) {
  GRADUS_CHECK(length > 0 && n_holes > 0, ValueError, "Cutout needs a length and a number of holes above 0, got ",
               length, " and ", n_holes);
}

Tensor Cutout::operator()(const Tensor& image) const {
  Tensor result = image;
  for (int64_t hole = 0; hole < holes_; ++hole) {
    const detail::Planes x = detail::planes_of(result, "Cutout");
    const int64_t first_row = draw_integer(0, x.height) - length_ / 2;
    const int64_t first_column = draw_integer(0, x.width) - length_ / 2;
    const int64_t top = std::max<int64_t>(first_row, 0), bottom = std::min(first_row + length_, x.height);
    const int64_t left = std::max<int64_t>(first_column, 0), right = std::min(first_column + length_, x.width);
    result = functional::erase(result, top, left, std::max<int64_t>(bottom - top, 0),
                               std::max<int64_t>(right - left, 0), fill_);
  }
  return result;
}
std::string Cutout::describe() const {
  return "Cutout(" + std::to_string(length_) + (holes_ > 1 ? ", " + std::to_string(holes_) + " holes)" : ")");
}

}  // namespace gradus::data::transforms
