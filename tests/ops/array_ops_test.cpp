// Operators on arrays (core/ops), called without the checks and the choice of arguments of the operators on tensors.
#include <cmath>

#include <gradus/autograd/autograd.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/ops/nn/nn.h>
#include <gradus/core/ops/ops.h>
#include <gradus/graph/recorder.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

namespace array_ops_test {

using namespace gradus;
using op_testing::on_each_cpu_backend;
using test::contains;

Array numbers(const Shape& shape, DType dtype = DType::f32) {
  return (arange(0, numel_of(shape), kDouble) * 0.7).sin().reshape(shape).to(dtype).array();
}

bool equal(const Array& a, const Array& b) { return Tensor(a).equal(Tensor(b)); }

/// Returns copies of x of every dense layout and with gaps.
std::vector<Array> in_all_layouts(const Array& x) {
  std::vector<Array> copies = {x, ops::clone(x, MemoryFormat::channels_last)};
  copies.push_back(ops::clone(x.transpose(2, 3), MemoryFormat::contiguous).transpose(2, 3));
  for (const int64_t axis : {1, 2, 3}) copies.push_back(ops::cat({x, x}, axis).slice(axis, 0, x.size(axis)));
  return copies;
}

TEST_CASE("joining needs an array, and empty vectors join anything") {
  CHECK_THROWS_WITH(ops::cat({}, 0), contains("at least one"));
  const Array none = Array::empty({0}, DType::i64), x = numbers({2, 3});
  CHECK(ops::cat({none}, 0).shape() == Shape({0}));
  CHECK(ops::cat({none, none}, 5).shape() == Shape({0}));
  CHECK(ops::cat({none, Array::empty({0}, DType::f64)}, 0).dtype() == DType::f64);
  CHECK(equal(ops::cat({none, x}, 1), x));
  CHECK(equal(ops::cat({x, none}, 1), x));
}

TEST_CASE("an index along a dimension is a vector or a scalar") {
  const Array into = numbers({4}), source = numbers({4});
  const Array matrix = ops::zeros({2, 2}, DType::i64, Device());
  CHECK_THROWS_WITH(ops::index_into(into, 0, matrix, source, false), contains("must be a vector, got shape (2, 2)"));
  ops::index_into(into, 0, ops::full({}, 3, DType::i64, Device()), ops::full({}, 7, DType::f32, Device()), false);
  CHECK(into.data<float>()[3] == 7);
}

TEST_CASE("ranges of integers are counted exactly, and those with a fraction by their quotient") {
  const int64_t large = int64_t{1} << 53;  // from here on, doubles are even
  const auto count = [](const Scalar& start, const Scalar& end, const Scalar& step, DType dtype) {
    return ops::arange(start, end, step, dtype, Device()).numel();
  };
  for (const DType dtype : {DType::i64, DType::i32, DType::u8}) {
    CAPTURE(name(dtype));
    CHECK(count(large, large + 3, int64_t{1}, dtype) == 3);
    CHECK(count(int64_t{0}, int64_t{7}, int64_t{3}, dtype) == 3);
    CHECK(count(int64_t{0}, int64_t{6}, int64_t{3}, dtype) == 2);
    CHECK(count(int64_t{5}, int64_t{5}, int64_t{1}, dtype) == 0);
    CHECK(count(int64_t{9}, int64_t{0}, int64_t{-4}, dtype) == 3);
  }
  for (const DType dtype : {DType::i32, DType::f32}) {
    CHECK(count(-0.5, int64_t{4}, int64_t{2}, dtype) == 3);
    CHECK(count(int64_t{0}, 4.5, int64_t{2}, dtype) == 3);
    CHECK(count(int64_t{0}, int64_t{3}, 1.5, dtype) == 2);
  }
  // From 2^62 elements on, the count is refused; below, there is only too little memory.
  const auto too_many = test::contains("has too many elements");
  const int64_t most = int64_t{1} << 62;
  CHECK_THROWS_WITH(count(int64_t{0}, most, int64_t{1}, DType::i64), too_many);
  CHECK_THROWS_WITH(count(int64_t{0}, most - 1, int64_t{1}, DType::i64), !too_many);
  CHECK_THROWS_WITH(count(0.0, 0x1p62, 1.0, DType::f64), too_many);
  CHECK_THROWS_WITH(count(0.0, std::nextafter(0x1p62, 0.0), 1.0, DType::f64), !too_many);
}

TEST_CASE("softplus and mish are straight above their thresholds, not at them") {
  on_each_cpu_backend([] {
    const Tensor x = tensor({1.0, 1.0 + 1e-9, 20.0, 20.5}, dtype(kDouble).requires_grad(true));
    const Tensor y = softplus(x, 1, 1);
    CHECK(test::values(y.array())[0] == Approx(std::log1p(std::exp(1.0))).epsilon(1e-12));
    CHECK(test::values(y.array())[1] == 1 + 1e-9);
    const std::vector<double> dx = test::values(autograd::grad({y.sum()}, {x})[0].array());
    CHECK(dx[0] == Approx(1 / (1 + std::exp(-1.0))).epsilon(1e-12));
    CHECK(dx[1] == 1);
    const Tensor z = softplus(x, 2, 2);
    CHECK(test::values(z.array())[0] == Approx(std::log1p(std::exp(2.0)) / 2).epsilon(1e-12));
    CHECK(test::values(z.array())[1] == 1 + 1e-9);
    const Tensor m = mish(x);
    CHECK(test::values(m.array())[3] == 20.5);
    const std::vector<double> slopes = test::values(autograd::grad({m.sum()}, {x})[0].array());
    CHECK(slopes[2] > 1);  // 1 + 80 exp(-40) is the next double or the second next
    CHECK(slopes[3] == 1);
  });
}

TEST_CASE("norms make the same calls for all values while a step is recorded") {
  const auto calls = [](double value, bool deviation) {
    const Tensor x = full({3, 2}, value) * tensor({1.0F, 2.0F});
    graph::Recorder recorder;
    const Tensor y = deviation ? x.std(1) : x.norm(2, 1);
    return recorder.size();
  };
  for (const bool deviation : {false, true}) {
    CHECK(calls(1e-30, deviation) == calls(1, deviation));
    CHECK(calls(1e30, deviation) == calls(1, deviation));
  }
  CHECK((full({3, 2}, 1e-30).norm(2, 1) > 0).all().item<bool>());  // without a recorder they are scaled
}

TEST_CASE("normalisation of a single element, and of none, has gradients") {
  on_each_cpu_backend([] {
    for (const int64_t rows : {1, 0}) {
      const Tensor x = full({rows, 1}, 3.0, dtype(kDouble).requires_grad(true));
      const Tensor weight = full({1}, 2.0, dtype(kDouble).requires_grad(true));
      const Tensor bias = full({1}, 0.5, dtype(kDouble).requires_grad(true));
      const Tensor y = batch_norm(x, full({1}, 1.0, kDouble), full({1}, 4.0, kDouble), weight, bias, false, 0.1, 0);
      const TensorList gradients = autograd::grad({y.sum()}, {x, weight, bias});
      CHECK(y.equal(full({rows, 1}, 2.5, kDouble)));  // (3 - 1) / 2 * 2 + 0.5
      CHECK(gradients[0].equal(full({rows, 1}, 1.0, kDouble)));
      CHECK(gradients[1].equal(full({1}, rows == 1 ? 1.0 : 0.0, kDouble)));
      CHECK(gradients[2].equal(full({1}, static_cast<double>(rows), kDouble)));
    }
  });
}

TEST_CASE("normalisation takes its input, residual and gradient in different layouts") {
  on_each_cpu_backend([] {
    const Shape shape = {2, 3, 4, 5};
    const Array x = numbers(shape), residual = ops::unary(UnaryOp::cos, x), dy = ops::unary(UnaryOp::sin, residual);
    const Array weight = numbers({1, 3, 1, 1}), bias = ops::unary(UnaryOp::cos, weight);
    const auto run = [&](const Array& x, const Array& residual, const Array& dy) {
      const ops::Normalized result = ops::normalize(x, 0b1101, weight, bias, 1e-5, {}, {}, true, residual, {});
      ops::NormalizeRelu relu;
      relu.y = result.y, relu.bias = bias, relu.want_dresidual = true;
      const auto gradients = ops::normalize_backward(dy, x, result.mean, result.variance, 0b1101, weight, {1, 3, 1, 1},
                                                     1e-5, false, true, true, true, relu);
      return TensorList{Tensor(result.y), Tensor(gradients.dx), Tensor(gradients.dweight), Tensor(gradients.dbias),
                        Tensor(gradients.dresidual)};
    };
    const TensorList wanted = run(x, residual, dy);
    for (const Array& of_x : in_all_layouts(x))
      for (const Array& of_residual : in_all_layouts(residual)) {
        const TensorList found = run(of_x, of_residual, in_all_layouts(dy)[of_residual.is_contiguous() ? 1 : 0]);
        for (size_t i = 0; i < wanted.size(); ++i) CHECK(found[i].allclose(wanted[i], 1e-4, 1e-5));
      }
    for (const Array& of_dy : in_all_layouts(dy))
      for (size_t i = 0; i < wanted.size(); ++i) CHECK(run(x, residual, of_dy)[i].allclose(wanted[i], 1e-4, 1e-5));
  });
}

TEST_CASE("gradients of a recurrent sequence have the shapes of what they belong to") {
  const auto random = [](const Shape& shape) {
    return randn(std::vector<int64_t>(shape.begin(), shape.end())).array();
  };
  const Array x = random({5, 2, 3}), h0 = random({2, 4}), c0 = random({2, 4}), none;
  for (const RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru}) {
    const int64_t rows = cell == RecurrentCell::lstm ? 16 : 12;
    const Array w_ih = random({rows, 3}), w_hh = random({rows, 4}), b_ih = random({rows}), b_hh = random({rows});
    const ops::RecurrentWeights weights{w_ih, w_hh, b_ih, b_hh, none};
    const ops::RecurrentStates states = ops::recurrent(cell, x, h0, c0, weights, false);
    const ops::RecurrentGradients g =
        ops::recurrent_backward(cell, random({5, 2, 4}), none, x, h0, c0, weights, states, false, true);
    CHECK(g.dx.shape() == x.shape());
    CHECK(g.dh0.shape() == h0.shape());
    CHECK(g.dc0.shape() == c0.shape());
    CHECK(g.dw_ih.shape() == w_ih.shape());
    CHECK(g.dw_hh.shape() == w_hh.shape());
    CHECK(g.db_ih.shape() == b_ih.shape());
    CHECK(g.db_hh.shape() == b_hh.shape());
  }
}

TEST_CASE("steps of optimizers take gradients and parameters of every layout and of half types") {
  on_each_cpu_backend([] {
    const Array block = ops::step_block(0.5, Device()), gradient = numbers({2, 3, 4, 5});
    for (const Array& of_gradient : in_all_layouts(gradient))
      for (const Array& parameter : in_all_layouts(ops::full({2, 3, 4, 5}, 1, DType::f32, Device()))) {
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
          const Array before = ops::clone(parameter), given = ops::cast(of_gradient, dtype);
          const uint32_t version = parameter.version();
          const ops::OptimizerEntry entry{parameter, given, {}, {}};
          ops::optimizer_step({&entry, 1}, block, {rules::Sgd()});
          const Tensor wanted = Tensor(before) - Tensor(ops::cast(given, DType::f32)) * 0.5;
          CHECK(Tensor(parameter).allclose(wanted, 1e-6, 1e-6));
          CHECK(parameter.version() > version);
        }
      }
    const Array wide = ops::full({2}, 1, DType::f64, Device()), half = ops::full({2}, 1, DType::f16, Device());
    const auto step = [&](const Array& parameter, const Array& gradient, const Array& half) {
      const ops::OptimizerEntry entry{parameter, gradient, {}, half};
      ops::optimizer_step({&entry, 1}, block, {rules::Sgd()});
    };
    const Array single = ops::full({2}, 1, DType::f32, Device());
    CHECK_THROWS_WITH(step(wide, half, {}), contains("the gradient is float16, its parameter float64"));
    CHECK_THROWS_WITH(step(single, wide, {}), contains("the gradient is float64, its parameter float32"));
    CHECK_THROWS_WITH(step(single, numbers({3}), {}), contains("the gradient has shape (3,), its parameter (2,)"));
    CHECK_THROWS_WITH(step(single, single, numbers({3}, DType::f16)), contains("the half copy of shape (3,)"));
    step(single, numbers({2}), half);
    CHECK(equal(ops::cast(single, DType::f16), half));
  });
  const std::vector<double> entries = test::values(ops::step_block(0.5, Device()));
  for (int i = 0; i < StepBlock::size; ++i) {
    const bool is_one = i == StepBlock::gradient_scale || i == StepBlock::momentum_product;
    CHECK(entries[static_cast<size_t>(i)] == (is_one ? 1 : i == StepBlock::learning_rate ? 0.5 : 0));
  }
  CHECK_THROWS_WITH(ops::advance_step(numbers({3}, DType::f64)), contains("a step block is float64 of shape"));
  CHECK_THROWS_WITH(ops::update_scale(numbers({3}, DType::f32), {}), contains("a scale block is float64 of shape"));
}

TEST_CASE("gradients are unscaled and searched for infinities, or only searched") {
  on_each_cpu_backend([] {
    const auto scalar = [](double value) { return ops::full({}, value, DType::f64, Device()); };
    for (const bool scales : {true, false})
      for (const double last : {1.0, double{INFINITY}, double{NAN}}) {
        const Array first = ops::full({2}, 4, DType::f32, Device()),
                    second = ops::full({3}, last, DType::f32, Device());
        const Array found = scalar(0), gradients[] = {first, second};
        ops::unscale(gradients, scales ? scalar(0.25) : Array(), found);
        CHECK(ops::item(found).to_double() == (std::isfinite(last) ? 0 : 1));
        CHECK(first.data<float>()[1] == (scales ? 1 : 4));
        CHECK(first.version() == (scales ? 1u : 0u));
      }
    const Array found = scalar(0);
    ops::unscale({}, scalar(0.25), found);
    CHECK(ops::item(found).to_double() == 0);
    CHECK(found.version() == 0);
    CHECK_THROWS_AS(ops::unscale(std::array{Array::empty({1}, DType::i64)}, scalar(1), found), DTypeError);
  });
}

TEST_CASE("pooling has as many windows as fit, or as begin in the image") {
  for (int64_t size = 1; size <= 9; ++size)
    for (int64_t kernel = 1; kernel <= 4; ++kernel)
      for (int64_t stride = 1; stride <= 5; ++stride)
        for (int64_t padding = 0; padding <= kernel / 2; ++padding)
          for (int64_t dilation = 1; dilation <= 3; ++dilation) {
            const int64_t reach = dilation * (kernel - 1) + 1, padded = size + 2 * padding;
            const Pool2dGeometry rows{{kernel, 1}, {stride, 1}, {padding, 0}, {dilation, 1}};
            const Pool2dGeometry columns{{1, kernel}, {1, stride}, {0, padding}, {1, dilation}};
            if (padded < reach) {
              CHECK_THROWS_AS(ops::pool2d_shape({2, 3, size, 7}, rows, false), ShapeError);
              CHECK_THROWS_AS(ops::pool2d_shape({2, 3, 7, size}, columns, false), ShapeError);
              continue;
            }
            int64_t inside = 0,
                    begun = 0;  // windows that fit; all windows up to the first that ends beyond the padding
            while (inside * stride + reach <= padded) ++inside;
            for (begun = inside; (begun - 1) * stride + reach < padded && begun * stride < size + padding;) ++begun;
            CHECK(ops::pool2d_shape({2, 3, size, 7}, rows, false) == Shape{2, 3, inside, 7});
            CHECK(ops::pool2d_shape({2, 3, 7, size}, columns, false) == Shape{2, 3, 7, inside});
            CHECK(ops::pool2d_shape({2, 3, size, 7}, rows, true) == Shape{2, 3, begun, 7});
            CHECK(ops::pool2d_shape({2, 3, 7, size}, columns, true) == Shape{2, 3, 7, begun});
          }
  const auto one = [](int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    return Pool2dGeometry{{1, kernel}, {1, stride}, {0, padding}, {1, dilation}};
  };
  const int64_t most = INT32_MAX;
  CHECK(ops::pool2d_shape({1, 1, 1, most}, one(most, most, 0, 1), false) == Shape{1, 1, 1, 1});
  CHECK(ops::pool2d_shape({1, 1, 1, most - 2}, one(2, 1, 1, most - 1), false) == Shape{1, 1, 1, 1});
  CHECK_THROWS_AS(ops::pool2d_shape({1, 1, 1, most - 1}, one(2, 1, 1, 1), false), ShapeError);
  CHECK_THROWS_AS(ops::pool2d_shape({1, 1, 1, most + 1}, one(1, 1, 0, 1), false), ShapeError);
  for (const Pool2dGeometry& g :
       {one(most + 1, 1, 0, 1), one(1, most + 1, 0, 1), one(1, 1, 0, most + 1), one(0, 1, 0, 1), one(1, 0, 0, 1),
        one(1, 1, 0, 0), one(1, 1, -1, 1), one(1, 1, 1, 1), one(3, 1, 2, 1)})
    CHECK_THROWS_AS(ops::pool2d_shape({1, 1, 9, 9}, g, false), ValueError);
}

}  // namespace array_ops_test
