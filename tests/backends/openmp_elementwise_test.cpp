// Element-wise kernels, reductions, losses, pooling, random numbers and optimizer steps of the openmp backend.
#include <algorithm>
#include <functional>

#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>
#include <gradus/tests/backends/openmp_compare.h>
#include <gradus/tests/backends/optimizer_rules.h>

using namespace gradus;
using namespace gradus::test;

namespace {

constexpr DType kAllTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                               DType::i64, DType::i32, DType::u8,  DType::boolean};
constexpr DType kFloatTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

// Small integers in any type, so that integer types get values other than 0.
Array integers(const Shape& shape, DType dtype, int low = -3, int high = 5) {
  Array x = Array::empty(shape, DType::f64), y = Array::empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = static_cast<double>(static_cast<int>(engine()() % static_cast<unsigned>(high - low)) + low);
  naive().copy(x, y);
  return y;
}

}  // namespace

TEST_CASE("openmp operators of images in different layouts agree with naive") {
  const Shape shape = {2, 16, 40, 40};
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32}) {
    const Array first = is_floating(dtype) ? random(shape, dtype) : integers(shape, dtype);
    const Array last = ops::clone(first, MemoryFormat::channels_last);
    for (const Array& like : {first, last}) {
      compare(Array::empty_like(like), tolerance_of(dtype),
              [&](Backend& on, const Array& y) { on.binary(BinaryOp::sub, last, first, y); });
      compare(Array::empty_like(like, DType::boolean), 0,
              [&](Backend& on, const Array& y) { on.binary(BinaryOp::le, first, last, y); });
      if (!is_floating(dtype)) continue;
      compare(Array::empty_like(like), tolerance_of(dtype),
              [&](Backend& on, const Array& dx) { on.unary_backward(UnaryOp::silu, first, last, dx, {}); });
      compare(last, tolerance_of(dtype),  // in place
              [&](Backend& on, const Array& y) { on.binary(BinaryOp::mul, y, first, y); });
    }
  }
}

TEST_CASE("openmp unary ops agree with naive") {
  const UnaryArgs args{-0.5, 1.25};
  for (int i = 0; i < kUnaryOps; ++i) {
    const UnaryOp op = static_cast<UnaryOp>(i);
    for (DType dtype : kAllTypes) {
      if (needs_floating(op) && !is_floating(dtype)) {
        const Array x = integers({3}, dtype), y = Array::empty({3}, dtype);
        CHECK_THROWS_AS(openmp().unary(op, x, y, args), DTypeError);
        continue;
      }
      INFO(name(op) << " on type " << static_cast<int>(dtype));
      const Array x = is_floating(dtype) ? random({7, 5, 129}, dtype) : integers({7, 5, 129}, dtype);
      const DType result = is_predicate(op) ? DType::boolean : dtype;
      compare(Array::empty({7, 5, 129}, result), tolerance_of(dtype),
              [&](Backend& on, const Array& y) { on.unary(op, x, y, args); });
      const Array turned = x.transpose(0, 2).slice(1, 0, 5, 2);
      Array out = Array::empty({129, 3, 14}, result);
      naive().fill(out, 0);
      compare(out, tolerance_of(dtype),
              [&](Backend& on, const Array& y) { on.unary(op, turned, y.slice(2, 0, 14, 2), args); });
      if (is_predicate(op)) continue;
      compare(x, tolerance_of(dtype), [&](Backend& on, const Array& y) { on.unary(op, y, y, args); });
      if (!is_floating(dtype)) continue;
      const Array dy = random({7, 5, 129}, dtype);
      compare(dy, tolerance_of(dtype), [&](Backend& on, const Array& dx) { on.unary_backward(op, dx, x, dx, args); });
      compare(Array::empty({129, 3, 7}, dtype), tolerance_of(dtype), [&](Backend& on, const Array& dx) {
        on.unary_backward(op, dy.transpose(0, 2).slice(1, 0, 5, 2), turned, dx, args);
      });
    }
  }
}

TEST_CASE("openmp exponentials and relu handle the edges of the range") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const double values[] = {0,    -0.0,  1e-40, INFINITY, -INFINITY, NAN, 88.7, 88.73,  89,   -87.4,  -103.9, -104,
                             -150, -1e30, 1e30,  709.7,    709.8,     720, -708, -745.1, -746, 0.3465, -0.3466};
    constexpr int64_t count = std::size(values);
    Array wide = Array::empty({count}, DType::f64), x = Array::empty({count}, dtype);
    std::copy(std::begin(values), std::end(values), wide.data<double>());
    naive().copy(wide, x);
    for (UnaryOp op : {UnaryOp::exp, UnaryOp::relu, UnaryOp::sigmoid, UnaryOp::neg, UnaryOp::sqrt, UnaryOp::abs,
                       UnaryOp::square, UnaryOp::rsqrt, UnaryOp::reciprocal}) {
      Array expected = Array::empty({count}, dtype);
      naive().unary(op, x, expected, {});
      const Array right = dense(expected);
      const CpuIsa before = cpu_isa();
      for (CpuIsa isa : instruction_sets()) {
        set_cpu_isa(isa);
        const Array y = Array::empty({count}, dtype);
        openmp().unary(op, x, y, {});
        const Array got = dense(y);
        for (int64_t i = 0; i < count; ++i) {
          const double e = right.data<double>()[i], g = got.data<double>()[i];
          const double limit =
              (dtype == DType::f32 ? 3e-7 : 5e-16) * std::abs(e) + (dtype == DType::f32 ? 3e-45 : 1e-323);
          INFO(name(op) << '(' << dense(x).data<double>()[i] << ") = " << g << ", not " << e << " at " << name(isa));
          CHECK(((std::isnan(e) && std::isnan(g)) || e == g || std::abs(e - g) <= limit));
        }
      }
      set_cpu_isa(before);
    }
  }
}

TEST_CASE("openmp binary ops agree with naive") {
  for (int i = 0; i < kBinaryOps; ++i) {
    const BinaryOp op = static_cast<BinaryOp>(i);
    for (DType dtype : kAllTypes) {
      if (is_floating(dtype) ? needs_integral(op) : needs_floating(op)) continue;
      INFO(name(op) << " on type " << static_cast<int>(dtype));
      const Array a = integers({6, 4, 70}, dtype), b = integers({6, 4, 70}, dtype, 0, 4), row = integers({70}, dtype);
      const DType result = is_predicate(op) ? DType::boolean : dtype;
      const Array y = Array::empty({6, 4, 70}, result);
      compare(y, tolerance_of(dtype), [&](Backend& on, const Array& out) { on.binary(op, a, b, out); });
      compare(y, tolerance_of(dtype), [&](Backend& on, const Array& out) {
        on.binary(op, row.expand({6, 4, 70}), b, out);
      });
      compare(y, tolerance_of(dtype), [&](Backend& on, const Array& out) {
        on.binary(op, a, b.slice(2, 0, 1).expand({6, 4, 70}), out);
      });
      compare(Array::empty({70, 4, 6}, result), tolerance_of(dtype),
              [&](Backend& on, const Array& out) { on.binary(op, a.transpose(0, 2), b.transpose(0, 2), out); });
      compare(y, tolerance_of(dtype), [&](Backend& on, const Array& out) { on.binary_scalar(op, a, 2, false, out); });
      compare(y, tolerance_of(dtype), [&](Backend& on, const Array& out) { on.binary_scalar(op, b, 3, true, out); });
      if (!is_predicate(op))
        compare(a, tolerance_of(dtype), [&](Backend& on, const Array& out) { on.binary(op, out, b, out); });
    }
  }
}

TEST_CASE("openmp where, fill and copy agree with naive") {
  const Array condition = integers({5, 1, 33}, DType::boolean, 0, 2).expand({5, 4, 33});
  for (DType dtype : kAllTypes) {
    const Array a = integers({5, 4, 33}, dtype), b = integers({33}, dtype).expand({5, 4, 33});
    compare(a, 0, [&](Backend& on, const Array& y) { on.where(condition, a, b, y); });
    compare(a, 0, [&](Backend& on, const Array& y) { on.fill(y.slice(2, 0, 33, 3), 3); });
    for (DType to : kAllTypes) {
      const Array target = integers({33, 4, 5}, to);
      compare(target, 0, [&](Backend& on, const Array& y) { on.copy(a.transpose(0, 2), y); });
      compare(target, 0, [&](Backend& on, const Array& y) { on.copy(a, y.transpose(0, 2)); });
    }
    compare(Array::empty({0, 3}, dtype), 0, [&](Backend& on, const Array& y) { on.copy(y, y), on.fill(y, 1); });
  }
}

TEST_CASE("openmp reductions agree with naive") {
  const Shape shapes[] = {{}, {1000}, {300000}, {3, 70001}, {64, 120}, {70001, 3}, {5, 6, 7, 8}, {1, 9}, {600, 700}};
  for (const Shape& shape : shapes)
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::boolean})
      for (uint32_t axes = 0; axes < (1u << shape.size()); axes += 1) {
        if (numel_of(shape) > 10000 && dtype != DType::f32) continue;
        const Array x = is_floating(dtype) ? random(shape, dtype) : integers(shape, dtype);
        const Shape out = reduced_shape(shape, axes, true);
        for (ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min, ReduceOp::all, ReduceOp::any,
                            ReduceOp::prod}) {
          // Long products leave the range of their type.
          if (op == ReduceOp::prod && numel_of(shape) > 300) continue;
          if (op == ReduceOp::mean && !is_floating(dtype)) continue;  // core/ops requires a floating-point type
          const bool logical = op == ReduceOp::all || op == ReduceOp::any;
          const bool counts = (op == ReduceOp::sum || op == ReduceOp::prod) && !is_floating(dtype);
          const DType result = logical ? DType::boolean : counts ? DType::i64 : dtype;
          INFO("op " << static_cast<int>(op) << " shape " << to_string(shape) << " axes " << axes << " type "
                     << static_cast<int>(dtype));
          // Long sums of both signs may cancel to little more than their rounding errors.
          compare(Array::empty(out, result), tolerance_of(dtype) * (numel_of(shape) > 10000 ? 4 : 1),
                  [&](Backend& on, const Array& y) { on.reduce(op, x, axes, y); });
        }
      }
  const Array x = random({40, 30, 20});
  compare(Array::empty({30, 1, 20}), 1e-5,
          [&](Backend& on, const Array& y) { on.reduce(ReduceOp::sum, x.transpose(0, 1), 2, y); });
  compare(Array::empty({20, 1, 1}), 1e-5,
          [&](Backend& on, const Array& y) { on.reduce(ReduceOp::sum, x.transpose(0, 2), 6, y); });
  const Array nothing = Array::empty({4, 0, 3});
  compare(Array::empty({4, 1, 3}), 0, [&](Backend& on, const Array& y) { on.reduce(ReduceOp::sum, nothing, 2, y); });
  compare(Array::empty({4, 1, 3}), 0, [&](Backend& on, const Array& y) { on.reduce(ReduceOp::mean, nothing, 2, y); });
  compare(Array::empty({4, 1, 3}, DType::boolean), 0,
          [&](Backend& on, const Array& y) { on.reduce(ReduceOp::all, nothing, 2, y); });
  compare(Array::empty({1, 0, 3}), 0, [&](Backend& on, const Array& y) { on.reduce(ReduceOp::max, nothing, 1, y); });
  const Array near_one = random({3, 2500});  // long products that stay in range
  for (int64_t i = 0; i < near_one.numel(); ++i) near_one.data<float>()[i] = 1 + near_one.data<float>()[i] / 100;
  for (uint32_t axes : {1u, 2u, 3u})
    compare(Array::empty(reduced_shape({3, 2500}, axes, true)), 1e-5,
            [&](Backend& on, const Array& y) { on.reduce(ReduceOp::prod, near_one, axes, y); });
  Array with_nan = random({9, 1300});
  with_nan.data<float>()[5000] = NAN;
  for (ReduceOp op : {ReduceOp::max, ReduceOp::min})
    for (uint32_t axes : {1u, 2u, 3u})
      compare(Array::empty(reduced_shape({9, 1300}, axes, true)), 0,
              [&](Backend& on, const Array& y) { on.reduce(op, with_nan, axes, y); });
}

TEST_CASE("openmp argmax and argmin agree with naive") {
  for (DType dtype : kAllTypes)
    for (int axis = 0; axis < 3; ++axis)
      for (ArgReduceOp op : {ArgReduceOp::argmax, ArgReduceOp::argmin}) {
        Array x = integers({6, 1100, 5}, dtype);
        if (dtype == DType::f32) x.data<float>()[777] = x.data<float>()[7770] = NAN;
        Shape out = x.shape();
        out[axis] = 1;
        compare(Array::empty(out, DType::i64), 0,
                [&](Backend& on, const Array& y) { on.arg_reduce(op, x, axis, MutableView(), y); });
        compare(Array::empty(out, dtype), 0,
                [&](Backend& on, const Array& y) { on.arg_reduce(op, x, axis, y, Array::empty(out, DType::i64)); });
      }
}

TEST_CASE("openmp max pooling agrees with naive") {
  struct Case {
    int64_t N, C, H, W;
    Pool2dGeometry g;
  };
  const Case cases[] = {
      {3, 6, 28, 28, {{2, 2}, {2, 2}, {0, 0}, {1, 1}}}, {2, 5, 11, 37, {{3, 3}, {2, 2}, {1, 1}, {1, 1}}},
      {2, 4, 9, 70, {{3, 2}, {1, 1}, {0, 0}, {2, 1}}},  {1, 3, 40, 40, {{2, 3}, {3, 3}, {0, 0}, {1, 2}}},
      {1, 2, 5, 5, {{5, 5}, {5, 5}, {2, 2}, {1, 1}}},   {0, 2, 4, 4, {{2, 2}, {2, 2}, {0, 0}, {1, 1}}}};
  for (const Case& c : cases)
    for (DType dtype : kFloatTypes)
      for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        const auto size = [&](int axis, int64_t in) {
          return (in + 2 * c.g.padding[axis] - c.g.dilation[axis] * (c.g.kernel[axis] - 1) - 1) / c.g.stride[axis] + 1;
        };
        const Shape out = {c.N, c.C, size(0, c.H), size(1, c.W)};
        INFO("shape " << to_string(Shape{c.N, c.C, c.H, c.W}) << " type " << static_cast<int>(dtype) << " format "
                      << static_cast<int>(format));
        Array x = integers({c.N, c.C, c.H, c.W}, dtype);
        if (dtype == DType::f32 && x.numel()) x.data<float>()[3] = NAN;
        Array in = Array::empty(x.shape(), dtype, {}, format);
        naive().copy(x, in);
        const Array y = Array::empty(out, dtype, {}, format), index = Array::empty(out, DType::i32, {}, format);
        compare(y, 0,
                [&](Backend& on, const Array& result) { on.max_pool2d(in, result, Array::empty_like(index), c.g); });
        compare(index, 0,
                [&](Backend& on, const Array& result) { on.max_pool2d(in, Array::empty_like(y), result, c.g); });
        naive().max_pool2d(in, y, index, c.g);
        const Array dy = random(out, dtype, format);
        compare(in, tolerance_of(dtype),
                [&](Backend& on, const Array& dx) { on.max_pool2d_backward(dy, index, dx, c.g); });
      }
}

TEST_CASE("openmp softmax and cross-entropy agree with naive") {
  for (DType dtype : kFloatTypes) {
    const double allowed = tolerance_of(dtype) * 2;
    for (const Shape& shape : {Shape{}, Shape{64, 10}, Shape{3, 1000}, Shape{4, 7, 9}, Shape{2, 0}, Shape{0, 3}})
      for (int axis = 0; axis < std::max(1, shape.size()); ++axis)
        for (bool log : {false, true}) {
          const SoftmaxKind kind = log ? SoftmaxKind::log_softmax : SoftmaxKind::softmax;
          const Array x = random(shape, dtype), dy = random(shape, dtype), y = Array::empty(shape, dtype);
          INFO("shape " << to_string(shape) << " axis " << axis << " log " << log << " type "
                        << static_cast<int>(dtype));
          compare(y, allowed, [&](Backend& on, const Array& out) { on.softmax(x, axis, kind, out); });
          naive().softmax(x, axis, kind, y);
          compare(y, allowed * 4, [&](Backend& on, const Array& out) { on.softmax_backward(dy, y, axis, log, out); });
        }
    const Array x = random({50, 10}, dtype), target = integers({50}, DType::i64, 0, 10);
    for (Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum})
      for (int64_t ignored : {int64_t{-100}, int64_t{3}}) {
        const Array log_probabilities = Array::empty_like(x), weight = Array::empty({}, dtype);
        const Array loss = Array::empty(reduction == Reduction::none ? Shape{50} : Shape{}, dtype);
        const auto forward = [&](Backend& on, const Array& l, const Array& p, const Array& w) {
          on.cross_entropy({.x = x,
                            .target = target,
                            .ignore_index = ignored,
                            .reduction = reduction,
                            .log_probabilities = p,
                            .loss = l,
                            .weight_sum = w});
        };
        compare(loss, allowed, [&](Backend& on, const Array& out) { forward(on, out, log_probabilities, weight); });
        compare(x, allowed, [&](Backend& on, const Array& out) { forward(on, loss, out, weight); });
        compare(weight, 0, [&](Backend& on, const Array& out) { forward(on, loss, log_probabilities, out); });
        forward(naive(), loss, log_probabilities, weight);
        const Array dloss = random(loss.shape(), dtype);
        compare(x, allowed, [&](Backend& on, const Array& out) {
          on.cross_entropy_backward({.dloss = dloss,
                                     .log_probabilities = log_probabilities,
                                     .target = target,
                                     .ignore_index = ignored,
                                     .reduction = reduction,
                                     .weight_sum = weight,
                                     .dx = out});
        });
        compare(Array::empty({50}, dtype), 0, [&](Backend& on, const Array& out) { on.pick(x, target, ignored, out); });
        const Array dy = random({50}, dtype);
        compare(x, 0, [&](Backend& on, const Array& out) { on.pick_backward(dy, target, ignored, out); });
      }
  }
  Array target = Array::empty({2}, DType::i64);
  target.data<int64_t>()[0] = 1, target.data<int64_t>()[1] = 10;
  const Array x = random({2, 10}), y = Array::empty({2});
  CHECK_THROWS_WITH(openmp().pick(x, target, -100, y), contains("target 10 of row 1") && contains("10 classes"));
  CHECK_THROWS_AS(openmp().pick_backward(y, target, -100, x), IndexError);
  const Array p = Array::empty_like(x), loss = Array::empty({}), weight = Array::empty({});
  const CrossEntropyArgs args{.x = x, .target = target, .log_probabilities = p, .loss = loss, .weight_sum = weight};
  CHECK_THROWS_AS(openmp().cross_entropy(args), IndexError);
}

TEST_CASE("openmp random numbers are naive's, bit for bit") {
  const RandomState state{42, 7, nullptr};
  for (const Shape& shape : {Shape{100003}, Shape{16389}, Shape{517}, Shape{3, 5, 7}, Shape{}, Shape{0}}) {
    for (DType dtype : kFloatTypes) {
      compare(Array::empty(shape, dtype), 0, [&](Backend& on, const Array& y) { on.uniform(y, state, -1, 2); });
      // An interval so narrow that some numbers would be rounded up to its end.
      compare(Array::empty(shape, dtype), 0, [&](Backend& on, const Array& y) { on.uniform(y, state, 1, 1 + 1e-6); });
      compare(Array::empty(shape, dtype), 0, [&](Backend& on, const Array& y) { on.normal(y, state, 1, 3); });
      const Array x = random(shape, dtype);
      for (double p : {0.0, 0.3, 1.0}) {
        compare(x, 0,
                [&](Backend& on, const Array& y) { on.dropout(x, p, state, Array::empty(shape, DType::boolean), y); });
        compare(Array::empty(shape, DType::boolean), 0,
                [&](Backend& on, const Array& mask) { on.dropout(x, p, state, mask, Array::empty_like(x)); });
        const Array mask = integers(shape, DType::boolean, 0, 2);
        compare(x, 0, [&](Backend& on, const Array& dx) { on.dropout_backward(x, mask, p, dx); });
      }
    }
    compare(Array::empty(shape, DType::i64), 0, [&](Backend& on, const Array& y) { on.randint(y, state, -5, 1000); });
    compare(Array::empty(shape, DType::u8), 0, [&](Backend& on, const Array& y) { on.bernoulli(y, state, 0.4); });
  }
  compare(Array::empty({50, 60}), 0, [&](Backend& on, const Array& y) { on.normal(y.transpose(0, 1), state, 0, 1); });
  compare(Array::empty({1000}, DType::i64), 0, [&](Backend& on, const Array& y) { on.randperm(y, state); });
}

TEST_CASE("openmp writes nothing beside a result that is part of a larger array") {
  using Call = std::function<void(Backend & on, const Array& x, const Array& y)>;
  const RandomState state{42, 7, nullptr};
  const std::pair<const char*, Call> calls[] = {
      {"fill", [](Backend& on, const Array&, const Array& y) { on.fill(y, 2); }},
      {"copy", [](Backend& on, const Array& x, const Array& y) { on.copy(x, y); }},
      {"arange", [](Backend& on, const Array&, const Array& y) { on.arange(y, 1, 2); }},
      {"exp", [](Backend& on, const Array& x, const Array& y) { on.unary(UnaryOp::exp, x, y, {}); }},
      {"mul", [](Backend& on, const Array& x, const Array& y) { on.binary(BinaryOp::mul, x, x, y); }},
      {"add", [](Backend& on, const Array& x, const Array& y) { on.binary_scalar(BinaryOp::add, x, 3, false, y); }},
      {"softmax", [](Backend& on, const Array& x, const Array& y) { on.softmax(x, 0, SoftmaxKind::softmax, y); }},
      {"cumsum", [](Backend& on, const Array& x, const Array& y) { on.scan(ScanOp::sum, x, 0, false, y); }},
      {"uniform", [&](Backend& on, const Array&, const Array& y) { on.uniform(y, state, -1, 2); }},
      {"normal", [&](Backend& on, const Array&, const Array& y) { on.normal(y, state, 1, 3); }},
      {"dropout", [&](Backend& on, const Array& x,
                      const Array& y) { on.dropout(x, 0.3, state, Array::empty(x.shape(), DType::boolean), y); }},
  };
  for (const DType dtype : kFloatTypes)
    for (const int64_t count : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 511, 513}) {
      const Array x = random({count}, dtype), whole = Array::empty({count + 40}, dtype);
      naive().fill(whole, 7);
      for (const auto& [name, call] : calls) {
        CAPTURE(name, count, gradus::name(dtype));
        compare(whole, tolerance_of(dtype),
                [&, call = call](Backend& on, const Array& y) { call(on, x, y.slice(0, 3, 3 + count)); });
      }
    }
}

TEST_CASE("openmp optimizer steps agree with naive") {
  const Shape shape = {37, 900};  // chunks, blocks within them, and a remainder
  // Uniform numbers in [low, high).
  const auto between = [&](double low, double high, DType dtype) {
    Array x = Array::empty(shape, dtype);
    naive().uniform(x, {engine()(), 0}, low, high);
    return x;
  };
  for (DType dtype : kFloatTypes)
    for (int variant = 0; variant < 4; ++variant) {
      Array block = Array::empty({StepBlock::size}, DType::f64);
      double* values = block.data<double>();
      values[0] = variant == 1 ? 1 : 40, values[1] = 0.1, values[2] = 0.5, values[3] = variant == 3, values[4] = 0.3;
      const bool turned = variant == 2;  // memory order differs from logical order
      const auto view = [&](const Array& x) { return turned ? x.transpose(0, 1) : x; };
      rules::Common common;
      common.weight_decay = variant ? 0.01 : 0, common.decoupled = variant == 1, common.maximize = variant == 2;
      Array parts[1 + kMaxOptimizerStates] = {random(shape, dtype)};
      for (int k = 0; k < kMaxOptimizerStates; ++k) parts[1 + k] = between(kStateLow[k], kStateHigh[k], dtype);
      const Array g = random(shape, dtype);
      for (const NamedRule& named : optimizer_rules(common))
        for (int which = 0; which <= kMaxOptimizerStates; ++which) {  // selects the array that is compared
          if (which > 0 && !named.uses(which - 1)) continue;
          INFO(named.name << " variant " << variant << " type " << static_cast<int>(dtype) << " array " << which);
          compare(parts[which], tolerance_of(dtype), [&](Backend& on, const Array& out) {
            ParameterViews views[2];
            const auto part = [&](int i) {
              if (i == which) return out;
              Array copy = Array::empty_like(parts[i]);
              naive().copy(parts[i], copy);
              return copy;
            };
            const Array parameter = part(0);
            Array states[kMaxOptimizerStates];
            views[0].parameter = view(parameter), views[0].gradient = view(g);
            views[1].parameter = parameter.slice(0, 0, 0), views[1].gradient = g.slice(0, 0, 0);
            for (int k = 0; k < kMaxOptimizerStates; ++k) {
              if (!named.uses(k)) continue;
              states[k] = part(1 + k);
              views[0].states[k] = view(states[k]), views[1].states[k] = states[k].slice(0, 0, 0);
            }
            on.optimizer_step(views, block, named.rule);
          });
        }
    }
}

TEST_CASE("openmp grayscale agrees with naive") {
  for (DType dtype : kFloatTypes)
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      const Array x = random({4, 3, 19, 23}, dtype, format);
      compare(Array::empty({4, 1, 19, 23}, dtype), tolerance_of(dtype),
              [&](Backend& on, const Array& y) { on.rgb_to_grayscale(x, y); });
    }
}
