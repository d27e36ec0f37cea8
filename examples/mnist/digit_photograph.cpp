#include <gradus/examples/mnist/digit_photograph.h>

#include <algorithm>
#include <cmath>

#include <gradus/autograd/autograd.h>
#include <gradus/data/images/image_ops.h>

using namespace gradus;
namespace images = data::transforms::functional;

namespace {

constexpr int64_t kSide = 28, kDigit = 20, kLongest = 256;  // sides in pixels: result, digit, photograph

/// Returns the first and the last index at which a vector is not 0.
std::pair<int64_t, int64_t> extent(const Tensor& sums) {
  const Tensor places = sums.nonzero();
  return {places.min().item<int64_t>(), places.max().item<int64_t>()};
}

/// Returns by how much to shift a vector so that its centre of mass is in the middle. All its elements must stay
/// inside.
int64_t offset(const Tensor& sums) {
  const Tensor places = arange(sums.size(0)).to(kFloat) + 0.5;
  const double centre = ((sums * places).sum() / sums.sum()).item<double>();
  return std::clamp<int64_t>(std::llround(kSide / 2.0 - centre), 0, kSide - sums.size(0));
}

}  // namespace

Tensor digit_of(const Tensor& photograph) {
  Tensor grey = photograph.mean(0, /*keepdim=*/true);  // (1, H, W)
  const auto sides = [](const Tensor& image) {
    return cat({image[0][0], image[0][-1], image[0].select(1, 0), image[0].select(1, -1)}, 0);
  };
  if (grey.size(1) == kSide && grey.size(2) == kSide && sides(grey).median().item<double>() < 0.5) return grey;

  // Reduces the size, because this removes noise.
  const auto shrunk = [](const Tensor& image, int64_t longest) {
    const double scale = static_cast<double>(longest) / static_cast<double>(std::max(image.size(1), image.size(2)));
    const auto length = [&](int64_t pixels) {
      return std::max<int64_t>(1, std::llround(scale * static_cast<double>(pixels)));
    };
    return images::resize(image, {length(image.size(1)), length(image.size(2))});
  };
  if (std::max(grey.size(1), grey.size(2)) > kLongest) grey = shrunk(grey, kLongest);
  const double ground = sides(grey).median().item<double>();
  Tensor ink = (ground > 0.5 ? ground - grey : grey - ground).clamp_min(0);
  const double most = ink.max().item<double>();
  GRADUS_CHECK(most > 0.1, ValueError,
               "there is no digit: nothing is darker than the paper, or lighter than the slate");
  ink = (ink / most - 1.0 / 3).clamp_min(0) * 1.5;
  const auto [top, bottom] = extent(ink[0].sum(1));
  const auto [left, right] = extent(ink[0].sum(0));
  const Tensor digit = shrunk(images::crop(ink, top, left, bottom - top + 1, right - left + 1), kDigit);
  const int64_t y = offset(digit[0].sum(1)), x = offset(digit[0].sum(0));
  return images::pad(digit, {x, y, kSide - digit.size(2) - x, kSide - digit.size(1) - y}).clamp(0, 1);
}
