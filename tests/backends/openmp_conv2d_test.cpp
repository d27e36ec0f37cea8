// Convolutions of the openmp backend: on planes and on pixels, at sizes around the edges of tiles.
#include <limits>

#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::test;

namespace {

struct OpenmpConvCase {
  int64_t N, C, H, W, K, R, S;
  Conv2dGeometry g;
};

void check_convolution(const OpenmpConvCase& c, DType dtype, MemoryFormat format) {
  const int64_t P = (c.H + 2 * c.g.padding[0] - c.g.dilation[0] * (c.R - 1) - 1) / c.g.stride[0] + 1;
  const int64_t Q = (c.W + 2 * c.g.padding[1] - c.g.dilation[1] * (c.S - 1) - 1) / c.g.stride[1] + 1;
  INFO("N " << c.N << " C " << c.C << " H " << c.H << " W " << c.W << " K " << c.K << " R " << c.R << " S " << c.S
            << " stride " << c.g.stride[0] << ' ' << c.g.stride[1] << " padding " << c.g.padding[0] << ' '
            << c.g.padding[1] << " dilation " << c.g.dilation[0] << ' ' << c.g.dilation[1] << " groups " << c.g.groups
            << " dtype " << static_cast<int>(dtype) << " format " << static_cast<int>(format));
  const Array x = random({c.N, c.C, c.H, c.W}, dtype, format);
  const Array w = random({c.K, c.C / c.g.groups, c.R, c.S}, dtype, format), bias = random({c.K}, dtype);
  const Array y = random({c.N, c.K, P, Q}, dtype, format), dy = random({c.N, c.K, P, Q}, dtype, format);
  const double allowed = tolerance_of(dtype) * 10;
  compare(y, allowed, [&](Backend& on, const Array& out) { on.conv2d(x, w, out, c.g); });
  compare(y, allowed, [&](Backend& on, const Array& out) {
    on.conv2d_bias_relu({.x = x, .w = w, .bias = bias, .relu = true, .geometry = c.g, .y = out});
  });
  compare(x, allowed, [&](Backend& on, const Array& out) { on.conv2d_backward_data(dy, w, out, c.g); });
  compare(w, allowed, [&](Backend& on, const Array& out) { on.conv2d_backward_weight(dy, x, out, c.g); });
  const auto fused = [&](Backend& on, const Array* dx, const Array* dw, const Array* db) {
    const auto wanted = [](const Array* gradient) { return gradient ? *gradient : Array(); };
    on.conv2d_bias_relu_backward(
        {.dy = dy, .x = x, .w = w, .y = y, .geometry = c.g, .dx = wanted(dx), .dw = wanted(dw), .dbias = wanted(db)});
  };
  compare(x, allowed, [&](Backend& on, const Array& out) { fused(on, &out, nullptr, nullptr); });
  compare(bias, allowed, [&](Backend& on, const Array& out) { fused(on, nullptr, nullptr, &out); });
  compare(bias, allowed, [&](Backend& on, const Array& out) {
    const Array dw = Array::empty_like(w);
    fused(on, nullptr, &dw, &out);
  });
  compare(w, allowed, [&](Backend& on, const Array& out) {
    const Array dx = Array::empty_like(x), db = Array::empty_like(bias);
    fused(on, &dx, &out, &db);
  });
}

}  // namespace

TEST_CASE("openmp convolution over planes agrees with naive") {
  const OpenmpConvCase cases[] = {
      {2, 1, 28, 28, 6, 5, 5, {{1, 1}, {2, 2}, {1, 1}, 1}},
      {5, 6, 14, 14, 16, 5, 5, {}},
      {3, 5, 9, 7, 17, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}},
      {2, 4, 11, 13, 8, 3, 3, {{2, 2}, {1, 1}, {1, 1}, 1}},
      {2, 3, 12, 10, 5, 3, 2, {{3, 2}, {2, 0}, {2, 3}, 1}},
      {1, 8, 10, 10, 12, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 4}},
      {2, 6, 8, 8, 6, 3, 3, {{1, 2}, {1, 1}, {1, 1}, 6}},
      {2, 7, 6, 6, 9, 1, 1, {}},
      {2, 3, 7, 7, 4, 1, 1, {{2, 2}, {1, 1}, {1, 1}, 1}},
      {1, 2, 5, 5, 3, 5, 5, {{1, 1}, {4, 4}, {1, 1}, 1}},
      {1, 2, 9, 9, 3, 3, 3, {{4, 4}, {0, 0}, {1, 1}, 1}},
      {1, 2, 4, 4, 3, 2, 2, {{1, 1}, {3, 3}, {1, 1}, 1}},
      {1, 16, 40, 40, 24, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}},
      {0, 3, 8, 8, 4, 3, 3, {}},
      {1, 1, 3, 3, 1, 3, 3, {}},
      {17, 2, 4, 4, 3, 3, 3, {{2, 1}, {1, 0}, {1, 1}, 1}},
  };
  for (const OpenmpConvCase& c : cases)
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
      for (DType dtype : {DType::f32, DType::f64}) check_convolution(c, dtype, format);
  check_convolution(cases[2], DType::f16, MemoryFormat::contiguous);
  check_convolution(cases[4], DType::bf16, MemoryFormat::channels_last);
}

namespace {

Conv2dGeometry square(int64_t padding, int64_t stride = 1, int64_t dilation = 1, int64_t groups = 1) {
  return {{stride, stride}, {padding, padding}, {dilation, dilation}, groups};
}

}  // namespace

TEST_CASE("openmp convolution over pixels agrees with naive") {
  const OpenmpConvCase cases[] = {
      {2, 16, 7, 9, 16, 3, 3, square(1)},     // one tile
      {1, 32, 14, 14, 32, 3, 3, square(1)},   // the whole depth in one block
      {3, 17, 5, 6, 33, 3, 3, square(1)},     // a tile and one more column
      {2, 48, 6, 5, 31, 3, 3, square(1)},     // blocks of rows of taps, the last with one row
      {2, 70, 5, 5, 40, 5, 5, square(2)},     // a row of taps is longer than a block
      {1, 300, 3, 4, 64, 3, 3, square(1)},    // the channels of a tap are longer than a block
      {9, 16, 2, 2, 80, 3, 3, square(1)},     // several small images per part
      {40, 32, 1, 1, 32, 3, 3, square(1)},    // only padding around one pixel
      {2, 32, 9, 9, 32, 3, 3, square(1, 2)},  // strides
      {2, 32, 8, 8, 64, 1, 1, square(0, 2)},
      {2, 24, 11, 8, 32, 3, 2, {{3, 2}, {2, 1}, {2, 3}, 1}},
      {1, 16, 9, 9, 16, 3, 3, square(0, 4)},  // pixels that no tap reads
      {2, 32, 6, 6, 48, 1, 1, square(0)},
      {2, 32, 3, 3, 32, 1, 1, square(2)},  // outputs that read only padding
      {1, 16, 12, 12, 16, 7, 7, square(3)},
      {2, 16, 10, 10, 16, 3, 3, square(4, 1, 4)},
      {2, 48, 6, 6, 96, 3, 3, square(1, 1, 1, 3)},  // groups
      {2, 64, 5, 5, 80, 3, 3, square(1, 2, 1, 2)},
      {1, 64, 30, 40, 32, 3, 3, square(1)},  // several bands of rows
      {0, 32, 8, 8, 32, 3, 3, square(1)},
      {5, 1, 28, 28, 32, 3, 3, square(1)},  // few channels: the weight gradient's tile has a row of taps
      {2, 3, 13, 12, 32, 7, 7, square(3, 2)},
      {2, 6, 9, 5, 16, 3, 3, square(1)},
      {2, 2, 2, 3, 16, 5, 5, square(4)},
      {2, 3, 9, 9, 16, 3, 3, square(1, 1, 2)},
  };
  for (const OpenmpConvCase& c : cases)
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
      for (DType dtype : {DType::f32, DType::f64})
        if (dtype == DType::f32 || c.N * c.C * c.H * c.W * c.K < 1 << 20) check_convolution(c, dtype, format);
  check_convolution(cases[2], DType::f16, MemoryFormat::channels_last);
  check_convolution(cases[3], DType::bf16, MemoryFormat::contiguous);
}

TEST_CASE("openmp convolution reads and writes slices of larger images") {
  const Conv2dGeometry g = square(1);
  const Array w = random({32, 32, 3, 3});
  for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const auto inner = [](const Array& x) { return x.slice(1, 3, 35).slice(2, 1, 8).slice(3, 0, 12, 2); };
    const Array x = random({2, 40, 9, 12}, DType::f32, format), dy = random({2, 40, 9, 12}, DType::f32, format);
    compare(x, 2e-4, [&](Backend& on, const Array& y) { on.conv2d(inner(dy), w, inner(y), g); });
    compare(x, 2e-4, [&](Backend& on, const Array& dx) { on.conv2d_backward_data(inner(dy), w, inner(dx), g); });
    compare(w, 2e-4, [&](Backend& on, const Array& dw) { on.conv2d_backward_weight(inner(dy), inner(x), dw, g); });
    // The gradient has another layout than its image.
    const Array other =
        random({2, 32, 7, 6}, DType::f32,
               format == MemoryFormat::contiguous ? MemoryFormat::channels_last : MemoryFormat::contiguous);
    compare(w, 2e-4, [&](Backend& on, const Array& dw) { on.conv2d_backward_weight(other, inner(x), dw, g); });
    compare(other, 2e-4, [&](Backend& on, const Array& y) { on.conv2d(inner(x), w, y, g); });
  }
}

TEST_CASE("openmp convolution of no images writes no memory, even with more threads than work") {
  const auto none = [](const Array& images) { return images.slice(0, 1, 1); };  // empty, but with an address
  for (int64_t channels : {2, 32})
    for (int64_t groups : {1, 3})
      for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        INFO(channels << " channels in each of " << groups << " groups, format " << static_cast<int>(format));
        const Conv2dGeometry g = square(1, 1, 1, groups);
        const Array x = random({2, channels * groups, 5, 5}, DType::f32, format), dy = random(x.shape());
        const Array w = random({channels * groups, channels, 3, 3}, DType::f32, format), db = random({w.size(0)});
        const auto backward = [&](Backend& on, const Array& dx, const Array& dw, const Array& dbias) {
          set_num_threads(16);
          on.conv2d_bias_relu_backward(
              {.dy = none(dy), .x = none(x), .w = w, .geometry = g, .dx = dx, .dw = dw, .dbias = dbias});
        };
        compare(x, 0, [&](Backend& on, const Array& y) {
          set_num_threads(16);
          on.conv2d(none(x), w, none(y), g);
        });
        compare(x, 0, [&](Backend& on, const Array& dx) { backward(on, none(dx), {}, {}); });
        compare(x, 0, [&](Backend& on, const Array& dx) {
          backward(on, none(dx), Array::empty_like(w), Array::empty_like(db));
        });
        compare(w, 0, [&](Backend& on, const Array& dw) { backward(on, {}, dw, {}); });
        compare(db, 0, [&](Backend& on, const Array& dbias) { backward(on, {}, Array::empty_like(w), dbias); });
      }
}

TEST_CASE("openmp convolution without input channels has a gradient of its bias") {
  for (int64_t filters : {3, 32}) {
    const Array dy = random({2, filters, 3, 3}), x = random({2, 0, 5, 5}), w = random({filters, 0, 3, 3});
    compare(random({filters}), 1e-5, [&](Backend& on, const Array& dbias) {
      on.conv2d_bias_relu_backward(
          {.dy = dy, .x = x, .w = w, .geometry = square(0), .dw = Array::empty_like(w), .dbias = dbias});
    });
  }
}

TEST_CASE("a NaN in an image or a gradient reaches exactly the outputs that depend on it") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Conv2dGeometry g = square(1);
  for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Array x = random({2, 32, 6, 7}, DType::f32, format), dy = random({2, 48, 6, 7}, DType::f32, format);
    const Array w = random({48, 32, 3, 3}), bias = random({48});
    for (const auto& [h, at] : {std::pair<int64_t, int64_t>{0, 0}, {5, 6}, {2, 6}}) {
      naive().fill(x.select(0, 1).select(0, 20).select(0, h).slice(0, at, at + 1), nan);
      naive().fill(dy.select(0, 0).select(0, 40).select(0, h).slice(0, at, at + 1), nan);
    }
    compare(dy, 2e-4, [&](Backend& on, const Array& y) {
      on.conv2d_bias_relu({.x = x, .w = w, .bias = bias, .relu = true, .geometry = g, .y = y});
    });
    compare(x, 2e-4, [&](Backend& on, const Array& dx) { on.conv2d_backward_data(dy, w, dx, g); });
    compare(w, 2e-4, [&](Backend& on, const Array& dw) { on.conv2d_backward_weight(dy, x, dw, g); });
  }
}

TEST_CASE("openmp copies images between layouts") {
  for (DType dtype : {DType::f32, DType::f64})
    for (const Shape& shape :
         {Shape{3, 32, 7, 9}, Shape{2, 17, 4, 4}, Shape{2, 5, 1, 3}, Shape{2, 1, 4, 3}, Shape{0, 8, 3, 3}}) {
      const Array planes = random(shape, dtype), pixels = random(shape, dtype, MemoryFormat::channels_last);
      compare(planes, 0, [&](Backend& on, const Array& y) { on.copy(pixels, y); });
      compare(pixels, 0, [&](Backend& on, const Array& y) { on.copy(planes, y); });
      compare(planes, 0, [&](Backend& on, const Array& y) {
        on.copy(pixels.slice(1, 0, shape[1] - 1 + (shape[1] == 1)), y.slice(1, 0, shape[1] - 1 + (shape[1] == 1)));
      });
    }
}
