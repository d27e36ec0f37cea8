#include <gradus/autograd/ops/elementwise.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/nn/activation.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

struct Unary final : Node {  // y = op(x); the formulas are in core/formulas/scalar_unary.h
  Saved saved{this, "x or y"};
  UnaryOp op = UnaryOp::neg;
  UnaryArgs args;
  const char* name() const override { return gradus::name(op); }
  Array forward(const Array& x, UnaryOp op, const UnaryArgs& args) {
    this->op = op;
    this->args = args;
    const bool keep =
        needs_grad(0) && op != UnaryOp::neg && !is_step_function(op);  // constant derivatives need no saved tensor
    if (keep && !saves_output(op)) saved = input(0);
    Array y = ops::unary(op, x, args, destination(x));
    if (keep && saves_output(op)) saved = own(y);
    return y;
  }
  bool backward_in_float32() const override { return GradMode::is_enabled(); }  // otherwise one kernel computes dx
  Grads backward(const Tensor& dy) override {
    if (op == UnaryOp::neg) return {-dy};
    if (is_step_function(op)) return {zeros_like(dy)};
    return {unary_backward(op, dy, saved(), args)};
  }
};

struct UnaryBackward final : Node {  // dx = dy op'(saved); needs no backward (see unary_backward)
  Array forward(const Array& dy, const Array& saved, UnaryOp op, const UnaryArgs& args) {
    return ops::unary_backward(op, dy, saved, args);
  }
};

// op'(x) from differentiable operators. `saved` is y if saves_output(op) is true, else x.
Tensor slope(UnaryOp op, const Tensor& saved, const UnaryArgs& args) {
  switch (op) {
    case UnaryOp::abs: return sign(saved);
    case UnaryOp::square: return saved * 2;
    case UnaryOp::exp: return saved;
    case UnaryOp::expm1: return saved + 1;
    case UnaryOp::rsqrt: return -0.5 * saved.pow(3);
    case UnaryOp::reciprocal: return -square(saved);
    case UnaryOp::sin: return cos(saved);
    case UnaryOp::cos: return -sin(saved);
    case UnaryOp::erf: return exp(-square(saved)) * (2 * std::numbers::inv_sqrtpi);
    case UnaryOp::sigmoid: return saved * (1 - saved);
    case UnaryOp::tanh: return 1 - square(saved);
    case UnaryOp::elu:  // exp only where the result is used; elsewhere it might overflow
      return where(saved > 0, 1.0, exp(clamp_max(saved, 0) * args.b) * (args.a * args.b));
    case UnaryOp::gelu: {
      const Tensor density = exp(square(saved) * -0.5) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
      return (erf(saved / std::numbers::sqrt2) + 1) * 0.5 + saved * density;
    }
    case UnaryOp::gelu_tanh: {  // y = x sigmoid(u), u = c (x + 0.044715 x^3)
      const double c = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
      const Tensor square_x = square(saved), s = sigmoid(saved * (1 + 0.044715 * square_x) * c);
      return s + saved * s * (1 - s) * (1 + 0.134145 * square_x) * c;
    }
    case UnaryOp::silu: {
      const Tensor s = sigmoid(saved);
      return s * (1 + saved * (1 - s));
    }
    case UnaryOp::softplus: return where(saved * args.a > args.b, 1.0, sigmoid(saved * args.a));
    case UnaryOp::mish: {
      const Tensor t = tanh(softplus(saved));
      return t + saved * (1 - square(t)) * sigmoid(saved);
    }
    case UnaryOp::log_sigmoid: return sigmoid(-saved);
    default: GRADUS_FAIL(AutogradError, name(op), " has no derivative");
  }
}

using Bound = std::optional<Operand>;

// Clamps an integer bound to the range of `dtype`: the lower bound -1 of a uint8 tensor becomes 0.
Scalar within(const Scalar& bound, DType dtype) {
  if (bound.is_floating()) return bound;
  return visit(dtype, [&]<class T>() -> Scalar {
    if constexpr (!std::is_integral_v<T>) return bound;
    else return std::clamp<int64_t>(bound.to_int64(), std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  });
}

// Decides how x is clamped: by one kernel, or by clamp_by_choice for bounds that are tensors, NaN, or integers that a
// double cannot represent.
struct Clamp {
  Clamp(const Tensor& x, const Bound& min, const Bound& max) {
    GRADUS_CHECK(min || max, ValueError, "clamp needs a lower or an upper bound");
    for (const Bound* bound : {&min, &max}) {
      if (!*bound) continue;
      const Operand& b = **bound;
      const double number = within(b.scalar, x.dtype()).to_double();
      const bool is_exact = std::isinf(number) || std::abs(number) < 0x1p53 || is_floating(x.dtype());
      in_one_kernel = in_one_kernel && !b.tensor && !std::isnan(number) && (is_exact || b.scalar.is_floating());
      fractions = fractions || b.scalar.is_floating();
      (bound == &min ? args.a : args.b) = number;
    }
  }
  UnaryArgs args{-HUGE_VAL, HUGE_VAL};
  bool fractions = false, in_one_kernel = true;
};

// Clamps with `where`. If x or a bound is NaN, the result is NaN.
Tensor clamp_by_choice(const Tensor& x, const Bound& min, const Bound& max) {
  Tensor y = x;
  if (min) y = where((y >= *min).logical_or(isnan(y)), y, *min);
  if (max) y = where((y <= *max).logical_or(isnan(y)), y, *max);
  return y;
}

}  // namespace

Tensor unary(const char* name, UnaryOp op, const Tensor& x, Loc where, const UnaryArgs& args) {
  return apply<Unary>({name, where}, x, op, args);
}

const Tensor& unary_(const char* name, UnaryOp op, const Tensor& x, Loc where, const UnaryArgs& args) {
  return apply_in_place<Unary>({name, where}, x, op, args);
}

Tensor unary_backward(UnaryOp op, const Tensor& dy, const Tensor& saved, const UnaryArgs& args) {
  const bool differentiable = GradMode::is_enabled() && (dy.requires_grad() || saved.requires_grad());
  if (!differentiable) return apply<UnaryBackward>("unary_backward", dy, saved, op, args);
  // Piecewise linear functions use `where`. If op' is a reciprocal, dy is divided by the factors of its denominator:
  // the second derivative then divides by one factor after another and contains no square, which could overflow. All
  // other functions multiply dy by op'.
  switch (op) {
    case UnaryOp::log: return dy / saved;
    case UnaryOp::log1p: return dy / (saved + 1);
    case UnaryOp::log2: return dy / (saved * std::numbers::ln2);
    case UnaryOp::log10: return dy / (saved * std::numbers::ln10);
    case UnaryOp::sqrt: return dy / (saved * 2);
    case UnaryOp::relu: return where(saved <= 0, 0.0, dy);
    case UnaryOp::leaky_relu: return where(saved > 0, dy, dy * args.a);
    case UnaryOp::hardswish: return where(saved < -3, 0.0, where(saved > 3, dy, dy * (saved / 3 + 0.5)));
    case UnaryOp::clamp: return where((saved >= args.a).logical_and(saved <= args.b), dy, 0.0);
    case UnaryOp::hardtanh: return where((saved > args.a).logical_and(saved < args.b), dy, 0.0);
    default: return dy * slope(op, saved, args);
  }
}

// Defines the functions and methods listed in core/op_lists.h.
#define GRADUS_FUNCTION(op, ...) \
  Tensor op(const Tensor& x, Loc where) { return unary(#op, UnaryOp::op, x, where); }
GRADUS_UNARY_FUNCTIONS(GRADUS_FUNCTION)
#undef GRADUS_FUNCTION
#define GRADUS_METHODS(op, ...) \
  Tensor Tensor::op(Loc where) const { return gradus::op(*this, where); } \
  const Tensor& Tensor::op##_(Loc where) const { return unary_(#op "_", UnaryOp::op, *this, where); }
GRADUS_UNARY_METHODS(GRADUS_METHODS)
#undef GRADUS_METHODS

Tensor clamp(const Tensor& x, std::optional<Operand> min, std::optional<Operand> max, Loc where) {
  OpScope op("clamp", where);
  const Clamp how(x, min, max);
  if (!how.in_one_kernel) return clamp_by_choice(x, min, max);
  if (how.fractions && !is_floating(x.dtype())) return clamp(x.to(kFloat), min, max);
  return apply<Unary>(op, x, UnaryOp::clamp, how.args);
}
Tensor clamp_min(const Tensor& x, const Operand& min) { return clamp(x, min, {}, min.where); }
Tensor clamp_max(const Tensor& x, const Operand& max) { return clamp(x, {}, max, max.where); }

// ---- Compositions ----

Tensor tan(const Tensor& x, Loc where) {
  return composed(
      {"tan", where}, [](const Tensor& x) { return sin(x) / cos(x); }, x);
}

Tensor logaddexp(const Tensor& a, const Tensor& b, Loc where) {
  OpScope op("logaddexp", where);
  const auto sum = [](const Tensor& a, const Tensor& b) {
    const Tensor distance = abs(gradus::where(a == b, 0, a - b));  // 0 for equal infinities
    return maximum(a, b) + log1p(exp(-distance));
  };
  return composed(op, sum, a, b);
}
Tensor nan_to_num(const Tensor& x, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf, Loc where) {
  OpScope op("nan_to_num", where);
  if (!is_floating(x.dtype())) return x.clone();
  const double largest = x.dtype() == kHalf       ? 65504
                         : x.dtype() == kBFloat16 ? 0x1.fep127
                         : x.dtype() == kFloat    ? std::numeric_limits<float>::max()
                                                  : std::numeric_limits<double>::max();
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor numbers = x.masked_fill(isnan(x), nan.value_or(0));
  return numbers.masked_fill(x == infinity, posinf.value_or(largest))
      .masked_fill(x == -infinity, neginf.value_or(-largest));
}
Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan, Loc where) {
  OpScope op("isclose", where);
  GRADUS_CHECK(rtol >= 0 && atol >= 0, ValueError, "tolerances must not be negative, got ", rtol, " and ", atol);
  const NoGradGuard no_grad;
  const Tensor x = a.to(kDouble), y = b.to(kDouble), allowed = y.abs() * rtol + atol;
  const Tensor close = (x == y) | (isfinite(allowed) & ((x - y).abs() <= allowed));
  return equal_nan ? close | (isnan(x) & isnan(y)) : close;
}

// ---- In place ----

const Tensor& Tensor::clamp_(std::optional<Operand> min, std::optional<Operand> max, Loc where) const {
  OpScope op("clamp_", where);
  const Clamp how(*this, min, max);
  if (!how.in_one_kernel || (how.fractions && !is_floating(dtype()))) {
    const Tensor y = clamp_by_choice(*this, min, max);
    ops::check_into(array(), y.sizes(), y.dtype());
    return copy_(y);
  }
  return apply_in_place<Unary>(op, *this, UnaryOp::clamp, how.args);
}

// ---- Hyperbolic functions, and inverses of trigonometric and hyperbolic functions ----

namespace {

// f and its derivative.
struct TrigFunction {
  const char* name = "";
  Array (*value)(const Array& x) = nullptr;
  Tensor (*slope)(const Tensor& x) = nullptr;
};

// Kernels that write their result into their first operand.
Array step(UnaryOp op, const Array& x) { return ops::unary(op, x, {}, &x); }
Array step(BinaryOp op, const Array& a, const Array& b) { return ops::binary(op, a, b, &a); }
Array step(BinaryOp op, const Array& a, double b) { return ops::binary_scalar(op, a, b, /*scalar_first=*/false, &a); }

// (exp(x) + exp(-x)) / 2 = c (exp(x - s) + exp(-x - s)) with c = exp(s) / 2, which is close to 1. exp(x) itself would
// overflow earlier than the result. s has few significant bits, so that x - s is exact.
Array cosh_value(const Array& x) {
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

// For x > kLarge, asinh(x) and acosh(x) equal ln(2 x) in floating point. The functions below compute this as f(kLarge)
// + ln(x / kLarge), where f is asinh or acosh.
constexpr double kLarge = 1e9;

Array below_large(const Array& x) { return ops::unary(UnaryOp::clamp, x, {-HUGE_VAL, kLarge}); }
Array log_above_large(const Array& x) {
  return step(UnaryOp::log, step(BinaryOp::div, ops::unary(UnaryOp::clamp, x, {kLarge, HUGE_VAL}), kLarge));
}

// ln(a + sqrt(a² + 1)) for a = |x|, with x's sign
Array asinh_value(const Array& x) {
  const Array a = ops::unary(UnaryOp::abs, x), b = below_large(a), square = ops::unary(UnaryOp::square, b);
  const Array root = step(UnaryOp::sqrt, ops::binary_scalar(BinaryOp::add, square, 1, false));
  const Array more = step(BinaryOp::div, square, step(BinaryOp::add, root, 1));  // sqrt(b² + 1) - 1
  const Array y = step(BinaryOp::add, step(UnaryOp::log1p, step(BinaryOp::add, b, more)), log_above_large(a));
  return step(BinaryOp::mul, y, ops::unary(UnaryOp::sign, x));
}

// ln(x + sqrt(x² - 1)), computed from x - 1
Array acosh_value(const Array& x) {
  const Array above = step(BinaryOp::sub, below_large(x), 1);
  const Array more = step(UnaryOp::sqrt, ops::binary_scalar(BinaryOp::add, above, 2, false));
  const Array root = step(BinaryOp::mul, more, ops::unary(UnaryOp::sqrt, above));
  return step(BinaryOp::add, step(UnaryOp::log1p, step(BinaryOp::add, root, above)), log_above_large(x));
}

Array sinh_value(const Array& x) { return step(BinaryOp::mul, ops::unary(UnaryOp::tanh, x), cosh_value(x)); }
Array asin_value(const Array& x) { return ops::binary(BinaryOp::atan2, x, root_of_rest(x)); }
Array acos_value(const Array& x) { return ops::binary(BinaryOp::atan2, root_of_rest(x), x); }
Array atan_value(const Array& x) { return ops::binary_scalar(BinaryOp::atan2, x, 1, /*scalar_first=*/false); }
Array atanh_value(const Array& x) {
  const Array up = ops::unary(UnaryOp::log1p, x), down = step(UnaryOp::log1p, ops::unary(UnaryOp::neg, x));
  return step(BinaryOp::div, step(BinaryOp::sub, up, down), 2);
}

Tensor sinh_slope(const Tensor& x) { return cosh(x); }
Tensor cosh_slope(const Tensor& x) { return sinh(x); }
Tensor asin_slope(const Tensor& x) { return rsqrt((1 - x) * (1 + x)); }
Tensor acos_slope(const Tensor& x) { return -asin_slope(x); }
Tensor atan_slope(const Tensor& x) { return reciprocal(1 + square(x)); }
// 1 / sqrt(1 + x²), numerator and denominator times r, because x² may overflow
Tensor asinh_slope(const Tensor& x) {
  const Tensor r = reciprocal(clamp_min(abs(x.detach()), 1));
  return r * rsqrt(square(r) + square(x * r));
}
Tensor acosh_slope(const Tensor& x) { return rsqrt(x - 1) * rsqrt(x + 1); }
Tensor atanh_slope(const Tensor& x) { return reciprocal((1 - x) * (1 + x)); }

struct Trigonometric final : Node {  // y = f(x)
  Saved x{this, "x"};
  TrigFunction f;
  const char* name() const override { return f.name; }
  Array forward(const Array& X, const TrigFunction& function) {
    f = function;
    if (needs_grad(0)) x = input(0);
    return f.value(X);
  }
  Grads backward(const Tensor& dy) override { return {dy * f.slope(x())}; }
};

Tensor run_trig(const TrigFunction& f, const Tensor& x, Loc where) {
  OpScope op(f.name, where);
  const Tensor floating = is_floating(x.dtype()) ? x : x.to(get_default_dtype());
  return composed(
      op, [&](const Tensor& x) { return apply<Trigonometric>(op, x, f); }, floating);
}

}  // namespace

// Defines the function f(x) and the method x.f().
#define GRADUS_TRIGONOMETRIC(f) \
  Tensor f(const Tensor& x, Loc where) { return run_trig({#f, f##_value, f##_slope}, x, where); } \
  Tensor Tensor::f(Loc where) const { return gradus::f(*this, where); }
GRADUS_TRIGONOMETRIC(sinh)
GRADUS_TRIGONOMETRIC(cosh)
GRADUS_TRIGONOMETRIC(asin)
GRADUS_TRIGONOMETRIC(acos)
GRADUS_TRIGONOMETRIC(atan)
GRADUS_TRIGONOMETRIC(asinh)
GRADUS_TRIGONOMETRIC(acosh)
GRADUS_TRIGONOMETRIC(atanh)
#undef GRADUS_TRIGONOMETRIC

}  // namespace gradus
