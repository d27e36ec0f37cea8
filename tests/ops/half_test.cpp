// Operators compute intermediate results of half types in float32. For every op case that calls a single operator, the
// results and gradients in float16 and bfloat16 are those in float32 from the same inputs, rounded once. This also
// holds where squares overflow or underflow float16. The exceptions are listed by name.
#include <algorithm>
#include <cmath>

#include <gradus/core/runtime/observer.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

struct HalfException {
  const char* operators;  // separated and surrounded by commas
  bool results;           // true if results are rounded more than once, false if only gradients are
  const char* reason;
};
constexpr HalfException kHalfExceptions[] = {
    {",exp,exp_,expm1,expm1_,sqrt,sqrt_,rsqrt,rsqrt_,reciprocal,reciprocal_,sigmoid,sigmoid_,tanh,tanh_,Sigmoid,Tanh,",
     false, "the derivative is computed from the result, which is kept rounded"},
    {",softmax,log_softmax,softmin,Softmax,Softmax2d,LogSoftmax,Softmin,", false, "so is it here"},
    {",cumprod,pow,pow_,", false, "and here, as far as it is computed from the result"},
    {",conv_transpose1d,conv_transpose2d,ConvTranspose1d,ConvTranspose2d,", true,
     "the convolution is rounded before the bias is added"},
    {",scaled_dot_product_attention,", true, "scores and weights are rounded between the products"},
};

bool is_exception(const OpCase& op_case, bool results) {
  const auto names = [&](const HalfException& exception) {
    return (exception.results || !results) &&
           std::string_view(exception.operators).find("," + op_case.op() + ",") != std::string_view::npos;
  };
  return std::any_of(std::begin(kHalfExceptions), std::end(kHalfExceptions), names);
}

/// Cases that pass the same tensor as two operands. Its gradient is a sum of two gradients, each rounded.
constexpr std::string_view kOneTensorTwice = ",matmul.squared,batch_norm_relu.itself,";

/// Counts the operators that a case calls directly. In a case that calls several, each of them rounds its result.
class OperatorCount : public Observer {
 public:
  OperatorCount() { add_observer(this); }
  ~OperatorCount() override { remove_observer(this); }
  void on_begin(const ObservedEvent& event) override {
    count += event.kind == ObservedEvent::Kind::op && event.depth == 0;
  }
  int count = 0;
};

TensorList scaled_inputs(const OpCase& op_case, DType dtype, double scale) {
  const NoGradGuard no_grad;
  TensorList inputs;
  for (const Tensor& x : op_cases::make_inputs(op_case, dtype))
    inputs.push_back(x.is_floating_point() ? x * scale : x);  // exact: scale is a power of two
  return inputs;
}

TensorList converted(const TensorList& inputs, DType from, DType to) {
  TensorList result;
  for (const Tensor& x : inputs) result.push_back(x.dtype() == from ? x.detach().to(to) : x.detach());
  return result;
}

/// The largest |actual - expected| in units in the last place of `dtype` at the expected value; infinity if the two are
/// not infinite or NaN at the same positions. Kernels of half types may add in another order; for that, 1e-6 of the
/// largest element is allowed in addition.
double ulps(const Tensor& actual, const Tensor& expected, DType dtype) {
  const std::vector<double> a = test::values(actual.array()), e = test::values(expected.array()),
                            rounded = test::values(expected.to(dtype).array());
  const int digits = dtype == kHalf ? 10 : 7, least = dtype == kHalf ? -14 : -126;
  double largest = 0, off = 0;
  for (double value : e)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == rounded[i] || (std::isnan(a[i]) && std::isnan(rounded[i]))) continue;
    if (!std::isfinite(a[i]) || !std::isfinite(rounded[i])) return INFINITY;
    const int exponent = e[i] == 0 ? least : std::max(std::ilogb(e[i]), least);
    off = std::max(off, (std::abs(a[i] - e[i]) - 1e-6 * largest) / std::ldexp(1, exponent - digits));
  }
  return off;
}

std::string compare_lists(const char* what, const TensorList& actual, const TensorList& expected) {
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    if (!actual[i].defined() || !expected[i].defined() || !is_half(actual[i].dtype())) continue;
    const double off = ulps(actual[i], expected[i], actual[i].dtype());
    if (off > 0.501) return what + std::to_string(i) + " is off by " + std::to_string(off) + " units in the last place";
  }
  return "";
}

/// Returns the difference between the case in `dtype` and in float32, or "". *single becomes true if the case calls one
/// operator; other cases are not compared.
std::string compare_with_float(const OpCase& op_case, DType dtype, double scale, bool* single) {
  const TensorList inputs = scaled_inputs(op_case, dtype, scale);
  {
    const TensorList leaves = converted(inputs, dtype, dtype);
    manual_seed(20);
    const OperatorCount operators;
    try {
      op_case.run(leaves);
    } catch (const Error&) { return ""; }  // the operator does not accept the scaled inputs
    *single = operators.count == 1;
  }
  if (!*single) return "";
  const int order = std::min(op_case.order, 1);
  const Computed half = compute(op_case, converted(inputs, dtype, dtype), order);
  const Computed wide = compute(op_case, converted(inputs, dtype, kFloat), order);
  std::string text = is_exception(op_case, true) ? "" : compare_lists("result ", half.y, wide.y);
  const bool twice = kOneTensorTwice.find("," + op_case.name + ",") != std::string_view::npos;
  if (text.empty() && !twice && !is_exception(op_case, false))
    text = compare_lists("gradient of input ", half.g, wide.g);
  return text;
}

}  // namespace

TEST_CASE("half types are rounded once, in results and gradients of every operator", "[accuracy]") {
  const OneThread one_thread;
  int compared = 0;
  for (const char* backend_name : {"naive", "openmp"}) {
    const BackendGuard guard(backend_name);
    for (const OpCase& op_case : op_cases::all_cases()) {
      for (DType dtype : {kHalf, kBFloat16}) {
        if (!op_case.runs_in(dtype)) continue;
        for (double scale : {1.0, 512.0, 0x1p-9}) {
          bool single = false;
          const std::string where = std::string(backend_name) + " " + std::string(name(dtype)) + " " + op_case.name +
                                    " times " + std::to_string(scale) + ": ";
          CHECK(where + guarded([&] { return compare_with_float(op_case, dtype, scale, &single); }) == where);
          compared += single;
        }
      }
    }
  }
  CHECK(compared > 4000);
}

TEST_CASE("a deviation beyond the squares of float16 has its value and gradient") {
  const Tensor x = tensor({512.0f, -512.0f}).to(kHalf).set_requires_grad(true);
  const Tensor y = x.std();
  y.backward();
  CHECK(y.item<float>() == 724.0f);
  CHECK(x.grad().to(kFloat).allclose(tensor({0.70711f, -0.70711f}), 1e-3));
}

TEST_CASE("the number on the other side of a half tensor keeps its digits") {
  const Tensor x = full({3}, 1000, kHalf);
  CHECK((x * 0.1003)[0].item<float>() == tensor(100.3f).to(kHalf).item<float>());
  CHECK((1000.7 - x)[0].item<float>() == tensor(0.7f + 2e-5f).to(kHalf).item<float>());
}

TEST_CASE("quotients of half types that are rounded to integers are those of the exact numbers") {
  for (DType dtype : {kHalf, kBFloat16}) {
    manual_seed(11);
    const Tensor a = (randn({4000}) * 300).to(dtype), b = (randn({4000}) * 5).to(dtype);
    const Tensor wide_a = a.to(kDouble), wide_b = b.to(kDouble);
    for (const char* mode : {"trunc", "floor"}) CHECK(div(a, b, mode).equal(div(wide_a, wide_b, mode).to(dtype)));
  }
}

TEST_CASE("rrelu_ rounds half types once, as rrelu does") {
  for (DType dtype : {kHalf, kBFloat16}) {
    const Tensor x = -rand({1000}).to(dtype);
    const auto drawn = [&](bool in_place) {
      manual_seed(4);
      return in_place ? rrelu_(x.clone(), 0.1, 0.3, true) : rrelu(x, 0.1, 0.3, true);
    };
    CHECK(drawn(true).equal(drawn(false)));
  }
  const Tensor x = tensor({-4.0f, -1.0f, 0.0f, 2.0f});  // equal bounds are one slope
  for (const bool training : {false, true}) {
    CHECK(rrelu(x, 0.25, 0.25, training).equal(leaky_relu(x, 0.25)));
    CHECK(rrelu_(x.clone(), 0.25, 0.25, training).equal(leaky_relu(x, 0.25)));
  }
}

TEST_CASE("sums over many indices of a half type do not stop") {
  for (const char* backend_name : {"naive", "openmp"}) {
    const BackendGuard guard(backend_name);
    for (DType dtype : {kHalf, kBFloat16}) {
      const Tensor places = zeros({5000}, kLong);
      CHECK(zeros({1}, dtype).index_add(0, places, ones({5000}, dtype)).item<float>() ==
            tensor(5000.0f).to(dtype).item<float>());
    }
  }
}
