// Convolutions and transposed convolutions of random geometries. Results are compared with the definition, first and
// second derivatives with finite differences.
#include <random>

#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;

namespace {

struct RandomConvolution {
  int64_t images, channels, filters, groups, h, w;  // channels and filters count those of one group
  Pair kernel = 1, stride = 1, padding = 0, dilation = 1, output_padding = 0;
};

RandomConvolution draw(std::mt19937& random) {
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  RandomConvolution c{from(1, 2), from(1, 2), from(1, 2), from(1, 2), from(1, 3), from(1, 3)};
  const auto pair = [&](int64_t low, int64_t high) { return Pair(from(low, high), from(low, high)); };
  c.kernel = pair(1, 3), c.stride = pair(1, 3), c.dilation = pair(1, 4), c.padding = pair(0, 2);
  // Output padding must be smaller than the stride or smaller than the dilation.
  c.output_padding =
      Pair(from(0, std::max(c.stride.h, c.dilation.h) - 1), from(0, std::max(c.stride.w, c.dilation.w) - 1));
  return c;
}

std::string text_of(const RandomConvolution& c) {
  const auto pair = [](const Pair& p) { return to_string(Shape{p.h, p.w}); };
  return "x (" + std::to_string(c.images) + ", " + std::to_string(c.channels * c.groups) + ", " + std::to_string(c.h) +
         ", " + std::to_string(c.w) + "), groups " + std::to_string(c.groups) + ", filters " +
         std::to_string(c.filters) + ", kernel " + pair(c.kernel) + ", stride " + pair(c.stride) + ", padding " +
         pair(c.padding) + ", dilation " + pair(c.dilation) + ", output_padding " + pair(c.output_padding);
}

// A transposed convolution by its definition: each pixel of x is multiplied by each tap of the filter and added to the
// result.
Tensor spread(const Tensor& x, const Tensor& w, const RandomConvolution& c, const Shape& shape) {
  const Tensor y = zeros(shape, kDouble);
  const auto from = x.accessor<double, 4>(), filter = w.accessor<double, 4>(), to = y.accessor<double, 4>();
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t i = 0; i < x.size(1); ++i)
      for (int64_t k = 0; k < w.size(1); ++k)
        for (int64_t p = 0; p < x.size(2); ++p)
          for (int64_t q = 0; q < x.size(3); ++q)
            for (int64_t r = 0; r < w.size(2); ++r)
              for (int64_t s = 0; s < w.size(3); ++s) {
                const int64_t row = p * c.stride.h - c.padding.h + r * c.dilation.h;
                const int64_t column = q * c.stride.w - c.padding.w + s * c.dilation.w;
                if (row < 0 || row >= shape[2] || column < 0 || column >= shape[3]) continue;
                to[n][i / c.channels * c.filters + k][row][column] += from[n][i][p][q] * filter[i][k][r][s];
              }
  return y;
}

template <class Body>
void for_random_convolutions(int count, Body&& body) {
  const op_testing::OneThread one_thread;
  for (const std::string backend_name : {"naive", "openmp"}) {
    if (!has_backend(backend_name)) continue;
    const BackendGuard guard(backend_name);
    std::mt19937 random(41);
    manual_seed(41);
    for (int i = 0; i < count; ++i) {
      const RandomConvolution c = draw(random);
      INFO(backend_name << " " << text_of(c));
      body(c);
    }
  }
}

void check_derivatives(const autograd::GradcheckFunction& f, const TensorList& inputs) {
  CHECK(op_testing::guarded([&] { return autograd::gradcheck(f, inputs) ? "" : "wrong"; }) == "");
  CHECK(op_testing::guarded([&] { return autograd::gradgradcheck(f, inputs) ? "" : "wrong"; }) == "");
}

}  // namespace

TEST_CASE("transposed convolutions of random geometries are right, twice differentiated too") {
  for_random_convolutions(30, [](const RandomConvolution& c) {
    const auto length = [](int64_t x, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, int64_t more) {
      return (x - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1;
    };
    const Shape shape = {c.images, c.filters * c.groups,
                         length(c.h, c.kernel.h, c.stride.h, c.padding.h, c.dilation.h, c.output_padding.h),
                         length(c.w, c.kernel.w, c.stride.w, c.padding.w, c.dilation.w, c.output_padding.w)};
    if (shape[2] <= 0 || shape[3] <= 0) return;
    const Tensor x = randn({c.images, c.channels * c.groups, c.h, c.w}, kDouble),
                 w = randn({c.channels * c.groups, c.filters, c.kernel.h, c.kernel.w}, kDouble),
                 bias = randn({c.filters * c.groups}, kDouble);
    const auto run = [&](const TensorList& in) {
      return TensorList{
          conv_transpose2d(in[0], in[1], in[2], c.stride, c.padding, c.output_padding, c.groups, c.dilation)};
    };
    const Tensor y = run({x, w, bias})[0];
    REQUIRE(y.sizes() == shape);
    CHECK(test::error(y, spread(x, w, c, shape) + bias.view({1, -1, 1, 1})) <= 1e-12);
    check_derivatives(run, {x.requires_grad_(), w.requires_grad_(), bias.requires_grad_()});
  });
}

TEST_CASE("convolutions of random geometries have right derivatives") {
  for_random_convolutions(15, [](const RandomConvolution& c) {
    const bool fits = c.h + 2 * c.padding.h > c.dilation.h * (c.kernel.h - 1) &&
                      c.w + 2 * c.padding.w > c.dilation.w * (c.kernel.w - 1);
    if (!fits) return;
    const Tensor x = randn({c.images, c.channels * c.groups, c.h, c.w}, kDouble).requires_grad_(),
                 w = randn({c.filters * c.groups, c.channels, c.kernel.h, c.kernel.w}, kDouble).requires_grad_();
    check_derivatives(
        [&](const TensorList& in) {
          return TensorList{conv2d(in[0], in[1], {}, c.stride, ConvPadding(c.padding), c.dilation, c.groups)};
        },
        {x, w});
  });
}
