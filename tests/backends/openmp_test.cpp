// Matrix products of the openmp backend.
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
        compare(random({m, n}, dtype), tolerance_of(dtype) * 4,
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
      for (const Array& given : {bias, Array()})
        compare(random({m, n}, dtype), tolerance_of(dtype) * 8,
                [&](Backend& on, const Array& y) { on.linear(x, w, given, y); });
    }
}
