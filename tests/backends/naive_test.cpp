// The reference backend: naive compared with results computed by hand or by definition.
#include <algorithm>
#include <cmath>

#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/tests/backends/openmp_compare.h>
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

using Values = std::vector<double>;
const double kNaN = std::nan(""), kInf = INFINITY;

double dot(const Array& a, const Array& b) {
  const Values x = values(a), y = values(b);
  REQUIRE(x.size() == y.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

bool same(const Array& x, const Values& expected) { return error(values(x), expected) <= tolerance_of(DType::f64); }

}  // namespace

TEST_CASE("naive copies between dtypes: truncation, saturation through int64, truth") {
  const Array x = array_of({5}, {-2.75, 0.25, 3.5, kNaN, 1e30});
  const Array as_long = Array::empty({5}, DType::i64), as_bool = Array::empty({5}, DType::boolean);
  naive().copy(x, as_long);
  CHECK(as_long.data<int64_t>()[0] == -2);
  CHECK(as_long.data<int64_t>()[1] == 0);
  CHECK(as_long.data<int64_t>()[2] == 3);
  CHECK(as_long.data<int64_t>()[3] == 0);
  CHECK(as_long.data<int64_t>()[4] == INT64_MAX);
  naive().copy(x, as_bool);
  CHECK(values(as_bool) == Values{1, 1, 1, 1, 1});
  const Array bytes = Array::empty({2}, DType::u8);
  naive().copy(array_of({2}, {-1, 258}), bytes);
  CHECK(values(bytes) == Values{255, 2});
}

TEST_CASE("naive element-wise formulas at their special points") {
  auto unary = [](UnaryOp op, const Values& in, UnaryArgs args = {}) {
    const int64_t n = static_cast<int64_t>(in.size());
    const Array y = Array::empty({n}, is_predicate(op) ? DType::boolean : DType::f64);
    naive().unary(op, array_of({n}, in), y, args);
    return values(y);
  };
  CHECK(error(unary(UnaryOp::relu, {-1, 0, 2, kNaN}), {0, 0, 2, kNaN}) == 0);
  CHECK(error(unary(UnaryOp::sigmoid, {0, kInf, -kInf, -1000}), {0.5, 1, 0, 0}) == 0);
  CHECK(error(unary(UnaryOp::clamp, {-5, 0.5, 5, kNaN}, {-1, 1}), {-1, 0.5, 1, kNaN}) == 0);
  CHECK(error(unary(UnaryOp::log, {0, -1, 1}), {-kInf, kNaN, 0}) == 0);
  CHECK(error(unary(UnaryOp::sqrt, {4, -1, 0}), {2, kNaN, 0}) == 0);
  CHECK(unary(UnaryOp::isfinite, {0, kInf, -kInf, kNaN}) == Values{1, 0, 0, 0});
  CHECK(unary(UnaryOp::logical_not, {0, 2, kNaN}) == Values{1, 0, 0});

  auto binary = [](BinaryOp op, const Values& a, const Values& b, DType dtype = DType::f64) {
    const int64_t n = static_cast<int64_t>(a.size());
    const Array y = Array::empty({n}, is_predicate(op) ? DType::boolean : dtype);
    naive().binary(op, array_of({n}, a, dtype), array_of({n}, b, dtype), y);
    return values(y);
  };
  CHECK(error(binary(BinaryOp::maximum, {1, kNaN, 2}, {3, 1, kNaN}), {3, kNaN, kNaN}) == 0);
  CHECK(error(binary(BinaryOp::pow, {2, -2, -2, 0}, {10, 3, 0.5, 0}), {1024, -8, kNaN, 1}) == 0);
  CHECK(binary(BinaryOp::pow, {2, -3, 2, -1}, {10, 3, -1, -3}, DType::i64) == Values{1024, -27, 0, -1});
  CHECK(binary(BinaryOp::eq, {1, kNaN, kInf}, {1, kNaN, kInf}) == Values{1, 0, 1});
  CHECK(binary(BinaryOp::ne, {1, kNaN, 0}, {1, kNaN, -0.0}) == Values{0, 1, 0});

  const Array half = Array::empty({2}, DType::f16);
  naive().binary_scalar(BinaryOp::sub, array_of({2}, {0.5, 2}, DType::f16), 1, /*scalar_first=*/true, half);
  CHECK(values(half) == Values{0.5, -1});
}

TEST_CASE("naive ops that are not defined for integers name the type") {
  const Array x = array_of({2}, {1, 2}, DType::i64);
  CHECK_THROWS_AS(naive().unary(UnaryOp::exp, x, x, {}), DTypeError);
  CHECK_THROWS_WITH(naive().unary(UnaryOp::exp, x, x, {}), contains("int64"));
  CHECK_THROWS_AS(naive().unary_backward(UnaryOp::isfinite, x, x, x, {}), AutogradError);
  const Array b = array_of({1, 1}, {1}, DType::boolean);
  CHECK_THROWS_AS(naive().matmul(b, b, b, false), DTypeError);
}

TEST_CASE("naive reduces over any axes, empty ones included") {
  const Array x = array_of({2, 3}, {1, 2, 3, 4, 5, 6});
  auto reduce = [](ReduceOp op, const Array& in, uint32_t axes, const Shape& shape, DType dtype = DType::f64) {
    const Array y = Array::empty(shape, dtype);
    naive().reduce(op, in, axes, y);
    return values(y);
  };
  CHECK(reduce(ReduceOp::sum, x, 0b01, {1, 3}) == Values{5, 7, 9});
  CHECK(reduce(ReduceOp::sum, x, 0b10, {2, 1}) == Values{6, 15});
  CHECK(reduce(ReduceOp::mean, x, 0b11, {1, 1}) == Values{3.5});
  CHECK(reduce(ReduceOp::max, x.transpose(0, 1), 0b01, {1, 2}) == Values{3, 6});
  CHECK(reduce(ReduceOp::min, x, 0b00, {2, 3}) == values(x));
  CHECK(reduce(ReduceOp::sum, Array::empty({0, 2}, DType::f64), 0b01, {1, 2}) == Values{0, 0});
  CHECK(std::isnan(reduce(ReduceOp::mean, Array::empty({0}, DType::f64), 1, {1})[0]));
  CHECK(reduce(ReduceOp::all, Array::empty({0}, DType::boolean), 1, {1}, DType::boolean) == Values{1});
  CHECK(reduce(ReduceOp::any, Array::empty({0}, DType::boolean), 1, {1}, DType::boolean) == Values{0});
  CHECK(reduce(ReduceOp::sum, array_of({3}, {1, 1, 0}, DType::boolean), 1, {1}, DType::i64) == Values{2});
  CHECK(std::isnan(reduce(ReduceOp::max, array_of({3}, {1, kNaN, 3}), 1, {1})[0]));
  // int64 sums are not accumulated in double.
  const Array large = array_of({2}, {0, 1}, DType::i64);
  large.data<int64_t>()[0] = int64_t{1} << 60;
  const Array total = Array::empty({1}, DType::i64);
  naive().reduce(ReduceOp::sum, large, 1, total);
  CHECK(total.data<int64_t>()[0] == (int64_t{1} << 60) + 1);
}

TEST_CASE("naive arg reductions: the first of equals, NaN is extreme") {
  auto arg = [](ArgReduceOp op, const Values& in) {
    const Array x = array_of({static_cast<int64_t>(in.size())}, in);
    const Array best = Array::empty({1}, DType::f64), index = Array::empty({1}, DType::i64);
    naive().arg_reduce(op, x, 0, best, index);
    return std::pair(values(best)[0], values(index)[0]);
  };
  CHECK(arg(ArgReduceOp::argmax, {1, 3, 3, 2}) == std::pair(3.0, 1.0));
  CHECK(arg(ArgReduceOp::argmin, {1, 0, 3, 0}) == std::pair(0.0, 1.0));
  CHECK(arg(ArgReduceOp::argmax, {1, kNaN, 3, kNaN}).second == 1);
  CHECK(arg(ArgReduceOp::argmin, {kNaN, 0}).second == 0);
  CHECK(arg(ArgReduceOp::argmax, {-kInf, -kInf}).second == 0);
}

TEST_CASE("naive matmul multiplies strided batches and accumulates") {
  const Array a = array_of({2, 3}, {1, 2, 3, 4, 5, 6}), y = array_of({2, 2}, {0, 0, 0, 0});
  naive().matmul(a, a.transpose(0, 1), y, false);
  CHECK(values(y) == Values{14, 32, 32, 77});
  naive().matmul(a, a.transpose(0, 1), y, true);
  CHECK(values(y) == Values{28, 64, 64, 154});
  naive().matmul(Array::empty({2, 0}, DType::f64), Array::empty({0, 2}, DType::f64), y, false);
  CHECK(values(y) == Values{0, 0, 0, 0});
}

TEST_CASE("naive convolution is cross-correlation") {
  const Array x = array_of({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}), w = array_of({1, 1, 2, 2}, {1, 0, 0, -1});
  const Array y = Array::empty({1, 1, 2, 2}, DType::f64);
  naive().conv2d(x, w, y, {});
  CHECK(values(y) == Values{-4, -4, -4, -4});
  Conv2dGeometry padded;
  padded.padding[0] = 1, padded.stride[0] = 2, padded.stride[1] = 2;
  const Array z = Array::empty({1, 1, 2, 1}, DType::f64);
  naive().conv2d(x, w, z, padded);
  CHECK(values(z) == Values{-2, 4 - 8});
}

TEST_CASE("naive convolution's gradients are its adjoints: <dy, conv(x, w)> = <dx, x> = <dw, w>") {
  Maker make(50);
  for (int round = 0; round < 30; ++round) {
    Conv2dGeometry g;
    g.groups = make.integer(1, 2);
    int64_t out[2];
    for (int i = 0; i < 2; ++i) {
      g.stride[i] = make.integer(1, 3), g.padding[i] = make.integer(0, 2), g.dilation[i] = make.integer(1, 2);
      out[i] = (7 + 2 * g.padding[i] - g.dilation[i] * 2 - 1) / g.stride[i] + 1;
    }
    const Array x = make({2, 2 * g.groups, 7, 7}, DType::f64), w = make({3 * g.groups, 2, 3, 3}, DType::f64);
    const Array dy = make({2, 3 * g.groups, out[0], out[1]}, DType::f64), y = Array::empty_like(dy);
    const Array dx = Array::empty_like(x), dw = Array::empty_like(w);
    naive().conv2d(x, w, y, g);
    naive().conv2d_backward_data(dy, w, dx, g);
    naive().conv2d_backward_weight(dy, x, dw, g);
    CHECK(dot(dx, x) == Approx(dot(dy, y)));
    CHECK(dot(dw, w) == Approx(dot(dy, y)));
  }
}

TEST_CASE("naive max pooling: first of equals, NaN wins, padding never does") {
  const Array x = array_of({1, 1, 2, 4}, {1, 1, kNaN, 9, 1, 1, 2, kNaN});
  const Array y = Array::empty({1, 1, 1, 2}, DType::f64), indices = Array::empty({1, 1, 1, 2}, DType::i32);
  Pool2dGeometry g;
  g.kernel[0] = g.kernel[1] = g.stride[0] = g.stride[1] = 2;
  naive().max_pool2d(x, y, indices, g);
  CHECK(error(values(y), {1, kNaN}) == 0);
  CHECK(values(indices) == Values{0, 2});
  const Array dx = Array::empty_like(x);
  naive().max_pool2d_backward(array_of({1, 1, 1, 2}, {5, 7}), indices, dx, g);
  CHECK(values(dx) == Values{5, 0, 7, 0, 0, 0, 0, 0});

  // With dilation 3 the taps skip a plane of 2 x 2, so every window is entirely in the padding.
  Pool2dGeometry outside = g;
  outside.padding[0] = outside.padding[1] = 1, outside.dilation[0] = outside.dilation[1] = 3;
  const Array small = array_of({1, 1, 2, 2}, {1, 2, 3, 4}), value = Array::empty({1, 1, 1, 1}, DType::f64);
  const Array index = Array::empty({1, 1, 1, 1}, DType::i32);
  naive().max_pool2d(small, value, index, outside);
  CHECK(values(value) == Values{-kInf});
  CHECK(values(index) == Values{-1});
  naive().max_pool2d_backward(array_of({1, 1, 1, 1}, {5}), index, small, outside);
  CHECK(values(small) == Values{0, 0, 0, 0});
}

TEST_CASE("softmax survives large logits; rows of -inf give NaN, or 0 where that is asked for") {
  const Array x = array_of({6, 2}, {1000, 1000, -kInf, 0, -kInf, -kInf, kNaN, -kInf, kInf, -kInf, -kInf, -2e306});
  const Array y = Array::empty_like(x);
  for (const auto& [kind, empty] : {std::pair{SoftmaxKind::softmax, kNaN}, {SoftmaxKind::or_zeros, 0.0}}) {
    const std::vector<double> expected = {0.5, 0.5, 0, 1, empty, empty, kNaN, kNaN, kNaN, kNaN, 0, 1};
    naive().softmax(x, 1, kind, y);
    CHECK(same(y, expected));
    naive().Backend::softmax(x, 1, kind, y);
    CHECK(same(y, expected));
  }
}

TEST_CASE("cross-entropy: mean over rows not ignored, NaN if all are ignored, IndexError for a bad target") {
  const Array x = array_of({3, 2}, {0, 0, 0, std::log(3.0), 5, 5}), target = array_of({3}, {0, 1, -100}, DType::i64);
  const Array log_probabilities = Array::empty_like(x), loss = Array::empty({}, DType::f64),
              count = Array::empty({}, DType::f64);
  const auto forward = [&](Backend& on, const Array& classes, Reduction reduction) {
    on.cross_entropy({.x = x,
                      .target = classes,
                      .reduction = reduction,
                      .log_probabilities = log_probabilities,
                      .loss = loss,
                      .weight_sum = count});
  };
  const auto backward = [&](double dloss, const Array& classes, const Array& dx) {
    naive().cross_entropy_backward({.dloss = scalar_of(dloss),
                                    .log_probabilities = log_probabilities,
                                    .target = classes,
                                    .weight_sum = count,
                                    .dx = dx});
  };
  forward(naive(), target, Reduction::mean);
  CHECK(same(count, {2}));
  CHECK(same(loss, {(std::log(2.0) - std::log(0.75)) / 2}));
  const Array dx = Array::empty_like(x);
  backward(4, target, dx);
  CHECK(same(dx, {-1, 1, 0.5, -0.5, 0, 0}));

  const Array none = array_of({3}, {-100, -100, -100}, DType::i64);
  forward(naive(), none, Reduction::mean);
  CHECK(same(loss, {kNaN}));
  backward(1, none, dx);
  CHECK(same(dx, {0, 0, 0, 0, 0, 0}));

  for (double wrong : {2.0, -1.0}) {
    const Array bad = array_of({3}, {0, wrong, 1}, DType::i64), picked = Array::empty({3}, DType::f64);
    for (const std::string& name : backend_names()) {
      if (backend(name).device_type() != DeviceType::cpu) continue;
      CHECK_THROWS_AS(backend(name).pick(x, bad, -100, picked), IndexError);
      CHECK_THROWS_AS(forward(backend(name), bad, Reduction::sum), IndexError);
    }
    CHECK_THROWS_WITH(naive().pick(x, bad, -100, picked), contains("row 1") && contains("0 to 1"));
  }
}

TEST_CASE("naive refuses indices that are outside of the dimension, and names the first") {
  const Array x = array_of({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const double wrong : {-1.0, 3.0, 100.0}) {
    const Array index = array_of({2, 2}, {0, 2, wrong, 1}, DType::i64), y = Array::empty({2, 2}, DType::f64);
    const auto message = contains("index " + std::to_string(static_cast<int>(wrong)) +
                                  " at position (1, 0) is outside dimension 1 of size 3");
    CHECK_THROWS_WITH(naive().gather(x, 1, index, y), message);
    for (const bool accumulate : {false, true}) CHECK_THROWS_WITH(naive().scatter(y, 1, index, accumulate, x), message);
  }
  CHECK(same(x, {1, 2, 3, 4, 5, 6}));
}

TEST_CASE("SGD follows torch.optim.SGD over three steps") {
  // torch.optim.SGD([p], lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01), p = 1, gradients 1, 2, 3.
  const Array block = array_of({5}, {0, 0.1, 1, 0, 1}), p = scalar_of(1), buffer = scalar_of(kNaN);
  rules::Sgd rule;
  rule.momentum = 0.9, rule.dampening = 0.5, rule.weight_decay = 0.01;
  double parameter = 1, momentum_buffer = 0;
  for (int step = 1; step <= 3; ++step) {
    const Array gradient = scalar_of(step);
    ParameterViews views;
    views.parameter = p, views.gradient = gradient, views.states[0] = buffer;
    naive().advance_step(block);
    naive().optimizer_step({&views, 1}, block, {rule});
    const double g = step + 0.01 * parameter;
    momentum_buffer = step == 1 ? g : 0.9 * momentum_buffer + 0.5 * g;
    parameter -= 0.1 * momentum_buffer;
    CHECK(same(p, {parameter}));
  }
  // An inf was found: neither the step count nor the parameter changes.
  block.data<double>()[StepBlock::found_inf] = 1;
  const Array gradient = scalar_of(kInf);
  ParameterViews views;
  views.parameter = p, views.gradient = gradient, views.states[0] = buffer;
  naive().advance_step(block);
  for (bool defaults : {false, true}) {
    if (defaults) naive().Backend::optimizer_step({&views, 1}, block, {rule});
    else naive().optimizer_step({&views, 1}, block, {rule});
    CHECK(same(p, {parameter}));
    CHECK(same(buffer, {momentum_buffer}));
  }
  CHECK(block.data<double>()[StepBlock::step] == 3);
}

TEST_CASE("Adam's first step is the learning rate in the gradient's direction") {
  for (bool defaults : {false, true}) {
    const Array block = array_of({5}, {1, 0.25, 2, 0, 1}), gradient = array_of({2}, {3, -0.5});
    const Array p = array_of({2}, {1, 1}), m = array_of({2}, {0, 0}), v = array_of({2}, {0, 0});
    ParameterViews views;
    views.parameter = p, views.gradient = gradient, views.states[0] = m, views.states[1] = v;
    if (defaults) naive().Backend::optimizer_step({&views, 1}, block, {rules::Adam()});
    else naive().optimizer_step({&views, 1}, block, {rules::Adam()});
    CHECK(error(values(p), {0.75, 1.25}) <= 1e-7);
    CHECK(same(m, {0.6, -0.1}));  // the gradient is multiplied by gradient_scale = 2
    CHECK(same(v, {0.036, 0.001}));
  }
}

TEST_CASE("naive steps on parameters, gradients, states and half copies of any strides") {
  const Shape shape{3, 4};
  Maker make(17);
  rules::Adam rule;
  rule.amsgrad = true;
  const Array block = array_of({5}, {1, 0.25, 1, 0, 1});
  std::vector<Array> before;
  for (int i = 0; i < 5; ++i) before.push_back(make(shape, DType::f64));
  for (const int state : {3, 4}) naive().binary(BinaryOp::mul, before[state], before[state], before[state]);
  const auto step = [&](const std::vector<Layout>& layouts) {
    std::vector<Array> arrays;
    for (size_t i = 0; i < 6; ++i) {
      arrays.push_back(make(shape, i < 5 ? DType::f64 : DType::bf16, layouts[i % layouts.size()]));
      if (i < 5) naive().copy(before[i], arrays[i]);
    }
    ParameterViews views;
    views.parameter = arrays[0], views.gradient = arrays[1], views.half = arrays[5];
    for (size_t i = 0; i < 3; ++i) views.states[i] = arrays[2 + i];
    naive().optimizer_step({&views, 1}, block, {rule});
    std::vector<Values> after;
    for (const Array& array : arrays) after.push_back(values(array));
    return after;
  };
  const std::vector<Layout> layouts(std::begin(kOutputLayouts), std::end(kOutputLayouts));
  const std::vector<Values> dense = step({layouts[0]});
  CHECK(dense[0] != values(before[0]));
  for (size_t first = 0; first < layouts.size(); ++first) {
    std::vector<Layout> rotated = layouts;
    std::rotate(rotated.begin(), rotated.begin() + static_cast<int64_t>(first), rotated.end());
    CHECK(step(rotated) == dense);
  }
}

TEST_CASE("every naive kernel reports itself to observers, with its bytes") {
  struct Recorder : Observer {
    std::vector<ObservedEvent> events;
    void on_end(const ObservedEvent& event) override { events.push_back(event); }
  } recorder;
  const Array a = array_of({2, 3}, {1, 2, 3, 4, 5, 6}), y = Array::empty({2, 2}, DType::f64);
  add_observer(&recorder);
  naive().matmul(a, a.transpose(0, 1), y, false);
  remove_observer(&recorder);
  naive().matmul(a, a.transpose(0, 1), y, false);
  REQUIRE(recorder.events.size() == 1);
  CHECK(std::string(recorder.events[0].name) == "matmul");
  CHECK(std::string(recorder.events[0].backend) == "naive");
  CHECK(std::string(recorder.events[0].implementation) == "loops");
  CHECK(recorder.events[0].flops == 2 * 2 * 2 * 3);
  CHECK(recorder.events[0].bytes == (6 + 6 + 4) * 8);
  CHECK(recorder.events[0].shapes[1] == Shape{3, 2});
}

TEST_CASE("naive convolutions report their FLOPs, forward and backward") {
  struct Recorder : Observer {
    std::vector<double> flops;
    void on_end(const ObservedEvent& event) override { flops.push_back(event.flops); }
  } recorder;
  const Array x = Array::empty({2, 3, 5, 7}, DType::f64), w = Array::empty({4, 3, 2, 3}, DType::f64),
              y = Array::empty({2, 4, 4, 5}, DType::f64);
  for (const Array& array : {x, w}) naive().fill(array, 1);
  add_observer(&recorder);
  naive().conv2d(x, w, y, {});
  naive().conv2d_backward_data(y, w, x, {});
  naive().conv2d_backward_weight(y, x, w, {});
  remove_observer(&recorder);
  CHECK(recorder.flops == std::vector<double>(3, 2.0 * 2 * 4 * 4 * 5 * 3 * 2 * 3));
}

TEST_CASE("naive writes the gradients of normalisation's parameters to arrays of any strides") {
  const Array x = array_of({2, 3}, {1, 2, 4, 3, 5, 9}), dy = array_of({2, 3}, {1, -1, 2, 0.5, 3, -2});
  const Array mean = array_of({2, 1}, {7.0 / 3, 17.0 / 3}), variance = array_of({2, 1}, {14.0 / 9, 56.0 / 9});
  NormalizeBackwardArgs args{dy, x, mean, variance};
  args.axes = 2;
  const Array dw = Array::empty({1, 3}, DType::f64), db = Array::empty({1, 3}, DType::f64),
              wide = Array::empty({1, 12}, DType::f64);
  naive().fill(wide, 0);
  args.dweight = dw, args.dbias = db;
  naive().normalize_backward(args);
  CHECK(same(db, {1.5, 2, 0}));
  const Array far_dw = wide.slice(1, 0, 6, 2), far_db = wide.slice(1, 6, 12, 2);
  args.dweight = far_dw, args.dbias = far_db;
  naive().normalize_backward(args);
  CHECK(same(far_dw, values(dw)));
  CHECK(same(far_db, values(db)));
  CHECK(values(wide)[1] == 0);
}

TEST_CASE("naive writes classes, losses and permutations to arrays of any strides, unless it skips loops") {
  Maker make(71);
  const auto check = [&](const char* what, const Shape& shape, DType dtype, auto write) {
    const Array dense = Array::empty(shape, dtype);
    write(dense);
    for (const Layout layout : kOutputLayouts) {
      INFO(what << ", " << name(layout));
      const Array y = make(shape, dtype, layout);
      write(y);
      CHECK(values(y) == values(dense));
      naive().fill(y, 7);
      {
        const SkipChunksGuard skips;
        write(y);
      }
      CHECK(values(y) == std::vector<double>(static_cast<size_t>(y.numel()), 7));
    }
  };
  const Array x = make({4, 5}, DType::f64), target = array_of({4}, {3, 0, 4, 1}, DType::i64),
              dy = make({4}, DType::f64);
  check("pick", {4}, DType::f64, [&](const Array& y) { naive().pick(x, target, -100, y); });
  check("pick_backward", {4, 5}, DType::f64, [&](const Array& dx) { naive().pick_backward(dy, target, -100, dx); });
  const Array log_probabilities = Array::empty({4, 5}, DType::f64), count = Array::empty({}, DType::f64);
  check("cross_entropy", {4}, DType::f64, [&](const Array& loss) {
    naive().cross_entropy({.x = x,
                           .target = target,
                           .reduction = Reduction::none,
                           .log_probabilities = log_probabilities,
                           .loss = loss,
                           .weight_sum = count});
  });
  check("randperm", {9}, DType::i64, [&](const Array& y) { naive().randperm(y, {1, 1, nullptr}); });
  check("arange", {9}, DType::f64, [&](const Array& y) { naive().arange(y, 3, 2); });
  check("binary", {4, 5}, DType::f64, [&](const Array& y) { naive().binary(BinaryOp::mul, x, x, y); });
  check("matmul", {4, 4}, DType::f64, [&](const Array& y) { naive().matmul(x, x.transpose(0, 1), y, false); });
}
