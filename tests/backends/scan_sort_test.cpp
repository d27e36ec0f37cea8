// Scans, linear recurrences and sorting: their results, and that every backend gives the same in every layout and type.
#include <limits>

#include <gradus/core/op_lists.h>
#include <gradus/tests/backends/openmp_compare.h>
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

const Shape kShapes[] = {{},      {1},       {0},          {7},           {3, 0, 2}, {211, 90},
                         {5, 33}, {1, 1, 3}, {2, 3, 4, 5}, {9, 1, 17, 3}, {64, 130}, {2, 1, 2, 3, 1, 2, 2, 3}};

int axis_of(Maker& make, const Shape& shape) {
  return shape.empty() ? 0 : static_cast<int>(make.integer(0, shape.size() - 1));
}

template <class Call>
std::vector<double> run_naive(const Shape& shape, DType dtype, Call&& call) {
  const Array y = Array::empty(shape, dtype);
  call(backend("naive"), y);
  return values(y);
}

using Values = std::vector<double>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("scans are running sums and products, from either end") {
  const Array x = array_of({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto scan = [&](ScanOp op, int axis, bool reverse) {
    return run_naive({2, 3}, DType::f64, [&](Backend& b, const Array& y) { b.scan(op, x, axis, reverse, y); });
  };
  CHECK(scan(ScanOp::sum, 1, false) == Values{1, 3, 6, 4, 9, 15});
  CHECK(scan(ScanOp::sum, 0, false) == Values{1, 2, 3, 5, 7, 9});
  CHECK(scan(ScanOp::sum, 1, true) == Values{6, 5, 3, 15, 11, 6});
  CHECK(scan(ScanOp::prod, 1, false) == Values{1, 2, 6, 4, 20, 120});
  CHECK(scan(ScanOp::prod, 0, true) == Values{4, 10, 18, 4, 5, 6});
  const Array bytes = array_of({3}, {200, 100, 50}, DType::u8);
  CHECK(run_naive({3}, DType::i64, [&](Backend& b, const Array& y) { b.scan(ScanOp::sum, bytes, 0, false, y); }) ==
        Values{200, 300, 350});
}

TEST_CASE("a linear recurrence scales the sum so far; the first weight is not used") {
  const Array a = array_of({4}, {kInf, 2, 0, 3}), b = array_of({4}, {1, 10, 100, 1000});
  const auto run = [&](bool reverse) {
    return run_naive({4}, DType::f64, [&](Backend& backend, const Array& y) {
      backend.linear_recurrence(reverse ? a.slice(0, 1, 4).as_strided({4}, {0}, 1) : a, b, 0, reverse, y);
    });
  };
  CHECK(run(false) == Values{1, 12, 100, 1300});
  CHECK(run(true) == Values{1 + 2 * (10 + 2 * (100 + 2 * 1000.0)), 10 + 2 * (100 + 2 * 1000.0), 2100, 1000});
}

TEST_CASE("sort is stable, puts NaN last and treats zeros of both signs as equal") {
  const auto sort = [](const Values& numbers, bool descending, DType dtype = DType::f64) {
    const int64_t n = static_cast<int64_t>(numbers.size());
    const Array x = array_of({n}, numbers, dtype), sorted = Array::empty({n}, dtype);
    const Array order = Array::empty({n}, DType::i64);
    std::pair<Values, Values> first;
    for (const char* name : {"naive", "openmp"}) {
      backend(name).sort(x, 0, descending, sorted, order);
      if (first.second.empty()) first = {values(sorted), values(order)};
      CHECK(values(order) == first.second);
    }
    return first;
  };
  CHECK(sort({3, 1, 2, 1}, false) == std::pair(Values{1, 1, 2, 3}, Values{1, 3, 2, 0}));
  CHECK(sort({3, 1, 2, 1}, true) == std::pair(Values{3, 2, 1, 1}, Values{0, 2, 1, 3}));
  CHECK(sort({0, -0.0, 0, -1}, false).second == Values{3, 0, 1, 2});
  for (DType dtype : kFloatingDTypes) {
    CHECK(sort({kNaN, 1, kInf, -kInf, -kNaN, -1}, false, dtype).second == Values{3, 5, 1, 2, 0, 4});
    CHECK(sort({kNaN, 1, kInf, -kInf, -kNaN, -1}, true, dtype).second == Values{0, 4, 2, 1, 5, 3});
  }
  CHECK(sort({5, -3, 0, 2}, false, DType::i32).second == Values{1, 2, 3, 0});
  CHECK(sort({-9e18, 9e18, 0}, true, DType::i64).second == Values{1, 2, 0});
  CHECK(sort({255, 0, 128}, false, DType::u8).first == Values{0, 128, 255});
  CHECK(sort({1, 0, 1, 0}, false, DType::boolean).second == Values{1, 3, 0, 2});
}

TEST_CASE("scans and recurrences agree on every backend") {
  Maker make(21);
  for (DType dtype : kAllDTypes)
    for (int round = 0; round < 8; ++round) {
      const Shape shape = make.choice(kShapes);
      const int axis = axis_of(make, shape);
      const bool reverse = round % 2;
      const Array x = make(shape, dtype, make.choice(kInputLayouts));
      const Array weights = make(shape, dtype, make.choice(kInputLayouts), 0, 1);
      const DType wide = is_floating(dtype) ? dtype : DType::i64;
      for (ScanOp op : {ScanOp::sum, ScanOp::prod})
        check_agreement(
            "scan", {op == ScanOp::sum ? x : weights}, {make(shape, wide, make.choice(kOutputLayouts))},
            [&](Backend& b, const Arrays& in, const Arrays& out) { b.scan(op, in[0], axis, reverse, out[0]); }, {}, 4);
      if (dtype == DType::boolean) continue;
      check_agreement(
          "linear_recurrence", {weights, x}, {make(shape, dtype, make.choice(kOutputLayouts))},
          [&](Backend& b, const Arrays& in, const Arrays& out) {
            b.linear_recurrence(in[0], in[1], axis, reverse, out[0]);
          },
          [&](Backend& b, const Arrays& in, const Arrays& out) {
            if (is_floating(dtype)) b.Backend::linear_recurrence(in[0], in[1], axis, reverse, out[0]);
            else b.linear_recurrence(in[0], in[1], axis, reverse, out[0]);
          },
          4);
    }
  check_agreement(
      "scan of floats into integers", {make({9, 5}, DType::f32)}, {Array::empty({9, 5}, DType::i64)},
      [&](Backend& b, const Arrays& in, const Arrays& out) { b.scan(ScanOp::sum, in[0], 0, false, out[0]); });
}

TEST_CASE("sorts agree on every backend") {
  Maker make(22);
  for (DType dtype : kAllDTypes)
    for (int round = 0; round < 8; ++round) {
      const Shape shape = make.choice(kShapes);
      const int axis = axis_of(make, shape);
      const Array x = make(shape, dtype, make.choice(kInputLayouts));
      const Array sorted = make(shape, dtype, make.choice(kOutputLayouts));
      const Array order = make(shape, DType::i64, make.choice(kOutputLayouts));
      check_agreement("sort", {x}, {sorted, order}, [&](Backend& b, const Arrays& in, const Arrays& out) {
        b.sort(in[0], axis, round % 2, out[0], out[1]);
      });
      check_agreement("argsort", {x}, {order}, [&](Backend& b, const Arrays& in, const Arrays& out) {
        b.sort(in[0], axis, round % 2, MutableView(), out[0]);
      });
    }
  // Row lengths around the sizes at which other kernels take over; many rows and few.
  for (const Shape& shape : {Shape{5, 63}, Shape{17000, 3}, Shape{300, 65}, Shape{3, 2048}, Shape{2, 2049}})
    for (DType dtype : {DType::f32, DType::f64, DType::u8}) {
      const Array x = make(shape, dtype, Layout::contiguous, 0, 100);
      if (dtype == DType::f32)
        for (int64_t i = 0; i < x.numel(); i += 301) x.data<float>()[i] = static_cast<float>(kNaN);
      for (bool descending : {false, true})
        check_agreement(
            "sort", {x}, {Array::empty(shape, dtype), Array::empty(shape, DType::i64)},
            [&](Backend& b, const Arrays& in, const Arrays& out) { b.sort(in[0], 1, descending, out[0], out[1]); });
    }
}

TEST_CASE("topk agrees on every backend, with ties and NaN") {
  Maker make(23);
  const auto check = [](const Array& x, int axis, bool largest, const Array& top, const Array& places) {
    check_agreement("topk", {x}, {top, places}, [&](Backend& b, const Arrays& in, const Arrays& out) {
      b.topk(in[0], axis, largest, out[0], out[1]);
    });
  };
  for (DType dtype : kAllDTypes)
    for (int round = 0; round < 8; ++round) {
      Shape shape = make.choice(kShapes);
      const int axis = axis_of(make, shape);
      const Array x = make(shape, dtype, make.choice(kInputLayouts));
      if (!shape.empty()) shape[axis] = make.integer(0, shape[axis]);
      check(x, axis, round % 2, make(shape, dtype, make.choice(kOutputLayouts)),
            make(shape, DType::i64, make.choice(kOutputLayouts)));
    }
  // k and row lengths around the sizes at which other kernels take over.
  const std::pair<Shape, int64_t> sizes[] = {{{3, 1000}, 1},    {{3, 1000}, 5},     {{200, 33}, 32}, {{2, 1024}, 1024},
                                             {{2, 1030}, 1025}, {{1, 140000}, 100}, {{2, 9000}, 700}};
  for (const auto& [shape, k] : sizes)
    for (DType dtype : {DType::f32, DType::f64, DType::i64, DType::u8})
      for (bool largest : {true, false}) {
        INFO(to_string(shape) << " k " << k << " " << name(dtype));
        const Array x = make(shape, dtype, Layout::contiguous, dtype == DType::u8 ? 0 : -1000, 100);
        if (dtype == DType::f32)
          for (int64_t i = 0; i < x.numel(); i += 301) x.data<float>()[i] = static_cast<float>(kNaN);
        check(x, 1, largest, Array::empty({shape[0], k}, dtype), Array::empty({shape[0], k}, DType::i64));
      }
}

TEST_CASE("openmp scans and sorts of rows of every length agree with naive on any number of threads") {
  for (const Shape& shape : {Shape{100000}, Shape{3, 40000}, Shape{40000, 3}, Shape{500, 70}, Shape{70, 500}})
    for (int axis = 0; axis < shape.size(); ++axis)
      for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
        INFO("shape " << to_string(shape) << " axis " << axis << " type " << name(dtype));
        const Array x = random(shape, dtype), weights = random(shape, DType::f64);
        compare(Array::empty(shape, dtype), 10 * tolerance_of(dtype),
                [&](Backend& on, const Array& y) { on.scan(ScanOp::sum, x, axis, false, y); });
        compare(Array::empty(shape, DType::i64), 0,
                [&](Backend& on, const Array& order) { on.sort(x, axis, true, MutableView(), order); });
        backend("naive").unary(UnaryOp::tanh, weights, weights, {});
        if (dtype == DType::f64)
          compare(Array::empty(shape, dtype), tolerance_of(dtype),
                  [&](Backend& on, const Array& y) { on.linear_recurrence(weights, x, axis, true, y); });
      }
}
