// Compares the operations of data/images/image_ops.h with golden values of torchvision's formulas
// (tests/golden/make_image_ops.py).
#include <gradus/data/images/image_ops.h>

#include <cmath>
#include <map>

#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

using namespace gradus;
using namespace gradus::test;
using namespace gradus::data::transforms;
namespace f = gradus::data::transforms::functional;

namespace {

const Tensor golden(const std::string& name) {
  static const std::map<std::string, Array> all =
      io::load_safetensors(source_path("tests/golden/image_ops.safetensors"));
  return Tensor(all.at(name));
}
const Tensor image() { return golden("image"); }  // (3, 7, 10) in [0, 1]

void check_close(const Tensor& found, const std::string& name) {
  INFO(name);
  CHECK(error(found, golden(name)) <= tolerance_of(kFloat));
}

constexpr auto bilinear = Interpolation::kBilinear;
constexpr auto nearest = Interpolation::kNearest;

}  // namespace

TEST_CASE("image ops: affine maps", "[data][image]") {
  check_close(f::affine(image(), 23, {1.5, -2}, 1.2, {7, -4}, bilinear), "affine");
  check_close(f::affine(image(), 23, {1, -2}, 1.2, {7, -4}), "affine_nearest");
  const Fill fill = std::vector<double>{0.25, 0.5, 1};
  check_close(f::affine(image(), -50, {0, 1}, 0.7, {0, 0}, bilinear, fill), "affine_fill");
  check_close(f::affine(image(), -50, {0, 1}, 0.7, {0, 0}, nearest, fill), "affine_nearest_fill");
  check_close(f::affine(image(), 40, {0, 0}, 1, {0, 0}, bilinear, 0, std::pair(2.0, 3.0)), "affine_center");
  check_close(f::rotate(image(), 31, bilinear), "rotate");
  check_close(f::rotate(image(), 90, bilinear, true), "rotate_quarter");
  check_close(f::rotate(image(), 90, nearest, true), "rotate_quarter");
  check_close(f::rotate(image(), 30, bilinear, true), "rotate_expand");
  CHECK(f::affine(image(), 0, {0, 0}, 1, {0, 0}, bilinear).equal(image()));
  CHECK(f::affine(image(), 0, {2, 1}, 1, {0, 0}).equal(f::crop(image(), -1, -2, 7, 10)));
  // Translations by far more than the image's size, and a very small scale.
  CHECK(f::affine(image(), 0, {1e30, -1e30}, 1, {0, 0}, bilinear, 0.5).equal(full({3, 7, 10}, 0.5)));
  CHECK(f::affine(image(), 0, {0, 0}, 1e-30, {0, 0}, nearest, 2).equal(full({3, 7, 10}, 2.0)));
}

TEST_CASE("image ops: sizes, windows and flips", "[data][image]") {
  check_close(f::resize(image(), {16, 13}, bilinear, false), "resize_up");
  check_close(f::resize(image(), {16, 13}), "resize_up");  // every pixel is used
  check_close(f::resize(image(), {3, 4}, bilinear, false), "resize_down");
  check_close(f::resize(image(), {3, 4}), "resize_antialias");
  check_close(f::resize(image(), {13, 3}), "resize_mixed");
  check_close(f::resize(image(), {5, 17}, nearest), "resize_nearest");
  CHECK(f::resize(image(), {7, 10}).equal(image()));
  CHECK(f::resize(f::crop(image(), 2, 3, 1, 1), {4, 5})
            .equal(image()[0][2][3] * ones({3, 4, 5}) * 0 + f::crop(image(), 2, 3, 1, 1)));

  check_close(f::pad(image(), {1, 3, 4, 2}, 0, PaddingMode::kEdge), "pad_edge");
  check_close(f::pad(image(), {1, 3, 4, 2}, 0, PaddingMode::kReflect), "pad_reflect");
  check_close(f::pad(image(), {1, 3, 4, 2}, 0, PaddingMode::kSymmetric), "pad_symmetric");
  const Tensor padded = f::pad(image(), {1, 3, 4, 2}, std::vector<double>{7, 8, 9});
  CHECK(padded.sizes() == Shape{3, 12, 15});
  CHECK(f::crop(padded, 3, 1, 7, 10).equal(image()));
  CHECK(padded.sum().item<float>() ==
        Approx(image().sum().item<float>() + (7 + 8 + 9) * (12 * 15 - 7 * 10)).epsilon(1e-5));

  CHECK(f::crop(image(), 2, 3, 4, 5).equal(image().slice(1, 2, 6).slice(2, 3, 8)));
  CHECK(f::crop(image(), 5, 8, 4, 4).slice(1, 0, 2).slice(2, 0, 2).equal(image().slice(1, 5, 7).slice(2, 8, 10)));
  CHECK(f::crop(image(), 100, 100, 2, 2).equal(zeros({3, 2, 2})));
  CHECK(f::center_crop(image(), {3, 4}).equal(f::crop(image(), 2, 3, 3, 4)));
  CHECK(f::center_crop(image(), {9, 4}).equal(f::pad(f::crop(image(), 0, 3, 7, 4), {0, 1})));
  const Tensor left = f::hflip(image()), down = f::vflip(image());
  CHECK(left[1][2][3].item<float>() == image()[1][2][6].item<float>());
  CHECK(down[1][2][3].item<float>() == image()[1][4][3].item<float>());
  CHECK(f::hflip(left).equal(image()));
  CHECK(f::vflip(down).equal(image()));
  const Tensor erased = f::erase(image(), 1, 2, 3, 4, std::vector<double>{5, 6, 7});
  CHECK(erased.slice(1, 1, 4).slice(2, 2, 6).sum().item<float>() == Approx((5 + 6 + 7) * 12));
  CHECK(erased.slice(1, 4, 7).equal(image().slice(1, 4, 7)));
  CHECK(image().equal(golden("image")));  // the image was not changed
}

TEST_CASE("image ops: colours", "[data][image]") {
  check_close(f::rgb_to_grayscale(image()), "gray");
  const Tensor three = f::rgb_to_grayscale(image(), 3);
  for (int64_t c = 0; c < 3; ++c) CHECK(three.slice(0, c, c + 1).equal(f::rgb_to_grayscale(image())));
  check_close(f::adjust_brightness(image(), 1.4), "brightness");
  check_close(f::adjust_contrast(image(), 1.7), "contrast");
  check_close(f::adjust_saturation(image(), 0.3), "saturation");
  check_close(f::adjust_saturation(image(), 2.5), "saturation_more");
  check_close(f::adjust_hue(image(), 0.2), "hue");
  check_close(f::adjust_hue(image(), -0.45), "hue_back");
  // Images with one channel are grey and are not changed.
  const Tensor gray = f::rgb_to_grayscale(image());
  CHECK(f::adjust_hue(gray, 0.3).equal(gray));
  CHECK(f::adjust_saturation(gray, 0.3).equal(gray));
  CHECK(f::rgb_to_grayscale(gray).equal(gray));
  CHECK(f::rgb_to_grayscale(gray, 3).equal(three));
  CHECK(f::adjust_contrast(gray, 0).allclose(ones({1, 7, 10}) * gray.mean(), 1e-5, 1e-6));
  // The images of a batch are changed independently of each other.
  const Tensor batch = stack({image(), f::hflip(image()) * 0.5});
  CHECK(f::adjust_contrast(batch, 1.7)[0].equal(f::adjust_contrast(image(), 1.7)));
  CHECK(f::adjust_hue(batch, 0.1)[1].equal(f::adjust_hue(batch[1], 0.1)));
  CHECK(f::rgb_to_grayscale(batch, 3).sizes() == Shape{2, 3, 7, 10});
}

TEST_CASE("image ops: wrong calls", "[data][image]") {
  CHECK_THROWS_WITH(f::crop(image().to(kDouble), 0, 0, 1, 1), contains("crop needs float32"));
  CHECK_THROWS_AS(f::hflip(tensor({1.f})), ShapeError);
  CHECK_THROWS_AS(f::hflip(empty({3, 0, 4})), ShapeError);
  CHECK_THROWS_AS(f::crop(image(), 0, 0, 0, 1), ValueError);
  CHECK_THROWS_AS(f::resize(image(), {-1, 4}), ValueError);
  CHECK_THROWS_WITH(f::pad(image(), {0, 7, 0, 0}, 0, PaddingMode::kReflect), contains("(3, 7, 10)"));
  CHECK_THROWS_AS(f::pad(image(), {-1, 0, 0, 0}), ValueError);
  CHECK_THROWS_WITH(f::pad(image(), 1, std::vector<double>{1, 2}), contains("2 fill values"));
  CHECK_THROWS_AS(f::affine(image(), 0, {0, 0}, 0, {0, 0}), ValueError);
  CHECK_THROWS_AS(f::affine(image(), NAN, {0, 0}, 1, {0, 0}), ValueError);
  CHECK_THROWS_AS(f::erase(image(), 0, 8, 1, 3), ValueError);
  CHECK_THROWS_AS(f::adjust_hue(image(), 0.6), ValueError);
  CHECK_THROWS_AS(f::adjust_brightness(image(), -1), ValueError);
  CHECK_THROWS_WITH(f::adjust_hue(zeros({2, 4, 4}), 0.1), contains("1 or 3 channels"));
}
