// Convolutions with few channels per group: the openmp backend's direct algorithm compared with naive, at sizes around
// the edges of vectors and tiles.
#include <limits>

#include <gradus/core/runtime/observer.h>
#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::test;

namespace {

struct Case {
  int64_t N, C, H, W, K, R, S;
  Conv2dGeometry g;

  int64_t size(int axis) const {
    const int64_t in[2] = {H, W}, kernel[2] = {R, S};
    return (in[axis] + 2 * g.padding[axis] - g.dilation[axis] * (kernel[axis] - 1) - 1) / g.stride[axis] + 1;
  }
};

Conv2dGeometry padded(int64_t padding, int64_t stride = 1, int64_t dilation = 1, int64_t groups = 1) {
  return {{stride, stride}, {padding, padding}, {dilation, dilation}, groups};
}

struct Operands {
  Array x, w, bias, y, dy;
  Operands(const Case& c, DType dtype, MemoryFormat format)
      : x(random({c.N, c.C, c.H, c.W}, dtype, format)), w(random({c.K, c.C / c.g.groups, c.R, c.S}, dtype)),
        bias(random({c.K}, dtype)), y(random({c.N, c.K, c.size(0), c.size(1)}, dtype, format)),
        dy(random({c.N, c.K, c.size(0), c.size(1)}, dtype, format)) {}
};

// y = relu(x * w + bias).
void forward(Backend& on, const Operands& o, const Conv2dGeometry& g, const Array& y) {
  on.conv2d_bias_relu({.x = o.x, .w = o.w, .bias = o.bias, .relu = true, .geometry = g, .y = y});
}

// All three gradients from one call, concatenated to one array for one comparison.
Array gradients(Backend& on, const Operands& o, const Conv2dGeometry& g, bool relu) {
  const Array all = Array::empty({o.x.numel() + o.w.numel() + o.bias.numel()}, o.x.dtype());
  const Array dx = Array::empty_like(o.x), dw = Array::empty_like(o.w), db = Array::empty_like(o.bias);
  on.conv2d_bias_relu_backward(
      {.dy = o.dy, .x = o.x, .w = o.w, .y = relu ? o.y : Array(), .geometry = g, .dx = dx, .dw = dw, .dbias = db});
  int64_t at = 0;
  for (const Array& part : {dx, dw, db}) {
    naive().copy(part, all.slice(0, at, at + part.numel()).view(part.shape()));
    at += part.numel();
  }
  return all;
}

void check(const Case& c, DType dtype, MemoryFormat format) {
  INFO("N " << c.N << " C " << c.C << " H " << c.H << " W " << c.W << " K " << c.K << " R " << c.R << " S " << c.S
            << " stride " << c.g.stride[0] << " padding " << c.g.padding[0] << ' ' << c.g.padding[1] << " dilation "
            << c.g.dilation[0] << " groups " << c.g.groups << " dtype " << static_cast<int>(dtype) << " format "
            << static_cast<int>(format));
  const Operands o(c, dtype, format);
  const double allowed = tolerance_of(dtype) * 10;
  compare(o.y, allowed, [&](Backend& on, const Array& out) { forward(on, o, c.g, out); });
  compare(o.y, allowed, [&](Backend& on, const Array& out) { on.conv2d(o.x, o.w, out, c.g); });
  compare(o.x, allowed, [&](Backend& on, const Array& out) { on.conv2d_backward_data(o.dy, o.w, out, c.g); });
  compare(o.w, allowed, [&](Backend& on, const Array& out) { on.conv2d_backward_weight(o.dy, o.x, out, c.g); });
  const Array all = Array::empty({o.x.numel() + o.w.numel() + o.bias.numel()}, dtype);
  for (bool relu : {false, true})
    compare(all, allowed, [&](Backend& on, const Array& out) { naive().copy(gradients(on, o, c.g, relu), out); });
}

}  // namespace

TEST_CASE("convolutions with few channels, few per group and one per group report their algorithm") {
  struct Last final : Observer {
    std::string implementation;
    void on_end(const ObservedEvent& event) override { implementation = event.implementation; }
  } last;
  add_observer(&last);
  const auto runs = [&](int64_t C, int64_t K, int64_t groups, MemoryFormat format = MemoryFormat::contiguous) {
    const Case c{1, C, 24, 24, K, 3, 3, padded(1, 1, 1, groups)};
    const Operands o(c, DType::f32, format);
    openmp().conv2d(o.x, o.w, o.y, c.g);
    return last.implementation.substr(0, last.implementation.rfind('_'));
  };
  CHECK(runs(1, 1, 1) == "direct");
  CHECK(runs(3, 3, 1) == "direct");
  CHECK(runs(12, 8, 4) == "direct");
  CHECK(runs(3, 3, 3) == "direct");
  CHECK(runs(32, 32, 32, MemoryFormat::channels_last) == "depthwise");
  CHECK(runs(32, 32, 1) == "implicit_gemm_nhwc");
  CHECK(runs(32, 5, 1) == "direct");
  remove_observer(&last);
}

TEST_CASE("convolution with one channel agrees with naive around the edges of vectors") {
  for (int64_t width : {1, 2, 7, 8, 15, 16, 17, 28, 33})
    for (int64_t height : {1, 5, 8, 9, 28})
      check({3, 1, height, width, 1, 3, 3, padded(1)}, DType::f32, MemoryFormat::contiguous);
  for (int64_t width : {1, 7, 9, 17}) check({2, 1, 9, width, 1, 3, 3, padded(1)}, DType::f64, MemoryFormat::contiguous);
}

TEST_CASE("convolution with few channels agrees with naive") {
  const Case cases[] = {
      {2, 1, 28, 28, 3, 5, 5, padded(2)},
      {1, 8, 10, 9, 1, 3, 3, padded(1)},
      {2, 2, 9, 18, 4, 3, 3, padded(1, 2)},
      {2, 2, 9, 18, 3, 1, 1, padded(0)},
      {2, 3, 9, 18, 2, 2, 3, {{1, 1}, {0, 1}, {1, 1}, 1}},
      {1, 2, 11, 18, 2, 4, 2, {{1, 1}, {1, 0}, {1, 1}, 1}},
      {1, 2, 11, 18, 1, 6, 4, padded(2)},
      {2, 3, 14, 35, 3, 7, 7, padded(3)},
      {2, 3, 17, 34, 3, 7, 7, padded(3, 2)},
      {1, 1, 20, 12, 2, 9, 2, padded(4)},  // more rows than a term has
      {1, 2, 5, 7, 2, 3, 3, padded(4)},    // more padding than the filter reaches
      {1, 2, 5, 7, 2, 1, 1, padded(2)},
      {2, 2, 12, 21, 2, 3, 3, padded(0)},
      {2, 3, 11, 13, 2, 3, 3, padded(1, 2)},
      {2, 2, 12, 10, 3, 3, 2, {{3, 2}, {2, 0}, {2, 3}, 1}},
      {1, 2, 13, 20, 2, 3, 3, padded(2, 1, 2)},
      {1, 2, 9, 9, 3, 3, 3, padded(0, 4)},  // pixels that no window reads
      {2, 1, 8, 8, 1, 8, 8, padded(0)},
      {1, 1, 300, 40, 2, 3, 3, padded(1)},  // several bands
      {1, 3, 150, 130, 2, 3, 3, padded(1, 2)},
      {0, 1, 8, 8, 1, 3, 3, padded(1)},
      {40, 1, 6, 6, 1, 3, 3, padded(1)},
  };
  for (const Case& c : cases)
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
      for (DType dtype : {DType::f32, DType::f64}) check(c, dtype, format);
  check(cases[0], DType::bf16, MemoryFormat::contiguous);
  check(cases[2], DType::f16, MemoryFormat::channels_last);
}

TEST_CASE("depthwise convolution agrees with naive") {
  const Case cases[] = {
      {2, 8, 14, 14, 8, 3, 3, padded(1, 1, 1, 8)},  {2, 17, 15, 9, 17, 3, 3, padded(1, 2, 1, 17)},
      {2, 33, 7, 7, 33, 5, 5, padded(2, 1, 1, 33)}, {1, 16, 9, 17, 32, 3, 3, padded(1, 1, 1, 16)},
      {1, 5, 12, 33, 15, 3, 3, padded(1, 2, 1, 5)}, {2, 6, 10, 10, 6, 3, 3, padded(2, 1, 2, 6)},
      {1, 8, 10, 16, 4, 3, 3, padded(1, 1, 1, 4)},
  };
  for (const Case& c : cases)
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
      for (DType dtype : {DType::f32, DType::f64}) check(c, dtype, format);
  check(cases[0], DType::f16, MemoryFormat::channels_last);
}

TEST_CASE("convolution with few channels: infinities and NaN reach only outputs that depend on them") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Case c{1, 1, 9, 20, 1, 3, 3, padded(0)};
  for (float value : {infinity, -infinity, nan}) {
    Operands o(c, DType::f32, MemoryFormat::contiguous);
    INFO(value);
    o.x.data<float>()[3 * 20 + 19] = value;  // read only by the last column of the filter
    compare(o.y, 2e-4, [&](Backend& on, const Array& out) { forward(on, o, c.g, out); });
    compare(o.w, 2e-4, [&](Backend& on, const Array& out) { on.conv2d_backward_weight(o.dy, o.x, out, c.g); });
    o.dy.data<float>()[2 * 18 + 9] = value;
    compare(o.x, 2e-4, [&](Backend& on, const Array& out) { on.conv2d_backward_data(o.dy, o.w, out, c.g); });
    // If ReLU is inactive, dy must not contribute, even if it is not finite.
    o.x.data<float>()[3 * 20 + 19] = 1, o.y.data<float>()[2 * 18 + 9] = -1;
    const Array masked = gradients(openmp(), o, c.g, true);
    o.dy.data<float>()[2 * 18 + 9] = 0;
    CHECK(same_bits(masked, gradients(openmp(), o, c.g, true)));
  }
}
