// The orders in which kernels of the openmp backend traverse memory: by rows, by lanes, by strips, through buffers.
// Sizes are around the edges of vectors, strips and segments.
#include <algorithm>
#include <cmath>

#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>
#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::test;

namespace {

constexpr DType kWalkedTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

// Random multiples of 1/8, which often have equal elements.
Array eighths(const Shape& shape, DType dtype) {
  const Array x = random(shape, DType::f64), y = Array::empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = std::round(x.data<double>()[i] * 8) / 8;
  naive().copy(x, y);
  return y;
}

}  // namespace

TEST_CASE("openmp softmax by rows and by lanes agrees with naive") {
  const Shape shapes[] = {{5, 1000}, {3, 7, 300}, {2, 40, 9}, {2, 3, 5}, {1, 33, 17}, {4, 1}, {700, 31}};
  for (const Shape& shape : shapes)
    for (DType dtype : kWalkedTypes)
      for (int axis = 0; axis < shape.size(); ++axis)
        for (const bool log : {false, true}) {
          INFO(to_string(shape) << " axis " << axis << (log ? " log" : "") << " type " << name(dtype));
          const SoftmaxKind kind = log ? SoftmaxKind::log_softmax : SoftmaxKind::softmax;
          const Array x = random(shape, dtype), dy = random(shape, dtype), y = Array::empty(shape, dtype);
          naive().softmax(x, axis, kind, y);
          compare(y, tolerance_of(dtype), [&](Backend& on, const Array& out) { on.softmax(x, axis, kind, out); });
          compare(x, tolerance_of(dtype), [&](Backend& on, const Array& out) { on.softmax(out, axis, kind, out); });
          // Sums of many half-precision terms have a few more rounding errors.
          compare(dy, 4 * tolerance_of(dtype),
                  [&](Backend& on, const Array& dx) { on.softmax_backward(dx, y, axis, log, dx); });
          const int last = shape.size() - 1;
          compare(Array::empty(y.transpose(0, last).shape(), dtype), tolerance_of(dtype),
                  [&](Backend& on, const Array& out) {
                    on.softmax(x.transpose(0, last), last - axis == last ? last : axis == last ? 0 : axis, kind, out);
                  });
        }
  Array special = random({3, 64});
  special.data<float>()[5] = NAN, special.data<float>()[70] = INFINITY;
  std::fill_n(special.data<float>() + 128, 64, -INFINITY);
  for (const SoftmaxKind kind : {SoftmaxKind::softmax, SoftmaxKind::log_softmax, SoftmaxKind::or_zeros})
    for (const int axis : {0, 1})
      compare(special, 1e-6, [&](Backend& on, const Array& y) { on.softmax(special, axis, kind, y); });
}

TEST_CASE("openmp extremes of rows and columns find the first, and NaN") {
  for (DType dtype : kWalkedTypes)
    for (const Shape& shape : {Shape{3, 1000}, Shape{1000, 3}, Shape{70, 600}, Shape{5, 1}}) {
      Array x = eighths(shape, dtype);
      for (bool with_nan : {false, true}) {
        if (with_nan) naive().fill(x.slice(0, 1, 3).slice(1, 0, 1), NAN);
        for (int axis : {0, 1})
          for (ArgReduceOp op : {ArgReduceOp::argmax, ArgReduceOp::argmin}) {
            INFO(to_string(shape) << " axis " << axis << " type " << name(dtype));
            Shape out = shape;
            out[axis] = 1;
            compare(Array::empty(out, DType::i64), 0,
                    [&](Backend& on, const Array& y) { on.arg_reduce(op, x, axis, MutableView(), y); });
            const ReduceOp extreme = op == ArgReduceOp::argmax ? ReduceOp::max : ReduceOp::min;
            compare(Array::empty(out, dtype), 0,
                    [&](Backend& on, const Array& y) { on.reduce(extreme, x, 1u << axis, y); });
          }
      }
    }
}

TEST_CASE("openmp topk gives the first of the sort") {
  const std::pair<Shape, int64_t> cases[] = {{{3, 1000}, 5},     {{3, 1000}, 999}, {{2, 70000}, 3}, {{1, 200000}, 100},
                                             {{1, 66000}, 9000}, {{40, 7}, 7},     {{1, 1}, 1},     {{150, 20}, 2}};
  for (const auto& [shape, k] : cases)
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8, DType::boolean})
      for (bool largest : {true, false})
        for (int axis : {1, 0}) {
          if (axis == 0 && shape[0] < k) continue;
          Array x = is_floating(dtype) ? eighths(shape, dtype) : Array::empty(shape, dtype);
          if (!is_floating(dtype)) naive().copy(eighths(shape, DType::f32), x);
          if (dtype == DType::f32) x.data<float>()[x.numel() / 2] = NAN;
          Shape out = shape;
          out[axis] = k;
          INFO(to_string(shape) << " k " << k << " axis " << axis << " type " << name(dtype));
          const Array values = Array::empty(out, dtype), indices = Array::empty(out, DType::i64);
          compare(values, 0, [&](Backend& on, const Array& y) { on.topk(x, axis, largest, y, indices); });
          compare(indices, 0, [&](Backend& on, const Array& y) { on.topk(x, axis, largest, values, y); });
        }
}

TEST_CASE("openmp topk of a row does not look at the elements after it") {
  for (const bool largest : {true, false}) {
    // The first k are at the row's begin, so that the search for better elements ends at the row's end. The next row
    // begins with an element that is no better, and with one that is better than all of this row.
    const Array x = Array::empty({3, 1000}, DType::f32);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int64_t row = i / 1000, at = i % 1000;
      const auto number = static_cast<float>(at == 0 ? 0 : at == 1 ? 10'000 * (row + 1) : 1000 - at);
      x.data<float>()[i] = largest ? number : -number;
    }
    const Array values = Array::empty({3, 5}, DType::f32), indices = Array::empty({3, 5}, DType::i64);
    compare(values, 0, [&](Backend& on, const Array& y) { on.topk(x, 1, largest, y, indices); });
    compare(indices, 0, [&](Backend& on, const Array& y) { on.topk(x, 1, largest, values, y); });
  }
}

TEST_CASE("openmp sort of long and short rows of all types agrees with naive") {
  for (const Shape& shape : {Shape{200000}, Shape{3, 70}, Shape{2, 65537}, Shape{64}, Shape{65}})
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean})
      for (bool descending : {false, true}) {
        Array x = Array::empty(shape, dtype);
        const Array numbers = eighths(shape, DType::f32);
        naive().binary_scalar(BinaryOp::mul, numbers, is_floating(dtype) ? 1.0 : 100.0, false, numbers);
        naive().copy(numbers, x);
        INFO(to_string(shape) << " type " << name(dtype));
        const int axis = shape.size() - 1;
        compare(Array::empty(shape, DType::i64), 0,
                [&](Backend& on, const Array& y) { on.sort(x, axis, descending, MutableView(), y); });
      }
}

TEST_CASE("openmp copies between memory orders agree with naive") {
  const Shape shapes[] = {{2, 3, 65, 7}, {1, 64, 5, 33}, {3, 4, 4, 4}, {2, 17, 1, 70}, {5, 2, 3, 130}};
  for (const Shape& shape : shapes)
    for (DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64, DType::bf16, DType::u8}) {
      const Array x = eighths(shape, dtype);
      for (int a = 0; a < 4; ++a)
        for (int b = a + 1; b < 4; ++b) {
          const Array turned = x.transpose(a, b);
          compare(Array::empty(turned.shape(), dtype), 0, [&](Backend& on, const Array& y) { on.copy(turned, y); });
          compare(x, 0, [&](Backend& on, const Array& y) { on.copy(turned, y.transpose(a, b)); });
        }
      compare(Array::empty(shape, dtype, {}, MemoryFormat::channels_last), 0,
              [&](Backend& on, const Array& y) { on.copy(x, y); });
    }
}

TEST_CASE("openmp copies arrays with negative strides") {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::u8})
    for (const Shape& shape : {Shape{3, 1000}, Shape{70, 33}, Shape{5, 1}}) {
      const Array x = eighths(shape, dtype);
      for (uint32_t axes = 1; axes < 4; ++axes) {
        Strides strides = x.strides();
        int64_t first = 0;
        for (int i = 0; i < 2; ++i)
          if (axes >> i & 1) first += (shape[i] - 1) * strides[i], strides[i] = -strides[i];
        const Array backwards(x.storage(), first, shape, strides, dtype);
        INFO(to_string(shape) << " axes " << axes << " type " << name(dtype));
        compare(x, 0, [&](Backend& on, const Array& y) { on.copy(backwards, y); });
        compare(Array::empty({shape[1], shape[0]}, dtype), 0,
                [&](Backend& on, const Array& y) { on.copy(backwards.transpose(0, 1), y); });
      }
    }
}

// Integers in [0, size), with small ones more frequent.
static Array places_in(const Shape& shape, int64_t size) {
  const Array index = Array::empty(shape, DType::i64);
  for (int64_t i = 0; i < index.numel(); ++i) {
    const auto draw = static_cast<int64_t>(engine()() % static_cast<uint64_t>(size));
    index.data<int64_t>()[i] = i % 3 ? draw : draw / 16;
  }
  return index;
}
// A vector of indices along `axis`, expanded to `shape`.
static Array along(const Array& index, int axis, const Shape& shape) {
  Strides strides = Dims::filled(shape.size(), 0);
  strides[axis] = 1;
  return Array(index.storage(), 0, shape, strides, DType::i64);
}

TEST_CASE("openmp gather and scatter of rows and elements agree with naive, also in the order of writes") {
  struct Case {
    int64_t places, rows, columns;  // x has `rows` rows, which go to `places` places
  };
  // Numbers of rows around the size of a chunk; many and few places; one column.
  const Case cases[] = {{300, 5000, 40}, {5, 3, 20000}, {1000, 700, 130}, {40, 3000, 15}, {1, 900, 64}, {50, 70, 1}};
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::u8})
    for (const Case& c : cases)
      for (bool turned : {false, true}) {  // the index is along the last axis
        INFO(c.places << " places, " << c.rows << " rows of " << c.columns << " type " << name(dtype) << turned);
        const auto shape = [&](int64_t rows) { return turned ? Shape{c.columns, rows} : Shape{rows, c.columns}; };
        const int axis = turned ? 1 : 0;
        const Array table = eighths(shape(c.places), dtype), rows = eighths(shape(c.rows), dtype);
        const Array by_row = along(places_in({c.rows}, c.places), axis, shape(c.rows)),
                    by_element = places_in(shape(c.rows), c.places);
        for (const Array& index : {by_row, by_element}) {
          compare(rows, 0, [&](Backend& on, const Array& y) { on.gather(table, axis, index, y); });
          for (bool accumulate : {false, true})
            compare(table, 0, [&](Backend& on, const Array& y) { on.scatter(rows, axis, index, accumulate, y); });
        }
      }
}

TEST_CASE("openmp finds the true elements of any layout as naive does, into any layout") {
  const Array x = Array::empty({300, 170}, DType::boolean);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<bool>()[i] = i % 7 == 0 || i % 11 == 3;
  for (const Array& hit : {x, x.transpose(0, 1), x.slice(0, 1, 299, 2), x.slice(1, 3, 160)}) {
    INFO(to_string(hit.shape()) << " from strides " << to_string(hit.strides()));
    const int64_t count = ops::nonzero(hit).size(0);
    CHECK(count > 1000);
    compare(Array::empty({count, 2}, DType::i64), 0, [&](Backend& on, const Array& y) { on.nonzero(hit, y); });
    compare(Array::empty({2, count}, DType::i64).transpose(0, 1), 0,
            [&](Backend& on, const Array& y) { on.nonzero(hit, y); });
  }
}

TEST_CASE("openmp gather and scatter name an invalid index and write nothing") {
  const Array x = random({40, 30}), rows = random({50, 30}), y = Array::empty({50, 30});
  for (int64_t bad : {int64_t{-1}, int64_t{40}, INT64_MIN, INT64_MAX})
    for (bool by_element : {false, true}) {
      const Array places = places_in(by_element ? Shape{50, 30} : Shape{50}, 40);
      places.data<int64_t>()[by_element ? 33 * 30 : 33] = bad;
      const Array index = by_element ? places : along(places, 0, {50, 30});
      const std::string message = "index " + std::to_string(bad) + " at position " + (by_element ? "(33, 0)" : "(33,)");
      CHECK_THROWS_WITH(openmp().gather(x, 0, index, y), contains(message));
      const Array before = Array::empty({40, 30}), into = Array::empty({40, 30});
      naive().copy(x, before), naive().copy(x, into);
      CHECK_THROWS_WITH(openmp().scatter(rows, 0, index, true, into), contains(message));
      CHECK(same_bits(before, into));
    }
}

TEST_CASE("openmp converts half types with exact bits") {
  for (DType half : {DType::f16, DType::bf16}) {
    const Array all = Array::empty({65536}, half);  // all bit patterns
    for (int i = 0; i < 65536; ++i) static_cast<uint16_t*>(all.data())[i] = static_cast<uint16_t>(i);
    compare(Array::empty({65536}), 0, [&](Backend& on, const Array& y) { on.copy(all, y); });
    // Floats at and between neighbouring half values: in the middle, and slightly to both sides of it.
    const Array wide = Array::empty({65536}), floats = Array::empty({4 * 65535 + 3});
    naive().copy(all, wide);
    const float* w = wide.data<float>();
    float* f = floats.data<float>();
    for (int i = 0; i < 65535; ++i) {
      const float middle = w[i] / 2 + w[i + 1] / 2;
      *f++ = w[i], *f++ = middle, *f++ = std::nextafter(middle, INFINITY), *f++ = std::nextafter(middle, -INFINITY);
    }
    *f++ = 65519.996f, *f++ = 3.4e38f, *f++ = 1e-45f;
    compare(Array::empty(floats.shape(), half), 0, [&](Backend& on, const Array& y) { on.copy(floats, y); });
  }
}

TEST_CASE("openmp where agrees with naive for elements of all sizes and scalar operands") {
  const Array condition = eighths({9, 77}, DType::boolean);
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8}) {
    const Array a = eighths({9, 77}, dtype), b = eighths({9, 77}, dtype), one = eighths({1, 1}, dtype).expand({9, 77});
    compare(a, 0, [&](Backend& on, const Array& y) { on.where(condition, a, b, y); });
    compare(a, 0, [&](Backend& on, const Array& y) { on.where(condition, one, b, y); });
    compare(a, 0, [&](Backend& on, const Array& y) { on.where(condition, a, one, y); });
    compare(a, 0, [&](Backend& on, const Array& y) { on.where(condition, y, one, y); });
  }
}
