// Matrix products of the openmp backend, and what its events name.
#include <array>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/observer.h>
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

TEST_CASE("events of the openmp backend name the vectors that compute, or loops") {
  struct Last final : Observer {
    std::string name, implementation;
    void on_end(const ObservedEvent& event) override { name = event.name, implementation = event.implementation; }
  } last;
  add_observer(&last);
  const std::string vectors = openmp_detail::kernel_table().vectors;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64}) {
    const std::string of_floats = dtype == DType::i64 ? "loops" : vectors;
    const Array x = Array::empty({4, 6}, dtype);
    naive().fill(x, 1);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::prod, ReduceOp::max, ReduceOp::min}) {
      if (op == ReduceOp::mean && dtype == DType::i64) continue;
      openmp().reduce(op, x, 0b10, Array::empty({4, 1}, dtype));
      CHECK(last.name == gradus::name(op));
      CHECK(last.implementation == (op == ReduceOp::sum || op == ReduceOp::mean ? of_floats : "loops"));
    }
    openmp().unary(UnaryOp::neg, x, Array::empty({4, 6}, dtype), {});
    CHECK(last.implementation == of_floats);
    openmp().binary(BinaryOp::sub, x, x, Array::empty({4, 6}, dtype));
    CHECK(last.implementation == of_floats);
  }
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
    for (const auto& [kernel, height, width] :
         {std::array<int64_t, 3>{2, 6, 6}, {3, 6, 6}, {2, 6, 9}, {2, 9, 6}, {3, 6, 9}}) {
      const Array dx = Array::empty({1, 3, height, width}, DType::f32, {}, format);
      const Array dy = Array::empty({1, 3, height / kernel, width / kernel}, DType::f32, {}, format);
      const Array places = Array::empty(dy.shape(), DType::i32, {}, format);
      naive().fill(dy, 1), naive().fill(places, 0);
      openmp().max_pool2d_backward(dy, places, dx, {{kernel, kernel}, {kernel, kernel}, {0, 0}, {1, 1}});
      const bool in_vectors = kernel == 2 && format == MemoryFormat::contiguous;
      CHECK(last.implementation == (in_vectors ? vectors : "loops"));
    }
  remove_observer(&last);
}

TEST_CASE("openmp gather takes results without elements") {
  const Array x = random({5, 3});
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{0, 0}})
    CHECK_NOTHROW(openmp().gather(x, 0, Array::empty(shape, DType::i64), Array::empty(shape)));
  CHECK_NOTHROW(openmp().gather(x.select(1, 0), 0, Array::empty({0}, DType::i64), Array::empty({0})));
}
