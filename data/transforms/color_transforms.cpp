// Colour transforms, and transforms that erase parts of an image.
#include <gradus/data/transforms/image_transforms.h>

#include <gradus/data/plan.h>
#include <gradus/data/transforms/draw.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace gradus::data::transforms {
namespace {

using data::detail::draw_chance;
using data::detail::draw_integer;
using data::detail::draw_uniform;
using data::detail::join_numbers;

void check_probability(double p, const char* name) {
  GRADUS_CHECK(p >= 0 && p <= 1, ValueError, name, " needs a probability in [0, 1], got ", p);
}

double draw_factor(double value) { return draw_uniform(std::max(0.0, 1 - value), 1 + value); }

}  // namespace

Grayscale::Grayscale(int64_t num_output_channels) : channels_(num_output_channels) {
  GRADUS_CHECK(channels_ == 1 || channels_ == 3, ValueError, "Grayscale needs 1 or 3 output channels, got ", channels_);
}
Tensor Grayscale::operator()(const Tensor& image) const { return functional::rgb_to_grayscale(image, channels_); }
std::string Grayscale::describe() const { return "Grayscale(" + std::to_string(channels_) + ")"; }

RandomGrayscale::RandomGrayscale(double p) : p_(p) { check_probability(p, "RandomGrayscale"); }
Tensor RandomGrayscale::operator()(const Tensor& image) const {
  if (!draw_chance(p_)) return image;
  const bool color = image.dim() >= 3 && image.size(-3) == 3;
  return functional::rgb_to_grayscale(image, color ? 3 : 1);
}
std::string RandomGrayscale::describe() const { return "RandomGrayscale(" + join_numbers({p_}) + ")"; }

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

RandomErasing::RandomErasing(double p) : p_(p) { check_probability(p, "RandomErasing"); }
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

Tensor RandomErasing::operator()(const Tensor& image) const {
  if (!draw_chance(p_)) return image;
  const detail::Planes x = detail::planes_of(image, "RandomErasing");
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(x.pixels()) * draw_uniform(scale_.first, scale_.second);
    const double ratio = std::exp(draw_uniform(std::log(ratio_.first), std::log(ratio_.second)));
    const int64_t height = std::llround(std::sqrt(area * ratio)), width = std::llround(std::sqrt(area / ratio));
    if (height >= x.height || width >= x.width) continue;
    const int64_t top = draw_integer(0, x.height - height + 1), left = draw_integer(0, x.width - width + 1);
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
std::string RandomErasing::describe() const {
  return "RandomErasing(" + join_numbers({p_}) + (noise_ ? ", normal noise)" : ")");
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
