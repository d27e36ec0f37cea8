// Convolutions whose windows are far apart, compared with a matrix product over the windows as columns (im2col). The
// scratch memory of the kernels, part of which each thread allocates, is bounded by the sizes of image and result for
// any stride. Windows that are too far apart, or that reach far beyond the image, are an error.
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

struct Geometry {
  Shape x, w;
  Pair stride, padding, dilation;
  int64_t groups;
};

Tensor drawn(const Shape& shape, const char* key, Device device) {
  return op_cases::make_like(zeros(shape, kDouble), key).to(device).set_requires_grad(true);
}

Tensor by_columns(const Tensor& x, const Tensor& w, const Geometry& g, const Shape& y) {
  const Tensor columns = unfold(x, {w.size(2), w.size(3)}, g.dilation, g.padding, g.stride);
  const Tensor in_groups = columns.reshape({x.size(0), g.groups, -1, columns.size(2)});
  return matmul(w.reshape({g.groups, w.size(0) / g.groups, -1}), in_groups).reshape(y);
}

// Number of pixels of x beyond the last window. A transposed convolution needs this number as its output padding,
// because it cannot be computed from the size of its input.
int64_t rest(int64_t size, int64_t padding, int64_t reach, int64_t stride) {
  return (size + 2 * padding - reach) % stride;
}

}  // namespace

TEST_CASE("convolutions whose windows are sparse") {
  const Geometry geometries[] = {
      {{2, 2, 70, 75}, {3, 2, 3, 2}, {33, 36}, {0, 0}, {1, 1}, 1},
      {{1, 4, 67, 70}, {4, 1, 3, 3}, {33, 32}, {2, 1}, {2, 1}, 4},
      {{1, 2, 40, 2100}, {2, 2, 40, 3}, {1, 1040}, {0, 1}, {1, 2}, 1},  // a large stride along one axis
      {{1, 32, 40, 70}, {32, 32, 2, 3}, {34, 33}, {1, 1}, {1, 1}, 1},
      {{1, 2, 64, 64}, {3, 2, 3, 3}, {3000, 3000}, {0, 0}, {1, 1}, 1},
      {{1, 2, 64, 64}, {3, 2, 3, 3}, {int64_t{1} << 31, 5}, {0, 1}, {1, 1}, 1},
      {{1, 1, 64, 64}, {1, 1, 3, 3}, {44, 44}, {44, 44}, {1, 1}, 1},  // some windows contain only padding
      {{2, 2, 5, 6}, {2, 2, 3, 3}, {1, 1}, {12, 11}, {12, 11}, 1},    // some taps read only padding
  };
  for (const std::string& name : backend_names())
    for (const Geometry& g : geometries) {
      CAPTURE(name, to_string(g.x), g.stride.h, g.stride.w);
      const BackendGuard guard(name);
      const Device device = device_of(name);
      const Tensor x = drawn(g.x, "x", device), w = drawn(g.w, "w", device);
      DeviceRuntime& memory = runtime(device.type());
      memory.reset_peak_memory_stats(0);
      const int64_t before = memory.memory_stats(0).allocated;
      const Tensor y = conv2d(x, w, {}, g.stride, g.padding, g.dilation, g.groups);
      const Tensor dy = op_cases::make_like(y, "dy");
      y.backward(dy);
      if (device.is_cpu())
        CHECK(memory.memory_stats(0).peak_allocated - before <
              (256 + 32 * num_threads()) * (x.numel() + w.numel() + y.numel()));

      const Tensor x2 = drawn(g.x, "x", device), w2 = drawn(g.w, "w", device);
      const Tensor expected = by_columns(x2, w2, g, y.sizes());
      expected.backward(dy);
      CHECK(test::difference(y, expected, 1e-12) == "");
      CHECK(test::difference(x.grad(), x2.grad(), 1e-12) == "");
      CHECK(test::difference(w.grad(), w2.grad(), 1e-12) == "");

      const Pair behind(rest(x.size(2), g.padding.h, g.dilation.h * (w.size(2) - 1) + 1, g.stride.h),
                        rest(x.size(3), g.padding.w, g.dilation.w * (w.size(3) - 1) + 1, g.stride.w));
      const Tensor leaf = dy.detach().set_requires_grad(true);
      const Tensor dx = conv_transpose2d(leaf, w.detach(), {}, g.stride, g.padding, behind, g.groups, g.dilation);
      CHECK(test::difference(dx, x2.grad(), 1e-12) == "");
      dx.backward(x.detach());
      CHECK(test::difference(leaf.grad(), y, 1e-12) == "");
    }
}

TEST_CASE("convolutions that are almost nothing but gaps are errors") {
  const int64_t far = int64_t{1} << 40;
  const Tensor image = ones({1, 1, 256, 256}), x = ones({1, 1, 3, 3}), w = ones({1, 1, 3, 3});
  CHECK_THROWS_WITH(conv2d(image, w, {}, 3000), test::contains("cover less than one pixel in 1000"));
  CHECK_THROWS_WITH(conv2d(image, w, {}, {int64_t{1} << 31, 50}), test::contains("take a slice of x"));
  CHECK_THROWS_WITH(conv_transpose2d(ones({1, 1, 2, 2}), w, {}, 100), test::contains("one pixel in 1000"));
  CHECK_THROWS_WITH(conv2d(x, w, {}, 1, 300, 300),
                    test::contains("kernel reaches over 601 rows, far beyond the image"));
  CHECK_THROWS_WITH(conv2d(x, w, {}, 1, far, far), test::contains("far beyond the image"));
  const Tensor y = conv2d(x, ones({1, 1, 1, 1}), {}, 1, 0, far);  // the dilation of a single tap has no effect
  CHECK(y.equal(x));
}

TEST_CASE("kernels may reach over four times image and result and 16 pixels, and skip 999 of 1000 pixels") {
  const auto image = [](int64_t h, int64_t w) { return ones({1, 1, h, w}); };
  const Tensor two_rows = ones({1, 1, 2, 1}), two_columns = ones({1, 1, 1, 2}), one = ones({1, 1, 1, 1});
  // Of 10 pixels and a result of 1, at most 108; of a result of 2, at most 112.
  CHECK(conv2d(image(10, 1), two_rows, {}, 1, Pair(49, 0), Pair(107, 1)).numel() == 1);
  CHECK(conv2d(image(10, 1), two_rows, {}, 1, Pair(51, 0), Pair(110, 1)).numel() == 2);
  CHECK_THROWS_WITH(conv2d(image(10, 1), two_rows, {}, 1, Pair(50, 0), Pair(109, 1)),
                    test::contains("reaches over 110 rows") && test::contains("x (1, 1, 10, 1), weight (1, 1, 2, 1), "
                                                                              "result (1, 1, 1, 1)"));
  CHECK_THROWS_WITH(conv2d(image(1, 10), two_columns, {}, 1, Pair(0, 52), Pair(1, 112)),
                    test::contains("reaches over 113 columns") && test::contains("x (1, 1, 1, 10)"));
  CHECK(conv2d(image(200, 1), two_rows, {}, 1, 0, Pair(199, 1)).numel() == 1);
  CHECK(conv2d(image(1, 200), two_columns, {}, 1, 0, Pair(1, 199)).numel() == 1);

  CHECK(conv2d(image(1001, 1), one, {}, Pair(1000, 1)).numel() == 2);
  CHECK(conv2d(image(21, 51), one, {}, Pair(20, 50)).numel() == 4);
  CHECK(conv2d(image(2001, 1), two_rows, {}, Pair(1999, 1)).numel() == 2);
  CHECK_THROWS_WITH(conv2d(image(1002, 1), one, {}, Pair(1001, 1)), test::contains("one pixel in 1000") &&
                                                                        test::contains("x (1, 1, 1002, 1)") &&
                                                                        test::contains("result (1, 1, 2, 1)"));
  CHECK_THROWS_WITH(conv2d(image(1, 1002), one, {}, Pair(1, 1001)), test::contains("one pixel in 1000"));
  CHECK_THROWS_WITH(conv2d(image(21, 52), one, {}, Pair(20, 51)), test::contains("one pixel in 1000"));
  CHECK(conv2d(image(3, 3), one, {}, 5000).numel() == 1);  // a single window has no gaps
}

TEST_CASE("convolutions of images without channels give the bias, and its gradient alone") {
  for (const bool relu : {false, true}) {
    const Tensor x = ones({2, 0, 4, 5}, requires_grad()), w = ones({3, 0, 2, 2}, requires_grad());
    const Tensor bias = tensor({1.F, 2.F, 3.F}).requires_grad_();
    const Tensor y = relu ? conv2d_relu(x, w, bias) : conv2d(x, w, bias);
    CHECK(y.equal(bias.view({1, 3, 1, 1}).expand({2, 3, 3, 4})));
    (y * 2).sum().backward();
    CHECK(bias.grad().equal(full({3}, 48.0)));
    CHECK(x.grad().sizes() == x.sizes());
    CHECK(w.grad().sizes() == w.sizes());
  }
  const Tensor none = ones({0, 2, 4, 5}, requires_grad()), w = ones({3, 2, 2, 2}, requires_grad());
  const Tensor bias = ones({3}, requires_grad()), y = conv2d(none, w, bias);
  CHECK(y.sizes() == Shape({0, 3, 3, 4}));
  y.sum().backward();
  CHECK(w.grad().equal(zeros({3, 2, 2, 2})));
  CHECK(bias.grad().equal(zeros({3})));
}

TEST_CASE("transposed convolutions of images without channels give the bias, or zeros") {
  for (const std::string& name : backend_names()) {
    const BackendGuard guard(name);
    const Device device = device_of(name);
    for (const int64_t stride : {1, 2}) {
      const int64_t size = stride + 2;        // 2 windows of 2 pixels along each axis
      full({1, 3, size, size}, 7.0, device);  // its memory is free again, and the result may get it
      const Tensor x = ones({1, 0, 2, 2}, device), w = ones({0, 3, 2, 2}, device),
                   bias = tensor({1.F, 2.F, 3.F}).to(device);
      const Tensor none = conv_transpose2d(x, w, {}, stride), biased = conv_transpose2d(x, w, bias, stride);
      CHECK(none.equal(zeros({1, 3, size, size}, device)));
      CHECK(biased.equal(bias.view({1, 3, 1, 1}).expand({1, 3, size, size})));
    }
  }
}
