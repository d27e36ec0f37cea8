// Hyperbolic functions and the inverses of trigonometric and hyperbolic functions, composed of kernels, with
// derivatives in closed form. No intermediate value overflows or loses precision unless the result does.
#include <cmath>

#include <gradus/autograd/composed.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/unary.h>
#include <gradus/core/binary_ops.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/unary_ops.h>

namespace gradus {
namespace {

enum class TrigFunction : uint8_t { sinh, cosh, asin, acos, atan, asinh, acosh, atanh };

// Kernels that overwrite their first operand: steps of a formula.
Array step(UnaryOp op, const Array& x) { return ops::unary(op, x, {}, &x); }
Array step(BinaryOp op, const Array& a, const Array& b) { return ops::binary(op, a, b, &a); }
Array step(BinaryOp op, const Array& a, double b) { return ops::binary_scalar(op, a, b, /*scalar_first=*/false, &a); }

// (exp(x) + exp(-x)) / 2 = c (exp(x - s) + exp(-x - s)) with c = exp(s) / 2, which is close to 1. exp(x) itself would
// overflow earlier than the result. s has few significant bits, so that x - s is exact.
Array cosh_of(const Array& x) {
  constexpr double s = 355.0 / 512;
  const Array up = step(UnaryOp::exp, ops::binary_scalar(BinaryOp::sub, x, s, /*scalar_first=*/false));
  const Array down = step(UnaryOp::exp, ops::binary_scalar(BinaryOp::sub, x, -s, /*scalar_first=*/true));
  return step(BinaryOp::mul, step(BinaryOp::add, up, down), std::exp(s) / 2);
}

// sqrt((1 - x) (1 + x)). asin is atan2(x, this) and acos is atan2(this, x), which are accurate at both ends of the
// range.
Array root_of_rest(const Array& x) {
  const Array rest = ops::binary_scalar(BinaryOp::sub, x, 1, /*scalar_first=*/true);
  return step(UnaryOp::sqrt, step(BinaryOp::mul, rest, ops::binary_scalar(BinaryOp::add, x, 1, false)));
}

// For larger x, asinh(x) and acosh(x) are ln(2 x) = f(kLarge) + ln(x / kLarge).
constexpr double kLarge = 1e9;

Array below_large(const Array& x) { return ops::unary(UnaryOp::clamp, x, {-HUGE_VAL, kLarge}); }
Array log_above_large(const Array& x) {
  return step(UnaryOp::log, step(BinaryOp::div, ops::unary(UnaryOp::clamp, x, {kLarge, HUGE_VAL}), kLarge));
}

// ln(a + sqrt(a² + 1)) for a = |x|, with x's sign
Array asinh_of(const Array& x) {
  const Array a = ops::unary(UnaryOp::abs, x), b = below_large(a), square = ops::unary(UnaryOp::square, b);
  const Array root = step(UnaryOp::sqrt, ops::binary_scalar(BinaryOp::add, square, 1, false));
  const Array more = step(BinaryOp::div, square, step(BinaryOp::add, root, 1));  // sqrt(b² + 1) - 1
  const Array y = step(BinaryOp::add, step(UnaryOp::log1p, step(BinaryOp::add, b, more)), log_above_large(a));
  return step(BinaryOp::mul, y, ops::unary(UnaryOp::sign, x));
}

// ln(x + sqrt(x² - 1)), computed from x - 1
Array acosh_of(const Array& x) {
  const Array above = step(BinaryOp::sub, below_large(x), 1);
  const Array more = step(UnaryOp::sqrt, ops::binary_scalar(BinaryOp::add, above, 2, false));
  const Array root = step(BinaryOp::mul, more, ops::unary(UnaryOp::sqrt, above));
  return step(BinaryOp::add, step(UnaryOp::log1p, step(BinaryOp::add, root, above)), log_above_large(x));
}

Array trig_value(TrigFunction function, const Array& x) {
  switch (function) {
    case TrigFunction::sinh: return step(BinaryOp::mul, ops::unary(UnaryOp::tanh, x), cosh_of(x));
    case TrigFunction::cosh: return cosh_of(x);
    case TrigFunction::asin: return ops::binary(BinaryOp::atan2, x, root_of_rest(x));
    case TrigFunction::acos: return ops::binary(BinaryOp::atan2, root_of_rest(x), x);
    case TrigFunction::atan: return ops::binary_scalar(BinaryOp::atan2, x, 1, /*scalar_first=*/false);
    case TrigFunction::asinh: return asinh_of(x);
    case TrigFunction::acosh: return acosh_of(x);
    case TrigFunction::atanh: {
      const Array up = ops::unary(UnaryOp::log1p, x), down = step(UnaryOp::log1p, ops::unary(UnaryOp::neg, x));
      return step(BinaryOp::div, step(BinaryOp::sub, up, down), 2);
    }
  }
  __builtin_unreachable();
}

Tensor trig_slope(TrigFunction function, const Tensor& x) {
  switch (function) {
    case TrigFunction::sinh: return cosh(x);
    case TrigFunction::cosh: return sinh(x);
    case TrigFunction::asin: return rsqrt((1 - x) * (1 + x));
    case TrigFunction::acos: return -rsqrt((1 - x) * (1 + x));
    case TrigFunction::atan: return reciprocal(1 + square(x));
    case TrigFunction::asinh: {  // 1 / sqrt(1 + x²), divided by max(1, |x|) because the square may overflow
      const Tensor r = reciprocal(clamp_min(abs(x.detach()), 1));
      return r * rsqrt(square(r) + square(x * r));
    }
    case TrigFunction::acosh: return rsqrt(x - 1) * rsqrt(x + 1);
    case TrigFunction::atanh: return reciprocal((1 - x) * (1 + x));
  }
  __builtin_unreachable();
}

struct Trigonometric final : Node {  // y = f(x)
  Saved x{this, "x"};
  TrigFunction function = TrigFunction::sinh;
  const char* function_name = "";
  const char* name() const override { return function_name; }
  Array forward(const Array& X, TrigFunction f, const char* name) {
    function = f, function_name = name;
    if (needs_grad(0)) x = input(0);
    return trig_value(f, X);
  }
  Grads backward(const Tensor& dy) override { return {dy * trig_slope(function, x())}; }
};

Tensor run_trig(const char* name, TrigFunction function, const Tensor& x, Loc where) {
  OpScope op(name, where);
  const Tensor floating = is_floating(x.dtype()) ? x : x.to(get_default_dtype());
  return composed(
      op, [&](const Tensor& x) { return apply<Trigonometric>(op, x, function, name); }, floating);
}

}  // namespace

Tensor sinh(const Tensor& x, Loc where) { return run_trig("sinh", TrigFunction::sinh, x, where); }
Tensor cosh(const Tensor& x, Loc where) { return run_trig("cosh", TrigFunction::cosh, x, where); }
Tensor asin(const Tensor& x, Loc where) { return run_trig("asin", TrigFunction::asin, x, where); }
Tensor acos(const Tensor& x, Loc where) { return run_trig("acos", TrigFunction::acos, x, where); }
Tensor atan(const Tensor& x, Loc where) { return run_trig("atan", TrigFunction::atan, x, where); }
Tensor asinh(const Tensor& x, Loc where) { return run_trig("asinh", TrigFunction::asinh, x, where); }
Tensor acosh(const Tensor& x, Loc where) { return run_trig("acosh", TrigFunction::acosh, x, where); }
Tensor atanh(const Tensor& x, Loc where) { return run_trig("atanh", TrigFunction::atanh, x, where); }

}  // namespace gradus
