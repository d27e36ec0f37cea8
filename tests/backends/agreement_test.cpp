// Memory, element-wise operations, reductions and matmul: every backend agrees with naive for all dtypes, shapes and
// strides.
#include <cmath>
#include <limits>

#include <gradus/core/op_lists.h>
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

const Shape kShapes[] = {{},      {211, 190}, {1},       {0},          {7},           {3, 0, 2},
                         {5, 33}, {64, 130},  {1, 1, 3}, {2, 3, 4, 5}, {9, 1, 17, 3}, {2, 1, 2, 3, 1, 2, 2, 3}};

template <class Op>
std::vector<Op> all_ops(int count) {
  std::vector<Op> ops;
  for (int i = 0; i < count; ++i) ops.push_back(static_cast<Op>(i));
  return ops;
}

// Overwrites a few elements of a floating-point array with NaN, infinities and zeros.
void sprinkle(const Array& x, Maker& make) {
  if (x.numel() == 0 || !is_floating(x.dtype())) return;
  visit_floating(x.dtype(), [&]<class T> {
    T* data = static_cast<T*>(x.storage().data());
    const int64_t count = static_cast<int64_t>(x.storage().bytes() / sizeof(T));
    const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
    for (int64_t i = 0; i < 1 + count / 10; ++i) data[make.integer(0, count - 1)] = T(make.choice(special));
  });
}

}  // namespace

TEST_CASE("fill and copy agree on every backend, for all pairs of dtypes") {
  Maker make(1);
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      const Shape shape = make.choice(kShapes);
      const Array x = make(shape, from, make.choice(kInputLayouts)), y = make(shape, to, make.choice(kOutputLayouts));
      check_agreement("copy", {x}, {y}, [](Backend& b, const Arrays& in, const Arrays& out) { b.copy(in[0], out[0]); });
      check_agreement("fill", {}, {y}, [](Backend& b, const Arrays&, const Arrays& out) { b.fill(out[0], 3.75); });
    }
}

TEST_CASE("arange agrees on every backend") {
  Maker make(2);
  for (DType dtype : kAllDTypes) {
    if (dtype == DType::boolean) continue;
    for (int64_t size : {0, 1, 100}) {
      const Array y = make({size}, dtype, make.choice(kOutputLayouts));
      check_agreement("arange", {}, {y}, [](Backend& b, const Arrays&, const Arrays& out) { b.arange(out[0], 3, 2); });
      if (is_floating(dtype))
        check_agreement("arange", {}, {y},
                        [](Backend& b, const Arrays&, const Arrays& out) { b.arange(out[0], -1.5, 0.25); });
    }
  }
}

TEST_CASE("unary ops agree on every backend") {
  Maker make(3);
  for (UnaryOp op : all_ops<UnaryOp>(kUnaryOps))
    for (DType dtype : kAllDTypes) {
      if (needs_floating(op) && !is_floating(dtype)) continue;
      for (int round = 0; round < 6; ++round) {
        const Shape shape = make.choice(kShapes);
        const Array x = make(shape, dtype, make.choice(kInputLayouts));
        if (round % 2) sprinkle(x, make);
        const Array y = make(shape, is_predicate(op) ? DType::boolean : dtype, make.choice(kOutputLayouts));
        check_agreement(
            gradus::name(op), {x}, {y},
            [&](Backend& b, const Arrays& in, const Arrays& out) {
              b.unary(op, in[0], out[0], {-1, 1.5});
            },
            {}, 2);
        if (!is_predicate(op))
          check_agreement(
              std::string(gradus::name(op)) + " in place", {}, {y},
              [&](Backend& b, const Arrays&, const Arrays& out) {
                b.unary(op, out[0], out[0], {-1, 1.5});
              },
              {}, 2);
      }
    }
}

TEST_CASE("unary derivatives agree on every backend") {
  Maker make(4);
  for (UnaryOp op : all_ops<UnaryOp>(kUnaryOps)) {
    if (!has_derivative(op)) continue;
    for (DType dtype : kFloatingDTypes)
      for (int round = 0; round < 4; ++round) {
        const Shape shape = make.choice(kShapes);
        const Array dy = make(shape, dtype, make.choice(kInputLayouts));
        const Array saved = make(shape, dtype, make.choice(kInputLayouts));
        const Array dx = make(shape, dtype, make.choice(kOutputLayouts));
        check_agreement(
            std::string(gradus::name(op)) + " backward", {dy, saved}, {dx},
            [&](Backend& b, const Arrays& in, const Arrays& out) {
              b.unary_backward(op, in[0], in[1], out[0], {-1, 1.5});
            },
            {}, 2);
      }
  }
}

TEST_CASE("binary ops agree on every backend") {
  Maker make(5);
  for (BinaryOp op : all_ops<BinaryOp>(kBinaryOps))
    for (DType dtype : kAllDTypes) {
      if (is_floating(dtype) ? needs_integral(op) : needs_floating(op)) continue;
      for (int round = 0; round < 5; ++round) {
        const Shape shape = make.choice(kShapes);
        const double low = op == BinaryOp::pow ? 0.5 : -3;  // a real power needs a positive base
        const Array a = make(shape, dtype, make.choice(kInputLayouts), low);
        const Array b = make(shape, dtype, make.choice(kInputLayouts), low);
        if (round % 2) sprinkle(a, make), sprinkle(b, make);
        const Array y = make(shape, is_predicate(op) ? DType::boolean : dtype, make.choice(kOutputLayouts));
        check_agreement(
            gradus::name(op), {a, b}, {y},
            [&](Backend& backend, const Arrays& in, const Arrays& out) { backend.binary(op, in[0], in[1], out[0]); },
            {}, 2);
        for (bool scalar_first : {false, true})
          check_agreement(
              std::string(gradus::name(op)) + " scalar", {a}, {y},
              [&](Backend& backend, const Arrays& in, const Arrays& out) {
                backend.binary_scalar(op, in[0], 2, scalar_first, out[0]);
              },
              {}, 2);
        if (!is_predicate(op))
          check_agreement(
              std::string(gradus::name(op)) + " in place", {b}, {y},
              [&](Backend& backend, const Arrays& in, const Arrays& out) { backend.binary(op, out[0], in[0], out[0]); },
              {}, 2);
      }
    }
}

TEST_CASE("rows of whole vectors, broadcast along one axis or the other, agree on every backend") {
  Maker make(30);
  for (DType dtype : kAllDTypes)
    for (const int64_t width : {4, 8, 12, 40, 42})
      for (const int64_t begin : {0, 1, 8}) {  // within rows of 64: aligned or not
        const auto rows = [&] { return make({6, 64}, dtype).slice(1, begin, begin + width); };
        const Array row = make({1, width}, dtype).expand({6, width}), column = make({6, 1}, dtype).expand({6, width});
        const Array condition = make({6, 1}, DType::boolean).expand({6, width});
        const auto add = [](Backend& b, const Arrays& in, const Arrays& out) {
          b.binary(BinaryOp::add, in[0], in[1], out[0]);
        };
        for (const Array& y : {make({6, width}, dtype), rows()}) {
          check_agreement("add row", {rows(), row}, {y}, add, {}, 2);
          check_agreement("add column", {column, rows()}, {y}, add, {}, 2);
          check_agreement("copy column", {column}, {y},
                          [](Backend& b, const Arrays& in, const Arrays& out) { b.copy(in[0], out[0]); });
          check_agreement(
              "where", {condition, rows(), column}, {y},
              [](Backend& b, const Arrays& in, const Arrays& out) { b.where(in[0], in[1], in[2], out[0]); });
        }
      }
}

TEST_CASE("gather and scatter of slices and of elements agree on every backend") {
  Maker make(31);
  for (DType dtype : kAllDTypes)
    for (const int64_t width : {1, 16, 22, 48})
      for (const int64_t begin : {0, 1, 16})  // within rows of 64: aligned or not
        for (const int axis : {0, 1}) {
          const auto rows = [&](int64_t count) {
            const Shape shape = axis == 0 ? Shape{count, 2, 64} : Shape{2, count, 64};
            return make(shape, dtype).slice(2, begin, begin + width);
          };
          const Shape one = axis == 0 ? Shape{40, 1, 1} : Shape{1, 40, 1};
          const Array table = rows(9), items = rows(40);
          const Array by_slice = make(one, DType::i64, Layout::contiguous, 0, 8).expand(items.shape());
          const Array by_row = make(axis == 0 ? Shape{40, 2, 1} : Shape{2, 40, 1}, DType::i64, Layout::contiguous, 0, 8)
                                   .expand(items.shape());
          const Array by_element = make(items.shape(), DType::i64, Layout::contiguous, 0, 8);
          for (const Array& index : {by_slice, by_row, by_element}) {
            check_agreement("gather", {table, index}, {rows(40)}, [&](Backend& b, const Arrays& in, const Arrays& out) {
              b.gather(in[0], axis, in[1], out[0]);
            });
            for (const bool accumulate : {false, true})
              check_agreement("scatter", {items, index}, {table}, [&](Backend& b, const Arrays& in, const Arrays& out) {
                b.scatter(in[0], axis, in[1], accumulate, out[0]);
              });
          }
        }
}

TEST_CASE("where agrees on every backend") {
  Maker make(6);
  for (DType dtype : kAllDTypes)
    for (int round = 0; round < 5; ++round) {
      const Shape shape = make.choice(kShapes);
      const Array condition = make(shape, DType::boolean, make.choice(kInputLayouts));
      const Array a = make(shape, dtype, make.choice(kInputLayouts)),
                  b = make(shape, dtype, make.choice(kInputLayouts));
      check_agreement(
          "where", {condition, a, b}, {make(shape, dtype, make.choice(kOutputLayouts))},
          [](Backend& backend, const Arrays& in, const Arrays& out) { backend.where(in[0], in[1], in[2], out[0]); });
    }
}

TEST_CASE("reductions agree on every backend") {
  Maker make(7);
  for (ReduceOp op :
       {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min, ReduceOp::all, ReduceOp::any, ReduceOp::prod})
    for (DType dtype : kAllDTypes) {
      if (op == ReduceOp::mean && !is_floating(dtype)) continue;
      for (int round = 0; round < 8; ++round) {
        const Shape shape = make.choice(kShapes);
        const uint32_t axes = static_cast<uint32_t>(make.integer(0, (1 << shape.size()) - 1));
        const Array x = make(shape, dtype, make.choice(kInputLayouts));
        if ((op == ReduceOp::max || op == ReduceOp::min) && x.numel() == 0) continue;
        const bool arithmetic = op == ReduceOp::sum || op == ReduceOp::mean || op == ReduceOp::prod;
        if (round % 2 && !arithmetic) sprinkle(x, make);
        const bool logical = op == ReduceOp::all || op == ReduceOp::any;
        const bool counts = arithmetic && !is_floating(dtype);
        const Array y = make(shape.empty() ? Shape() : reduced_shape(shape, axes, true),
                             logical  ? DType::boolean
                             : counts ? DType::i64
                                      : dtype,
                             make.choice(kOutputLayouts));
        check_agreement(
            "reduce " + std::to_string(static_cast<int>(op)), {x}, {y},
            [&](Backend& b, const Arrays& in, const Arrays& out) { b.reduce(op, in[0], axes, out[0]); }, {}, 4);
      }
    }
}

TEST_CASE("reductions in vectors and in parts agree on every backend") {
  using enum Layout;
  struct Case {
    Shape shape;
    uint32_t axes;
    Layout layout = contiguous;
  };
  const Case cases[] = {
      {{40000}, 1},                             // all elements, in parts
      {{40003}, 1},                             // the same with a tail
      {{4, 3, 64, 48}, 0b1101},                 // per channel: whole planes
      {{16, 40, 8, 4}, 0b1101, channels_last},  // per channel: pixels that fill whole vectors
      {{9, 6, 7, 5}, 0b1101},                   // planes that do not fill vectors
      {{9, 6, 7, 5}, 0b1101, channels_last},    // pixels that do not fill vectors
      {{3, 5, 16, 8}, 0b0110},                  // the middle axes
      {{3, 70, 32}, 0b010},
      {{7, 40, 6}, 0b101},
      {{700, 32}, 0b01},  // columns, rows
      {{32, 700}, 0b10},
      {{4300, 16}, 0b10},
      {{700, 32}, 0b10, reversed},
      {{30, 20, 10, 4}, 0b0101, gapped},
      {{6, 16, 4, 16}, 0b1010, reversed},
      {{6, 16, 4, 16}, 0b1011, broadcast},
      {{3, 1024, 2, 2}, 0b1101},
      {{3, 1024, 2, 2}, 0b1101, channels_last},
      {{1200, 90}, 0b10},
      {{2, 3000}, 0b10},
      {{16, 1, 1, 8}, 0},
      {{1, 1, 1, 1}, 0b1111},
  };
  Maker make(11);
  for (const Case& c : cases)
    for (DType dtype : kAllDTypes)
      for (bool shifted : {false, true}) {  // by one element, so that nothing is aligned
        Array x = make(c.shape, dtype, c.layout);
        if (shifted && c.layout == contiguous)
          x = make({x.numel() + 1}, dtype).as_strided(c.shape, contiguous_strides(c.shape), 1);
        else if (shifted) continue;
        const Shape kept = reduced_shape(c.shape, c.axes, true);
        for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::all}) {
          const DType result = op == ReduceOp::all                          ? DType::boolean
                               : op == ReduceOp::sum && !is_floating(dtype) ? DType::i64
                                                                            : dtype;
          check_agreement(
              "reduce " + std::to_string(static_cast<int>(op)), {x}, {make(kept, result, make.choice(kOutputLayouts))},
              [&](Backend& b, const Arrays& in, const Arrays& out) { b.reduce(op, in[0], c.axes, out[0]); }, {}, 4);
        }
        for (int axis = 0; axis < c.shape.size(); ++axis) {
          const Shape rest = reduced_shape(c.shape, 1u << axis, true);
          check_agreement("argmax", {x}, {make(rest, dtype), make(rest, DType::i64)},
                          [&](Backend& b, const Arrays& in, const Arrays& out) {
                            b.arg_reduce(ArgReduceOp::argmax, in[0], axis, out[0], out[1]);
                          });
        }
      }
}

TEST_CASE("sums of many short rows agree on every backend") {
  Maker make(31);
  for (DType dtype : {DType::f32, DType::bf16})
    for (const int64_t size : {256, 520}) {
      const Array x = make({7000, size}, dtype), y = make({7000, 1}, dtype);
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max})
        check_agreement(
            "reduce " + std::to_string(static_cast<int>(op)), {x}, {y},
            [&](Backend& b, const Arrays& in, const Arrays& out) { b.reduce(op, in[0], 2, out[0]); }, {}, 4);
    }
}

TEST_CASE("a long sum keeps its precision on every backend") {
  // 2^21 thirds: a plain running sum in float has a relative error of 1e-3, pairwise or blocked summation one of 1e-6.
  const Array x = Array::empty({1 << 21});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = 1.0f / 3;
  check_agreement(
      "sum", {x}, {Array::empty({1})},
      [](Backend& b, const Arrays& in, const Arrays& out) { b.reduce(ReduceOp::sum, in[0], 1, out[0]); }, {}, 2);
}

TEST_CASE("arg reductions agree on every backend, with ties and NaN") {
  Maker make(8);
  for (ArgReduceOp op : {ArgReduceOp::argmax, ArgReduceOp::argmin})
    for (DType dtype : kAllDTypes)
      for (int round = 0; round < 8; ++round) {
        const Shape shape = make.choice(kShapes);
        const int axis = shape.empty() ? 0 : static_cast<int>(make.integer(0, shape.size() - 1));
        if (!shape.empty() && shape[axis] == 0) continue;
        const Array x = make(shape, dtype, make.choice(kInputLayouts));
        if (round % 2) sprinkle(x, make);
        const Shape kept = shape.empty() ? Shape() : reduced_shape(shape, 1u << axis, true);
        const Array best = make(kept, dtype, make.choice(kOutputLayouts));
        const Array indices = make(kept, DType::i64, make.choice(kOutputLayouts));
        check_agreement("arg_reduce", {x}, {best, indices}, [&](Backend& b, const Arrays& in, const Arrays& out) {
          b.arg_reduce(op, in[0], axis, out[0], out[1]);
        });
        check_agreement("arg_reduce without values", {x}, {indices},
                        [&](Backend& b, const Arrays& in, const Arrays& out) {
                          b.arg_reduce(op, in[0], axis, MutableView(), out[0]);
                        });
      }
}

TEST_CASE("matmul agrees on every backend") {
  Maker make(9);
  const int64_t sizes[] = {0, 1, 2, 3, 7, 16, 33, 70, 132};
  for (DType dtype : kAllDTypes) {
    if (dtype == DType::boolean) continue;
    for (int round = 0; round < (dtype == DType::f32 ? 60 : 20); ++round) {
      const int64_t M = make.choice(sizes), N = make.choice(sizes), K = make.choice(sizes);
      const bool batched = round % 4 == 3;
      const Shape lead = !batched ? Shape{} : round % 8 == 3 ? Shape{2, 3} : Shape{3, 2};
      auto matrix = [&](int64_t rows, int64_t columns, auto& layouts) {
        Shape shape = lead;
        shape.push_back(rows), shape.push_back(columns);
        return make(shape, dtype, make.choice(layouts), -1, 1);
      };
      const Array a = matrix(M, K, kInputLayouts), b = matrix(K, N, kInputLayouts), y = matrix(M, N, kOutputLayouts);
      for (bool accumulate : {false, true})
        check_agreement(
            accumulate ? "matmul accumulating" : "matmul", {a, b}, {y},
            [&](Backend& backend, const Arrays& in, const Arrays& out) {
              backend.matmul(in[0], in[1], out[0], accumulate);
            },
            {}, 2);
    }
  }
}
