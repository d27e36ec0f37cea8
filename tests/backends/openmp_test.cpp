// Matrix products and convolutions of the openmp backend.
#include <array>

#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::test;

TEST_CASE("openmp is the default backend of the cpu") { CHECK(current_backend(DeviceType::cpu).name() == "openmp"); }

TEST_CASE("openmp matmul agrees with naive") {
  const int64_t sizes[][3] = {{1, 1, 1},      {1, 37, 19},    {29, 1, 31},   {13, 17, 1},
                              {5, 7, 11},     {64, 120, 400}, {14, 32, 256}, {15, 33, 257},
                              {113, 67, 300}, {3, 200, 70},   {200, 3, 129}, {97, 101, 103},
                              {0, 5, 3},      {4, 0, 3},      {4, 5, 0},     {130, 140, 600}};
  for (const auto& [m, n, k] : sizes)
    for (int layout = 0; layout < 8; ++layout) {
      const DType dtype = layout < 4 ? DType::f32 : layout < 6 ? DType::f64 : layout < 7 ? DType::f16 : DType::bf16;
      const Array a = layout & 1 ? random({k, m}, dtype).transpose(0, 1) : random({m, k}, dtype);
      const Array b = layout & 2 ? random({n, k}, dtype).transpose(0, 1) : random({k, n}, dtype);
      for (bool accumulate : {false, true}) {
        INFO("m " << m << " n " << n << " k " << k << " layout " << layout << " accumulate " << accumulate);
        compare(random({m, n}, dtype), tolerance(dtype) * 4,
                [&](Backend& on, const Array& y) { on.matmul(a, b, y, accumulate); });
      }
    }
}

TEST_CASE("openmp matmul takes batches, broadcasting, odd strides and integers") {
  const Array a = random({3, 2, 9, 21}), b = random({2, 21, 10});
  compare(random({3, 2, 9, 10}), 1e-5, [&](Backend& on, const Array& y) {
    on.matmul(a, b.expand({3, 2, 21, 10}), y, false);
  });
  const Array shared = random({21, 10}).expand({3, 2, 21, 10});
  compare(random({3, 2, 9, 10}), 1e-5, [&](Backend& on, const Array& y) { on.matmul(a, shared, y, false); });
  const Array wide = random({18, 42}).slice(0, 0, 18, 2).slice(1, 0, 42, 2),
              gap = random({42, 30}).slice(0, 1, 42, 2).slice(1, 0, 30, 3);
  const Array out = random({18, 20});
  compare(out, 1e-5,
          [&](Backend& on, const Array& y) { on.matmul(wide, gap, y.slice(0, 0, 18, 2).slice(1, 0, 20, 2), true); });
  compare(random({10, 9}), 1e-5, [&](Backend& on, const Array& y) {
    on.matmul(a.select(0, 0).select(0, 0), b.select(0, 0), y.transpose(0, 1), false);
  });
  Array p = Array::empty({4, 5}, DType::i64), q = Array::empty({5, 6}, DType::i64);
  naive().fill(p, 3), naive().fill(q, -2);
  compare(Array::empty({4, 6}, DType::i64), 0, [&](Backend& on, const Array& y) { on.matmul(p, q, y, false); });
}

TEST_CASE("openmp linear agrees with naive") {
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{64, 10, 84}, {1, 33, 100}, {7, 1, 5}, {128, 300, 784}, {3, 4, 0}}) {
      const Array x = random({m, k}, dtype), w = random({n, k}, dtype), bias = random({n}, dtype);
      const View bias_view(bias);
      compare(random({m, n}, dtype), tolerance(dtype) * 8,
              [&](Backend& on, const Array& y) { on.linear(x, w, &bias_view, y); });
      compare(random({m, n}, dtype), tolerance(dtype) * 8,
              [&](Backend& on, const Array& y) { on.linear(x, w, nullptr, y); });
    }
}

namespace {

struct ConvCase {
  int64_t N, C, H, W, K, R, S;
  Conv2dGeometry g;
};

void check_convolution(const ConvCase& c, DType dtype, MemoryFormat format) {
  const int64_t P = (c.H + 2 * c.g.padding[0] - c.g.dilation[0] * (c.R - 1) - 1) / c.g.stride[0] + 1;
  const int64_t Q = (c.W + 2 * c.g.padding[1] - c.g.dilation[1] * (c.S - 1) - 1) / c.g.stride[1] + 1;
  INFO("N " << c.N << " C " << c.C << " H " << c.H << " W " << c.W << " K " << c.K << " R " << c.R << " S " << c.S
            << " stride " << c.g.stride[0] << ' ' << c.g.stride[1] << " padding " << c.g.padding[0] << ' '
            << c.g.padding[1] << " dilation " << c.g.dilation[0] << ' ' << c.g.dilation[1] << " groups " << c.g.groups
            << " dtype " << static_cast<int>(dtype) << " format " << static_cast<int>(format));
  const Array x = random({c.N, c.C, c.H, c.W}, dtype, format);
  const Array w = random({c.K, c.C / c.g.groups, c.R, c.S}, dtype, format), bias = random({c.K}, dtype);
  const Array y = random({c.N, c.K, P, Q}, dtype, format), dy = random({c.N, c.K, P, Q}, dtype, format);
  const View bias_view(bias), y_view(y);
  const double allowed = tolerance(dtype) * 10;
  compare(y, allowed, [&](Backend& on, const Array& out) { on.conv2d(x, w, out, c.g); });
  compare(y, allowed, [&](Backend& on, const Array& out) { on.conv2d_bias_relu(x, w, &bias_view, true, out, c.g); });
  compare(x, allowed, [&](Backend& on, const Array& out) { on.conv2d_backward_data(dy, w, out, c.g); });
  compare(w, allowed, [&](Backend& on, const Array& out) { on.conv2d_backward_weight(dy, x, out, c.g); });
  const auto fused = [&](Backend& on, const Array* dx, const Array* dw, const Array* db) {
    MutableView views[3];
    const Array* arrays[3] = {dx, dw, db};
    for (int i = 0; i < 3; ++i)
      if (arrays[i]) views[i] = *arrays[i];
    on.conv2d_bias_relu_backward(dy, x, w, &y_view, dx ? &views[0] : nullptr, dw ? &views[1] : nullptr,
                                 db ? &views[2] : nullptr, c.g);
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

TEST_CASE("openmp convolution agrees with naive") {
  const ConvCase cases[] = {
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
  for (const ConvCase& c : cases)
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
      for (DType dtype : {DType::f32, DType::f64}) check_convolution(c, dtype, format);
  check_convolution(cases[2], DType::f16, MemoryFormat::contiguous);
  check_convolution(cases[4], DType::bf16, MemoryFormat::channels_last);
}
