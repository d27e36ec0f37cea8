// What operators on arrays (core/ops) do besides calling a kernel: they check devices, increment version counters, and
// compute results of a single element.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gradus/core/backend_interceptor.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/nn/nn.h>
#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

#include "op_testing.h"

namespace array_calls_test {

using namespace gradus;
using op_testing::on_each_cpu_backend;
using test::contains;

constexpr DType kF32 = DType::f32, kF64 = DType::f64, kI64 = DType::i64;

Array filled(const Shape& shape, double value, DType dtype = kF32) { return ops::full(shape, value, dtype); }

Array listed(const Shape& shape, const std::vector<float>& numbers) {
  const Array x = Array::empty(shape, kF32);
  std::copy(numbers.begin(), numbers.end(), x.data<float>());
  return x;
}

/// An array on a device that this process does not have. An operator that reads it does not find a backend.
Array elsewhere(const Array& like) {
  const Array copy = ops::clone(like);
  const Storage there = Storage::adopt(copy.data(), copy.nbytes(), Device(DeviceType::cuda, 3), [copy](void*) {});
  return Array(there, 0, copy.shape(), copy.strides(), copy.dtype());
}

/// Fills small blocks of memory with large numbers and frees them, so that new arrays, which reuse them, do not hold
/// the numbers of an earlier call by chance.
void dirty_memory() {
  std::vector<Array> blocks;
  for (int i = 0; i < 24; ++i)
    for (const int64_t size : {1, 8, 16, 24, 32, 40, 48, 64}) blocks.push_back(filled({size}, 1e30 + i));
}

TEST_CASE("operators refuse operands of different devices, whichever operand is on the other one") {
  struct Call {
    const char* name;
    std::vector<Array> operands;
    std::function<void(const std::vector<Array>&)> run;
  };
  using List = const std::vector<Array>&;
  const Array vector = filled({2}, 1), matrix = filled({2, 2}, 1), flags = filled({2}, 1, DType::boolean);
  const Array places = filled({2}, 0, kI64), numbers = filled({2}, 3, kI64), image = filled({1, 2, 2, 2}, 1),
              sequence = filled({2, 2, 2}, 1);
  const Array block = ops::step_block(1, Device());
  const ops::KeptStatistics kept{vector, vector, filled({}, 0, kI64), 0.1};
  const std::vector<Array> normalized = {image,
                                         filled({1, 2, 1, 1}, 1),
                                         filled({1, 2, 1, 1}, 1),
                                         filled({1, 2, 1, 1}, 1),
                                         filled({1, 2, 1, 1}, 1),
                                         image,
                                         kept.mean,
                                         kept.variance,
                                         kept.batches};
  const std::vector<Call> calls = {
      {"index_select", {vector, places}, [](List x) { ops::index_select(x[0], 0, x[1]); }},
      {"index_into", {vector, places, vector}, [](List x) { ops::index_into(x[0], 0, x[1], x[2], false); }},
      {"gather", {vector, places}, [](List x) { ops::gather(x[0], 0, x[1]); }},
      {"scatter_into", {vector, places, vector}, [](List x) { ops::scatter_into(x[0], 0, x[1], x[2], true); }},
      {"binary", {vector, vector}, [](List x) { ops::binary(BinaryOp::add, x[0], x[1]); }},
      {"divide_integers", {numbers, numbers}, [](List x) { ops::divide_integers(x[0], x[1]); }},
      {"where", {flags, vector, vector}, [](List x) { ops::where(x[0], x[1], x[2]); }},
      {"cat", {vector, vector, vector}, [](List x) { ops::cat(x, 0); }},
      {"matmul", {matrix, matrix}, [](List x) { ops::matmul(x[0], x[1]); }},
      {"addmm", {vector, matrix, matrix}, [](List x) { ops::addmm(x[0], x[1], x[2]); }},
      {"linear", {matrix, matrix, vector}, [](List x) { ops::linear(x[0], x[1], x[2]); }},
      {"conv2d", {image, filled({2, 2, 1, 1}, 1), vector}, [](List x) { ops::conv2d(x[0], x[1], x[2], false, {}); }},
      {"normalize", normalized,
       [](List x) {
         ops::normalize(x[0], 0b1101, x[1], x[2], 1e-5, x[3], x[4], true, x[5], {x[6], x[7], x[8], 0.1});
       }},
      {"normalize with a bias alone",
       {image, filled({1, 2, 1, 1}, 1)},
       [](List x) { ops::normalize(x[0], 0b1101, {}, x[1], 1e-5); }},
      {"recurrent",
       {sequence, matrix, matrix, filled({8, 2}, 1), filled({8, 2}, 1), filled({8}, 1), filled({8}, 1)},
       [](List x) {
         ops::recurrent(RecurrentCell::lstm, x[0], x[1], x[2], {x[3], x[4], x[5], x[6], Array()}, false);
       }},
      {"pick", {matrix, places}, [](List x) { ops::pick(x[0], x[1], -1); }},
      {"cross_entropy", {matrix, places}, [](List x) { ops::cross_entropy(x[0], x[1], -1, Reduction::mean); }},
      {"optimizer_step",
       {block, vector},
       [](List x) {
         const ops::OptimizerEntry entry{x[1], x[1], {}, {}};
         ops::optimizer_step({&entry, 1}, x[0], {rules::Sgd()});
       }},
      {"unscale", {filled({}, 0, kF64), vector}, [](List x) { ops::unscale(std::array{x[1]}, {}, x[0]); }},
  };
  for (const Call& call : calls) {
    INFO(call.name);
    CHECK_NOTHROW(call.run(call.operands));
    for (size_t other = 0; other < call.operands.size(); ++other) {
      CAPTURE(other);
      std::vector<Array> operands = call.operands;
      operands[other] = elsewhere(operands[other]);
      CHECK_THROWS_WITH(call.run(operands), contains("different devices") && contains("cpu") && contains("cuda:3"));
    }
  }
}

/// Runs the kernels of naive. Notes steps whose arrays do not have one dense layout.
class LayoutBackend final : public BackendInterceptor<LayoutBackend> {
 public:
  std::string_view name() const override { return "layouts"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  template <class... Params>
  void call(const char*, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    (look_at(arguments), ...);
    (backend("naive").*method)(arguments...);
  }
  int steps = 0, in_several_layouts = 0;

 private:
  void look_at(std::span<const ParameterViews> parameters) {
    for (const ParameterViews& views : parameters) {
      ++steps;
      const auto differs = [&](const View& view) { return view.data && !(view.strides == views.parameter.strides); };
      bool several = differs(views.gradient) || differs(views.half);
      for (const MutableView& state : views.states) several = several || differs(state);
      in_several_layouts += several;
    }
  }
  template <class Other>
  void look_at(const Other&) {}
};

TEST_CASE("a number on the host combines with an array of any device, on either side, and other host arrays do not") {
  const Array vector = filled({2}, 1), number = filled({}, 1), flag = filled({}, 1, DType::boolean);
  const auto add = [](const Array& a, const Array& b) { ops::binary(BinaryOp::add, a, b); };
  const auto mixes = contains("arguments are on different devices");
  if (!find_runtime(DeviceType::cuda)) {  // the error is that this process has no such device
    CHECK_THROWS_WITH(add(elsewhere(vector), number), !mixes);
    CHECK_THROWS_WITH(add(number, elsewhere(vector)), !mixes);
  }
  for (const Array& other : {vector, flag}) {
    CHECK_THROWS_WITH(add(elsewhere(vector), other), mixes);
    CHECK_THROWS_WITH(add(other, elsewhere(vector)), mixes);
  }
  CHECK_THROWS_WITH(add(elsewhere(number), vector), mixes);
  CHECK_THROWS_WITH(add(vector, elsewhere(number)), mixes);
}

TEST_CASE("an index may be larger than its tensor along the indexed dimension alone") {
  const Shape shape = {2, 3, 4};
  const Array x = filled(shape, 1);
  for (int axis = 0; axis < 3; ++axis)
    for (int larger = 0; larger < 3; ++larger) {
      Shape sizes = shape;
      ++sizes[larger];
      const Array index = filled(sizes, 0, kI64), source = filled(sizes, 2);
      INFO("axis " << axis << ", larger along " << larger);
      if (larger == axis) {
        CHECK(ops::gather(x, axis, index).shape() == sizes);
        CHECK_NOTHROW(ops::scatter_into(ops::clone(x), axis, index, source, false));
      } else {
        const auto refused =
            contains(" is larger than the tensor of shape (2, 3, 4) in dimension " + std::to_string(larger));
        CHECK_THROWS_WITH(ops::gather(x, axis, index), refused);
        CHECK_THROWS_WITH(ops::scatter_into(ops::clone(x), axis, index, source, false), refused);
      }
    }
}

TEST_CASE("the kernel of an optimizer's step gets all arrays of a parameter in one layout") {
  LayoutBackend layouts;
  const BackendGuard guard(layouts);
  const Shape shape = {2, 3, 4, 5};
  const Array block = ops::step_block(1, Device()), x = filled(shape, 1);
  std::vector<Array> arrays = {x, ops::clone(x, MemoryFormat::channels_last)};
  for (const int64_t axis : {0, 1, 2, 3}) {
    arrays.push_back(
        ops::clone(ops::cat({x, x}, axis).slice(axis, 0, shape[static_cast<int>(axis)]), MemoryFormat::contiguous));
    arrays.push_back(ops::cat({x, x}, axis).slice(axis, 0, shape[static_cast<int>(axis)]));  // with gaps
    arrays.push_back(ops::clone(x.transpose(0, axis), MemoryFormat::contiguous).transpose(0, axis));
  }
  rules::Sgd sgd;
  sgd.momentum = 0.5;
  for (const Array& parameter : arrays)
    for (const Array& gradient : arrays)
      for (const Array& state : arrays) {
        const ops::OptimizerEntry entry{ops::clone(parameter), gradient, {ops::clone(state)}, {}};
        ops::optimizer_step({&entry, 1}, block, {sgd});
      }
  CHECK(layouts.steps == static_cast<int>(arrays.size() * arrays.size() * arrays.size()));
  CHECK(layouts.in_several_layouts == 0);
}

TEST_CASE("partners of a parameter are on its device") {
  const Array block = ops::step_block(1, Device()), parameter = filled({2}, 1);
  const auto step = [&](const Array& gradient, const Array& state) {
    const ops::OptimizerEntry entry{parameter, gradient, {state}, {}};
    ops::optimizer_step({&entry, 1}, block, {rules::Sgd()});
  };
  CHECK_THROWS_WITH(step(elsewhere(parameter), {}), contains("the gradient is on cuda:3, its parameter on cpu"));
  CHECK_THROWS_WITH(step(parameter, elsewhere(parameter)), contains("the optimizer's state is on cuda:3"));
}

TEST_CASE("operators on arrays check ranks, shapes and types themselves") {
  struct Call {
    const char* message;
    std::function<void()> run;
  };
  const Array none, scalar = filled({}, 1), vector = filled({2}, 1), matrix = filled({2, 2}, 1),
                    wide = filled({2, 2}, 1, kF64);
  const Array sequence = filled({1, 2, 2}, 1), image = filled({1, 2, 3, 4}, 1), filter = filled({3, 2, 1, 1}, 1);
  const Array whole = filled({2}, 1, kI64), whole_image = filled({1, 3, 3, 4}, 1, kI64),
              wide_image = filled({1, 2, 3, 4}, 1, kF64);
  const Array real_index = filled({2}, 0), block = ops::step_block(1, Device());
  const auto one = ops::OwnedStencil::identity(3);
  const Pool2dGeometry window{{1, 1}, {1, 1}, {0, 0}, {1, 1}};
  const auto normalize = [&](const Array& x, const Array& weight, const Array& bias, const Array& residual) {
    ops::normalize(x, 0b01, weight, bias, 1e-5, {}, {}, true, residual);
  };
  const std::vector<Call> calls = {
      {"input must have 4 dimensions (N, C, H, W), got shape (1, 2, 2)",
       [&] { ops::max_pool2d(sequence, window, false); }},
      {"input must be of a floating type, got int64", [&] { ops::max_pool2d(whole_image, window, false); }},
      {"input must have 4 dimensions (N, C, H, W), got shape (1, 2, 2)", [&] { ops::resample2d(sequence, one, one); }},
      {"input must be of a floating type, got int64", [&] { ops::resample2d(whole_image, one, one); }},
      {"input must be of a floating type, got int64", [&] { ops::rgb_to_grayscale(whole_image); }},
      {"input must have shape (…, 3, H, W), got (1, 2, 3, 4)", [&] { ops::rgb_to_grayscale(image); }},
      {"input must have shape (…, 3, H, W), got (2, 2)", [&] { ops::rgb_to_grayscale(matrix); }},
      {"input must have 4 dimensions (N, C, H, W), got shape (1, 2, 2)",
       [&] { ops::conv2d(sequence, filter, none, false, {}); }},
      {"input is undefined", [&] { ops::conv2d(none, filter, none, false, {}); }},
      {"weight must have 4 dimensions (K, C / groups, R, S), got shape (2, 2)",
       [&] { ops::conv2d(image, matrix, none, false, {}); }},
      {"input must be of a floating type, got int64", [&] { ops::conv2d(whole_image, whole_image, none, false, {}); }},
      {"input is float64 but weight is float32", [&] { ops::conv2d(wide_image, filter, none, false, {}); }},
      {"input is float32 but bias is float64", [&] { ops::conv2d(image, filter, filled({3}, 1, kF64), false, {}); }},
      {"kernel sizes must be positive, got weight (3, 2, 0, 1)",
       [&] {
         ops::conv2d(image, filled({3, 2, 0, 1}, 1), none, false, {});
       }},
      {"kernel sizes must be positive, got weight (3, 2, 1, 0)",
       [&] {
         ops::conv2d(image, filled({3, 2, 1, 0}, 1), none, false, {});
       }},
      {"bias must have shape (3,)", [&] { ops::conv2d(image, filter, vector, false, {}); }},
      {"weight must have 2 dimensions (out, in), got shape (2,)", [&] { ops::linear(matrix, vector, none); }},
      {"input needs at least one dimension (…, in), got a scalar", [&] { ops::linear(scalar, matrix, none); }},
      {"input must be of a floating type, got int64", [&] { ops::linear(whole, matrix, none); }},
      {"input is float64 but weight is float32", [&] { ops::linear(wide, matrix, none); }},
      {"input is float32 but bias is float64", [&] { ops::linear(matrix, matrix, filled({2}, 1, kF64)); }},
      {"bias must have shape (2,)", [&] { ops::linear(matrix, matrix, scalar); }},
      {"weight expects 2 input features, got x of shape (1,)", [&] { ops::linear(filled({1}, 1), matrix, none); }},
      {"the first argument is float32 but the second is float64", [&] { ops::matmul(matrix, wide); }},
      {"the second argument is undefined; the first has shape (2, 2)", [&] { ops::matmul(matrix, none); }},
      {"both arguments need at least one dimension, got shapes () and (2,)", [&] { ops::matmul(scalar, vector); }},
      {"both arguments need at least one dimension, got shapes (2,) and ()", [&] { ops::matmul(vector, scalar); }},
      {"inner sizes differ: (2,) times (1,) would join 2 with 1", [&] { ops::matmul(vector, filled({1}, 1)); }},
      {"booleans have no matrix product",
       [&] { ops::matmul(ops::cast(matrix, DType::boolean), ops::cast(matrix, DType::boolean)); }},
      {"batches do not broadcast: (2,) of (2, 2, 2) and (3,) of (3, 2, 2)",
       [&] {
         ops::matmul(filled({2, 2, 2}, 1), filled({3, 2, 2}, 1));
       }},
      {"input must be of a floating type, got int64", [&] { ops::softmax(whole, 0, false); }},
      {"input must have 2 dimensions (N, C), got shape (2,)", [&] { ops::pick(vector, whole, -1); }},
      {"input must be of a floating type, got int64",
       [&] {
         ops::pick(filled({2, 2}, 1, kI64), whole, -1);
       }},
      {"target must hold int64 classes, got float32", [&] { ops::pick(matrix, vector, -1); }},
      {"input of shape (2, 2) needs a target of shape (2,), got (1,)",
       [&] { ops::pick(matrix, filled({1}, 0, kI64), -1); }},
      {"input of shape (2, 0) has no classes",
       [&] {
         ops::cross_entropy(filled({2, 0}, 1), whole, -1, Reduction::sum);
       }},
      {"input must be of a floating type, got int64",
       [&] {
         normalize(filled({2, 2}, 1, kI64), none, none, none);
       }},
      {"input is float32 but weight is float64", [&] { normalize(matrix, wide, none, none); }},
      {"input is float32 but bias is float64", [&] { normalize(matrix, none, wide, none); }},
      {"input is float64 but bias is float32", [&] { normalize(wide, none, matrix, none); }},
      {"input is float32 but residual is float64", [&] { normalize(matrix, none, none, wide); }},
      {"residual must have the input's shape (2, 2), got (2,)", [&] { normalize(matrix, none, none, vector); }},
      {"input must be of a floating type, got int64", [&] { ops::dropout(whole, 0.5); }},
      {"dropout probability must be in [0, 1], got 1.5", [&] { ops::dropout(vector, 1.5); }},
      {"dropout probability must be in [0, 1], got -0.5", [&] { ops::dropout(vector, -0.5); }},
      {"the result must be of a floating type, got int64", [&] { ops::uniform(whole, 0, 1); }},
      {"the result must be of a floating type, got int64", [&] { ops::normal(whole, 0, 1); }},
      {"the tensor must be of a floating type, got int64", [&] { ops::variance(whole, 1, false, 1); }},
      {"the tensor must be of a floating type, got int64", [&] { ops::deviation(whole, 1, false, 1); }},
      {"the tensor must be of a floating type, got int64", [&] { ops::norm(whole, 2, 1, false); }},
      {"probabilities must be of a floating type, got int64", [&] { ops::multinomial(whole, 1, true); }},
      {"a parameter must be of a floating type, got int64",
       [&] {
         const ops::OptimizerEntry entry{whole, whole, {}, {}};
         ops::optimizer_step({&entry, 1}, block, {rules::Sgd()});
       }},
      {"a gradient must be of a floating type, got int64",
       [&] { ops::unscale(std::array{whole}, {}, filled({}, 0, kF64)); }},
      {"a step block is float64 of shape (5,), got float32 of shape (5,)",
       [&] { ops::set_step_block(filled({5}, 0), 0, 1); }},
      {"a step block is float64 of shape (5,), got float64 of shape (4,)",
       [&] { ops::set_step_block(filled({4}, 0, kF64), 0, 1); }},
      {"a step block is float64 of shape (5,), got float64 of shape (2,)",
       [&] { ops::optimizer_step({}, filled({2}, 0, kF64), {rules::Sgd()}); }},
      {"indices must be int64 or int32, got float32", [&] { ops::index_select(vector, 0, real_index); }},
      {"indices must be int64 or int32, got float32", [&] { ops::index_into(vector, 0, real_index, vector, false); }},
      {"indices must be int64 or int32, got float32", [&] { ops::gather(vector, 0, real_index); }},
      {"indices must be int64 or int32, got float32", [&] { ops::scatter_into(vector, 0, real_index, vector, false); }},
      {"indices must be int64 or int32, got float32", [&] { ops::checked_index(real_index, 2, 0); }},
      {"the tensor is float32 but the source is int64", [&] { ops::index_into(vector, 0, whole, whole, false); }},
      {"the tensor is float32 but the source is int64", [&] { ops::scatter_into(vector, 0, whole, whole, false); }},
      {"source has shape (1,), but 2 indices along dimension 0 of shape (2,) need (2,)",
       [&] { ops::index_into(vector, 0, whole, filled({1}, 1), false); }},
      {"source has shape (1,), but index has shape (2,)",
       [&] { ops::scatter_into(vector, 0, whole, filled({1}, 1), false); }},
      {"must have the same number of dimensions, got shapes (2,) and (2, 2)", [&] { ops::gather(matrix, 0, whole); }},
      {"index of shape (1, 3) is larger than the tensor of shape (2, 2) in dimension 1",
       [&] {
         ops::gather(matrix, 0, filled({1, 3}, 0, kI64));
       }},
      {"index 2 at position (1,) is outside dimension 3 of size 2",
       [&] { ops::checked_index(ops::arange(1, 3, 1, kI64), 2, 3); }},
      {"index -3 at position (0,) is outside dimension 3 of size 2",
       [&] { ops::checked_index(ops::arange(-3, 0, 1, kI64), 2, 3); }},
      {"condition must be boolean (or uint8), got int64", [&] { ops::where(whole, vector, vector); }},
      {"shape (2,) does not broadcast to the destination's (1,)", [&] { ops::copy_into(filled({1}, 0), vector); }},
      {"item() needs a tensor with one element, got shape (2,)", [&] { ops::item(vector); }},
      {"item() needs a tensor with one element, got shape (0,)", [&] { ops::item(filled({0}, 0)); }},
      {"scalars cannot be joined",
       [&] {
         ops::cat({scalar, scalar}, 0);
       }},
      {"tensor 1 of shape (2, 2) does not join (2,) along dimension 0",
       [&] {
         ops::cat({vector, matrix}, 0);
       }},
      {"tensor 2 of shape (2, 1) does not join (2, 2) along dimension 0",
       [&] {
         ops::cat({matrix, matrix, filled({2, 1}, 1)}, 0);
       }},
      {"maximum or minimum of no elements: shape (0, 2)",
       [&] {
         ops::reduce(ReduceOp::max, filled({0, 2}, 0), 1, false, kF32);
       }},
      {"maximum or minimum of no elements: shape (0, 2)",
       [&] {
         ops::reduce(ReduceOp::min, filled({0, 2}, 0), 1, false, kF32);
       }},
      {"maximum or minimum of no elements: dimension 0 of shape (0, 2) is empty",
       [&] {
         ops::arg_reduce(ArgReduceOp::argmax, filled({0, 2}, 0), 0, false);
       }},
      {"mean needs a floating type, got int64", [&] { ops::reduce(ReduceOp::mean, whole, 1, false, kI64); }},
  };
  for (const Call& call : calls) {
    CAPTURE(call.message);
    CHECK_THROWS_WITH(call.run(), contains(call.message));
  }
}

TEST_CASE("the numbers of a window are checked along rows and along columns") {
  const Array x = filled({1, 1, 5, 7}, 1);
  for (const int axis : {0, 1}) {
    const std::string lines = axis == 0 ? "rows" : "columns", have = axis == 0 ? "5" : "7";
    const auto convolve = [&](auto member, int64_t number, int64_t kernel = 2) {
      Conv2dGeometry geometry;
      (geometry.*member)[axis] = number;
      Shape filter = {1, 1, 1, 1};
      filter[2 + axis] = kernel;
      return ops::conv2d(x, filled(filter, 1), {}, false, geometry).shape()[2 + axis];
    };
    const auto pool = [&](auto member, int64_t number, int64_t kernel = 3) {
      Pool2dGeometry geometry;
      geometry.kernel[axis] = kernel;
      (geometry.*member)[axis] = number;
      return std::get<0>(ops::max_pool2d(x, geometry, false)).shape()[2 + axis];
    };
    const int64_t size = x.shape()[2 + axis], far = int64_t{1} << 40, most = INT32_MAX;
    const std::string beyond = std::to_string(most + 1);
    CHECK(convolve(&Conv2dGeometry::stride, 2) == (size - 2) / 2 + 1);
    CHECK(convolve(&Conv2dGeometry::padding, 2) == size + 3);
    CHECK(convolve(&Conv2dGeometry::dilation, 3) == size - 3);
    CHECK(pool(&Pool2dGeometry::stride, 2) == (size - 3) / 2 + 1);
    CHECK(pool(&Pool2dGeometry::padding, 1) == size);
    CHECK(pool(&Pool2dGeometry::dilation, 2) == size - 4);
    const std::vector<std::pair<std::string, std::function<void()>>> refused = {
        {"stride must be positive, got 0", [&] { convolve(&Conv2dGeometry::stride, 0); }},
        {"dilation must be positive, got 0", [&] { convolve(&Conv2dGeometry::dilation, 0); }},
        {"padding must not be negative, got -1", [&] { convolve(&Conv2dGeometry::padding, -1); }},
        {"padding may be at most 1099511627776, got 1099511627777",
         [&] { convolve(&Conv2dGeometry::padding, far + 1); }},
        {"kernel reaches over 8 " + lines + " but the padded input has " + have,
         [&] { convolve(&Conv2dGeometry::dilation, 7); }},
        {"kernel reaches over 9 " + lines, [&] { convolve(&Conv2dGeometry::dilation, 1, 9); }},
        {"kernel size must be positive, got 0", [&] { pool(&Pool2dGeometry::kernel, 0); }},
        {"stride must be positive, got 0", [&] { pool(&Pool2dGeometry::stride, 0); }},
        {"dilation must be positive, got 0", [&] { pool(&Pool2dGeometry::dilation, 0); }},
        {"padding must be between 0 and half the kernel size 3, got -1", [&] { pool(&Pool2dGeometry::padding, -1); }},
        {"padding must be between 0 and half the kernel size 3, got 2", [&] { pool(&Pool2dGeometry::padding, 2); }},
        {"may be at most 2147483647, got " + beyond, [&] { pool(&Pool2dGeometry::kernel, most + 1); }},
        {"may be at most 2147483647, got " + beyond, [&] { pool(&Pool2dGeometry::stride, most + 1); }},
        {"may be at most 2147483647, got " + beyond, [&] { pool(&Pool2dGeometry::dilation, most + 1); }},
        {"pooling takes at most 2147483647 " + lines + ", got " + have + " and a padding of 1073741823",
         [&] { pool(&Pool2dGeometry::padding, most / 2, most); }},
        {"window reaches over 9 " + lines + " but the padded input has " + have,
         [&] { pool(&Pool2dGeometry::dilation, 4); }},
        {"window reaches over 8 " + lines, [&] { pool(&Pool2dGeometry::dilation, 1, 8); }}};
    for (const auto& [message, run] : refused) CHECK_THROWS_WITH(run(), contains(message));
  }
}

TEST_CASE("numbers at the limits of an argument are allowed, and those beyond are not") {
  const Array real = filled({3}, 0), bytes = filled({3}, 0, DType::u8), flags = filled({3}, 0, DType::boolean);
  const Array whole = filled({3}, 0, kI64), half = filled({3}, 0, DType::f16), small = filled({3}, 0, DType::i32);
  const Pool2dGeometry window{{1, 1}, {1, 1}, {0, 0}, {1, 1}};
  const int64_t most = INT32_MAX;
  struct Limit {
    const char* name;
    std::function<void()> allowed, refused;
  };
  const std::vector<Limit> limits = {
      {"uniform", [&] { ops::uniform(real, 2, 2); }, [&] { ops::uniform(real, 2, 1.999); }},
      {"uniform, wide", [&] { ops::uniform(real, -8e307, 8e307); }, [&] { ops::uniform(real, -1e308, 1e308); }},
      {"normal", [&] { ops::normal(real, 0, 0); }, [&] { ops::normal(real, 0, -1e-9); }},
      {"bernoulli of 0", [&] { ops::bernoulli(real, 0); }, [&] { ops::bernoulli(real, -1e-9); }},
      {"bernoulli of 1", [&] { ops::bernoulli(real, 1); }, [&] { ops::bernoulli(real, 1 + 1e-9); }},
      {"dropout of 0", [&] { ops::dropout(real, 0); }, [&] { ops::dropout(real, -1e-9); }},
      {"dropout of 1", [&] { ops::dropout(real, 1); }, [&] { ops::dropout(real, 1 + 1e-9); }},
      {"randint of one number", [&] { ops::randint(whole, 5, 6); }, [&] { ops::randint(whole, 5, 5); }},
      {"randint of bytes from 0", [&] { ops::randint(bytes, 0, 9); }, [&] { ops::randint(bytes, -1, 9); }},
      {"randint of bytes to 255", [&] { ops::randint(bytes, 9, 256); }, [&] { ops::randint(bytes, 9, 257); }},
      {"randint of flags from 0", [&] { ops::randint(flags, 0, 1); }, [&] { ops::randint(flags, -1, 1); }},
      {"randint of flags to 1", [&] { ops::randint(flags, 0, 2); }, [&] { ops::randint(flags, 0, 3); }},
      {"randint of int32", [&] { ops::randint(small, INT32_MIN, int64_t{INT32_MAX} + 1); },
       [&] { ops::randint(small, INT32_MIN, int64_t{INT32_MAX} + 2); }},
      {"randint of int32 from below", [&] { ops::randint(small, INT32_MIN, 0); },
       [&] { ops::randint(small, int64_t{INT32_MIN} - 1, 0); }},
      {"randint of float16", [&] { ops::randint(half, -65504, 65505); }, [&] { ops::randint(half, 0, 65521); }},
      {"randperm", [&] { ops::randperm(0); }, [&] { ops::randperm(-1); }},
      {"linspace", [&] { ops::linspace(0, 1, 0, kF32); }, [&] { ops::linspace(0, 1, -1, kF32); }},
      {"linspace of bytes", [&] { ops::linspace(0, 255, 3, DType::u8); }, [&] { ops::linspace(0, 256, 3, DType::u8); }},
      {"linspace of bytes, reversed", [&] { ops::linspace(255, 0, 3, DType::u8); },
       [&] { ops::linspace(256, 0, 3, DType::u8); }},
      {"arange upwards", [&] { ops::arange(3, 3, 1, kF32); }, [&] { ops::arange(3.5, 3, 1, kF32); }},
      {"arange downwards", [&] { ops::arange(3, 3, -1, kF32); }, [&] { ops::arange(3, 3.5, -1, kF32); }},
      {"arange of integers", [&] { ops::arange(3, 3, -1, kI64); }, [&] { ops::arange(3, 4, -1, kI64); }},
      {"arange of integers by a fraction", [&] { ops::arange(0, 3, 1.5, DType::i32); },
       [&] { ops::arange(0, 3, 0.5, DType::i32); }},
      {"arange by 0", [&] { ops::arange(0, 3, 1, kI64); }, [&] { ops::arange(0, 3, 0, kI64); }},
      {"arange by 0.0", [&] { ops::arange(0, 3, 1.0, kF32); }, [&] { ops::arange(0, 3, 0.0, kF32); }},
      {"fill of bytes", [&] { ops::fill(bytes, 255); }, [&] { ops::fill(bytes, 256); }},
      {"fill of float16", [&] { ops::fill(half, 65504.0); }, [&] { ops::fill(half, 65520.0); }},
      {"full of int32", [&] { ops::full({1}, int64_t{INT32_MAX}, DType::i32); },
       [&] { ops::full({1}, int64_t{INT32_MAX} + 1, DType::i32); }},
      {"checked_index", [] { ops::checked_index(ops::arange(-4, 4, 1, kI64), 4, 0); },
       [] { ops::checked_index(ops::arange(-4, 5, 1, kI64), 4, 0); }},
      {"checked_index from the end", [] { ops::checked_index(ops::full({1}, -4, kI64), 4, 0); },
       [] { ops::checked_index(ops::full({1}, -5, kI64), 4, 0); }},
      {"multinomial without replacement", [] { ops::multinomial(filled({2}, 1), 2, false); },
       [] { ops::multinomial(filled({2}, 1), 3, false); }},
      {"multinomial of possible categories",
       [] {
         ops::multinomial(listed({3}, {0, 1, 1}), 2, false);
       },
       [] {
         ops::multinomial(listed({3}, {0, 1, 1}), 3, false);
       }},
      {"multinomial with replacement",
       [] {
         ops::multinomial(listed({2}, {0, 1}), 9, true);
       },
       [] {
         ops::multinomial(listed({2}, {0, 0}), 9, true);
       }},
      {"multinomial of some samples", [] { ops::multinomial(filled({2}, 1), 1, true); },
       [] { ops::multinomial(filled({2}, 1), 0, true); }},
      {"multinomial of a matrix",
       [] {
         ops::multinomial(filled({1, 2}, 1), 1, true);
       },
       [] {
         ops::multinomial(filled({1, 1, 2}, 1), 1, true);
       }},
      {"multinomial of weights",
       [] {
         ops::multinomial(listed({2}, {0, 1}), 1, true);
       },
       [] {
         ops::multinomial(listed({2}, {-1, 1}), 1, true);
       }},
      {"multinomial of finite weights",
       [] {
         ops::multinomial(listed({2}, {2, 1}), 1, true);
       },
       [] {
         ops::multinomial(listed({2}, {INFINITY, 1}), 1, true);
       }},
      {"padding", [] { ops::check_padding(0); }, [] { ops::check_padding(-1); }},
      {"much padding", [] { ops::check_padding(int64_t{1} << 40); },
       [] { ops::check_padding((int64_t{1} << 40) + 1); }},
      {"max_pool2d of long planes",
       [&] {
         ops::max_pool2d(Array::empty({0, 1, 1, most}, kF32), window, false);
       },
       [&] {
         ops::max_pool2d(Array::empty({0, 1, 1, most + 1}, kF32), window, false);
       }},
      {"max_pool2d of large planes",
       [&] {
         ops::max_pool2d(Array::empty({0, 1, 2, most / 2}, kF32), window, false);
       },
       [&] {
         ops::max_pool2d(Array::empty({0, 1, 2, most / 2 + 1}, kF32), window, false);
       }},
      {"max_pool2d of many channels",
       [&] {
         ops::max_pool2d(Array::empty({0, most + 1, 1, 2}, kF32), window, false);
       },
       [&] {
         ops::max_pool2d(Array::empty({0, 1, most + 1, 2}, kF32), window, false);
       }},
      {"joining matrices",
       [] {
         ops::cat({filled({1, 2}, 0), filled({3, 2}, 0)}, -2);
       },
       [] {
         ops::cat({filled({1, 2}, 0), filled({3, 2}, 0)}, -3);
       }},
      {"an index as large as the tensor",
       [] {
         ops::gather(filled({2, 3}, 0), 0, filled({9, 3}, 0, kI64));
       },
       [] {
         ops::gather(filled({2, 3}, 0), 0, filled({9, 4}, 0, kI64));
       }},
  };
  for (const Limit& limit : limits) {
    CAPTURE(limit.name);
    CHECK_NOTHROW(limit.allowed());
    CHECK_THROWS_AS(limit.refused(), Error);
  }
}

TEST_CASE("every operator that writes an array increments its version once") {
  on_each_cpu_backend([] {
    const auto check = [](const char* name, const std::vector<Array>& written, const auto& write) {
      INFO(name);
      std::vector<uint32_t> before;
      for (const Array& array : written) before.push_back(array.version());
      write();
      for (size_t i = 0; i < written.size(); ++i) {
        CAPTURE(i);
        CHECK(written[i].version() == before[i] + 1);
      }
    };
    const Array x = filled({2}, 1), y = filled({2}, 2), whole = filled({2}, 0, kI64);
    check("fill", {x}, [&] { ops::fill(x, 1); });
    check("copy_into", {x}, [&] { ops::copy_into(x, y); });
    check("uniform", {x}, [&] { ops::uniform(x, 0, 1); });
    check("normal", {x}, [&] { ops::normal(x, 0, 1); });
    check("bernoulli", {x}, [&] { ops::bernoulli(x, 0.5); });
    check("randint", {x}, [&] { ops::randint(x, 0, 9); });
    check("index_into", {x}, [&] { ops::index_into(x, 0, whole, y, false); });
    check("scatter_into", {x}, [&] { ops::scatter_into(x, 0, whole, y, false); });
    check("unary", {x}, [&] { ops::unary(UnaryOp::neg, x, {}, &x); });
    check("binary", {x}, [&] { ops::binary(BinaryOp::add, x, y, &x); });
    check("binary_scalar", {x}, [&] { ops::binary_scalar(BinaryOp::add, x, 1.0, false, &x); });
    const Array wide = filled({2}, 1, kF64);
    check("binary in another type", {wide}, [&] { ops::binary(BinaryOp::add, x, y, &wide); });

    const Array block = ops::step_block(1, Device()), scale = filled({ScaleBlock::size}, 1, kF64);
    check("set_step_block", {block}, [&] { ops::set_step_block(block, StepBlock::learning_rate, 2); });
    check("advance_step", {block}, [&] { ops::advance_step(block); });
    check("update_scale", {scale}, [&] { ops::update_scale(scale, {}); });
    const Array half = ops::cast(x, DType::f16), state = filled({2}, 0);
    const ops::OptimizerEntry entry{x, y, {state}, half};
    rules::Sgd sgd;
    sgd.momentum = 0.9;
    check("optimizer_step", {x, state, half}, [&] { ops::optimizer_step({&entry, 1}, block, {sgd}); });
    const Array found = filled({}, 0, kF64), factor = filled({}, 2, kF64);
    check("unscale", {x, y, found}, [&] { ops::unscale(std::array{x, y}, factor, found); });

    const ops::KeptStatistics kept{filled({2}, 0), filled({2}, 1), filled({}, 0, kI64), 0.1};
    const std::vector<Array> statistics = {kept.mean, kept.variance, kept.batches};
    check("update_running_statistics", statistics, [&] { ops::update_running_statistics(kept, x, y); });
    check("normalize", statistics, [&] {
      ops::normalize(filled({3, 2}, 1), 0b01, {}, {}, 1e-5, {}, {}, false, {}, kept);
    });
    const Array image = filled({1, 1, 2, 2}, 1), filter = filled({1, 1, 1, 1}, 1), dy = filled({1, 1, 2, 2}, 1);
    check("conv2d_backward", {dy},
          [&] { ops::conv2d_backward(dy, image, filter, image, true, true, true, {}, /*may_overwrite_dy=*/true); });
    CHECK(image.version() == 0);
  });
}

TEST_CASE("operators compute results of a single element") {
  const Array x = filled({1}, 0.5), y = filled({1}, 3), at = filled({1}, 0, kI64), matrix = filled({1, 1}, 4);
  const Array yes = filled({1}, 1, DType::boolean), image = filled({1, 1, 1, 1}, 2), three = filled({1, 1, 1, 1}, 3);
  const Pool2dGeometry window{{1, 1}, {1, 1}, {0, 0}, {1, 1}};
  const auto one = ops::OwnedStencil::identity(1);
  struct Call {
    const char* name;
    std::vector<double> expected;
    std::function<std::vector<Array>()> run;
  };
  const auto into = [](DType dtype, const auto& write) {
    const Array result = Array::empty({1}, dtype);
    write(result);
    return std::vector<Array>{result};
  };
  const auto pair = [](const auto& results) { return std::vector<Array>{std::get<0>(results), std::get<1>(results)}; };
  const std::vector<Call> calls = {
      {"fill", {3}, [&] { return into(kF32, [&](const Array& r) { ops::fill(r, 3); }); }},
      {"full", {3}, [&] { return std::vector{ops::full({1}, 3, kF32)}; }},
      {"arange", {2}, [&] { return std::vector{ops::arange(2, 3, 1, kF32)}; }},
      {"linspace", {2}, [&] { return std::vector{ops::linspace(2, 9, 1, kF32)}; }},
      {"linspace of two", {2, 9}, [&] { return std::vector{ops::linspace(2, 9, 2, kI64)}; }},
      {"uniform", {4}, [&] { return into(kF32, [&](const Array& r) { ops::uniform(r, 4, 4); }); }},
      {"normal", {5}, [&] { return into(kF32, [&](const Array& r) { ops::normal(r, 5, 0); }); }},
      {"bernoulli", {1}, [&] { return into(kF32, [&](const Array& r) { ops::bernoulli(r, 1); }); }},
      {"randint", {7}, [&] { return into(kI64, [&](const Array& r) { ops::randint(r, 7, 8); }); }},
      {"randperm", {0}, [&] { return std::vector{ops::randperm(1)}; }},
      {"unary", {-0.5}, [&] { return std::vector{ops::unary(UnaryOp::neg, x)}; }},
      {"unary_backward", {3}, [&] { return std::vector{ops::unary_backward(UnaryOp::square, y, x)}; }},
      {"binary", {3.5}, [&] { return std::vector{ops::binary(BinaryOp::add, x, y)}; }},
      {"binary_scalar", {2.5}, [&] { return std::vector{ops::binary_scalar(BinaryOp::sub, y, 0.5)}; }},
      {"binary_scalar, reversed", {-2.5}, [&] { return std::vector{ops::binary_scalar(BinaryOp::sub, y, 0.5, true)}; }},
      {"where", {0.5}, [&] { return std::vector{ops::where(yes, x, y)}; }},
      {"cast", {3}, [&] { return std::vector{ops::cast(y, kF64)}; }},
      {"copy_into", {3}, [&] { return into(kF32, [&](const Array& r) { ops::copy_into(r, y); }); }},
      {"clone", {3}, [&] { return std::vector{ops::clone(y)}; }},
      {"cat",
       {0.5, 3},
       [&] {
         return std::vector{ops::cat({x, y}, 0)};
       }},
      {"reduce", {3}, [&] { return std::vector{ops::reduce(ReduceOp::sum, y, 1, false, kF32)}; }},
      {"arg_reduce", {3, 0}, [&] { return pair(ops::arg_reduce(ArgReduceOp::argmax, y, 0, false)); }},
      {"arg_reduce of a scalar",
       {3, 0},
       [&] { return pair(ops::arg_reduce(ArgReduceOp::argmin, y.select(0, 0), 0, true)); }},
      {"scan", {3}, [&] { return std::vector{ops::scan(ScanOp::sum, y, 0, false, kF32)}; }},
      {"linear_recurrence", {3}, [&] { return std::vector{ops::linear_recurrence(x, y, 0, false)}; }},
      {"variance", {0}, [&] { return std::vector{ops::variance(y, 1, false, 0)}; }},
      {"norm", {3}, [&] { return std::vector{ops::norm(y, 2, 1, false)}; }},
      {"logsumexp", {3}, [&] { return std::vector{ops::logsumexp(y, 1, false)}; }},
      {"matmul", {16}, [&] { return std::vector{ops::matmul(matrix, matrix)}; }},
      {"matmul of vectors", {1.5}, [&] { return std::vector{ops::matmul(x, y)}; }},
      {"linear", {19}, [&] { return std::vector{ops::linear(matrix, matrix, y)}; }},
      {"addmm", {19}, [&] { return std::vector{ops::addmm(y, matrix, matrix)}; }},
      {"index_select", {3}, [&] { return std::vector{ops::index_select(y, 0, at)}; }},
      {"index_into", {3}, [&] { return into(kF32, [&](const Array& r) { ops::index_into(r, 0, at, y, false); }); }},
      {"gather", {3}, [&] { return std::vector{ops::gather(y, 0, at)}; }},
      {"scatter_into", {3}, [&] { return into(kF32, [&](const Array& r) { ops::scatter_into(r, 0, at, y, false); }); }},
      {"checked_index", {0}, [&] { return std::vector{ops::checked_index(filled({1}, -1, kI64), 1, 0)}; }},
      {"nonzero", {0}, [&] { return std::vector{ops::nonzero(y)}; }},
      {"sort", {3, 0}, [&] { return pair(ops::sort(y, 0, false)); }},
      {"argsort", {0}, [&] { return std::vector{ops::argsort(y, 0, true)}; }},
      {"topk", {3, 0}, [&] { return pair(ops::topk(y, 1, 0, true)); }},
      {"unique",
       {3, 0, 1},
       [&] {
         const auto [values, inverse, counts] = ops::unique(y, true);
         return std::vector{values, inverse, counts};
       }},
      {"multinomial", {0}, [&] { return std::vector{ops::multinomial(y, 1, false)}; }},
      {"multinomial with replacement", {0, 0}, [&] { return std::vector{ops::multinomial(y, 2, true)}; }},
      {"conv2d", {9}, [&] { return std::vector{ops::conv2d(image, three, y, false, {})}; }},
      {"conv2d_backward",
       {6, 4, 2},
       [&] {
         const auto gradients = ops::conv2d_backward(image, image, three, {}, true, true, true, {}, false);
         return std::vector{gradients.dx, gradients.dw, gradients.dbias};
       }},
      {"conv2d_backward_data",
       {6},
       [&] {
         return std::vector{ops::conv2d_backward_data(image, three, {1, 1, 1, 1}, MemoryFormat::contiguous, {})};
       }},
      {"conv2d_backward_weight",
       {6},
       [&] {
         return std::vector{ops::conv2d_backward_weight(image, three, {1, 1, 1, 1}, MemoryFormat::contiguous, {})};
       }},
      {"max_pool2d", {2, 0}, [&] { return pair(ops::max_pool2d(image, window, false)); }},
      {"max_pool2d_backward",
       {3},
       [&] {
         return std::vector{ops::max_pool2d_backward(three, filled({1, 1, 1, 1}, 0, DType::i32), {1, 1, 1, 1}, window)};
       }},
      {"pick_from_planes",
       {2},
       [&] {
         return std::vector{ops::pick_from_planes(image, filled({1, 1, 1, 1}, 0, DType::i32))};
       }},
      {"resample2d", {2}, [&] { return std::vector{ops::resample2d(image, one, one)}; }},
      {"rgb_to_grayscale",
       {0.2989 * 2 + 0.587 * 3 + 0.114 * 4},
       [&] {
         return std::vector{ops::rgb_to_grayscale(listed({3, 1, 1}, {2, 3, 4}))};
       }},
      {"softmax", {1}, [&] { return std::vector{ops::softmax(y, 0, false)}; }},
      {"log_softmax", {0}, [&] { return std::vector{ops::softmax(y, 0, true)}; }},
      {"softmax of a scalar", {1}, [&] { return std::vector{ops::softmax(y.select(0, 0), 0, false)}; }},
      {"log_softmax of a scalar", {0}, [&] { return std::vector{ops::softmax(y.select(0, 0), 0, true)}; }},
      {"softmax_backward", {0}, [&] { return std::vector{ops::softmax_backward(y, filled({1}, 1), 0, false)}; }},
      {"softmax_backward of a scalar",
       {0},
       [&] { return std::vector{ops::softmax_backward(y.select(0, 0), y.select(0, 0), 0, false)}; }},
      {"pick", {4}, [&] { return std::vector{ops::pick(matrix, at, -1)}; }},
      {"pick_backward",
       {3},
       [&] {
         return std::vector{ops::pick_backward(y, at, -1, {1, 1})};
       }},
      {"count_targets", {1}, [&] { return std::vector{ops::count_targets(at, -1, kF32)}; }},
      {"cross_entropy",
       {0, 0, 1, 0},
       [&] {
         const auto saved = ops::cross_entropy(matrix, at, -1, Reduction::mean);
         const Array dx = ops::cross_entropy_backward(ops::full({}, 1, kF32), saved, at, -1, Reduction::mean);
         return std::vector{saved.loss, saved.log_probabilities, saved.weight_sum, dx};
       }},
      {"dropout", {4, 1}, [&] { return pair(ops::dropout(matrix, 0)); }},
      {"dropout_backward",
       {8},
       [&] {
         return std::vector{ops::dropout_backward(matrix, filled({1, 1}, 1, DType::boolean), 0.5)};
       }},
      {"attention",
       {3, 1},
       [&] {
         const auto result = ops::attention(image, image, three, {}, {});
         return std::vector{result.y, result.weights};
       }},
  };
  on_each_cpu_backend([&] {
    for (const Call& call : calls) {
      INFO(call.name);
      dirty_memory();
      std::vector<double> found;
      for (const Array& result : call.run())
        for (const double value : test::values(result)) found.push_back(value);
      REQUIRE(found.size() == call.expected.size());
      for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(call.expected[i]).margin(1e-6));
    }
  });
}

}  // namespace array_calls_test
