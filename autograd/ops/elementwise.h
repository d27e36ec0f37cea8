// Element-wise operators with broadcasting and type promotion (torch.result_type).
#pragma once

#include <optional>
#include <string_view>

#include <gradus/core/array/scalar.h>
#include <gradus/core/element_ops.h>

namespace gradus {

class Tensor;
using Loc = SourceLocation;

/// One argument of a binary operator: a tensor or a number, and the source line of the call.
struct Operand {
  Operand(const Tensor& tensor_, Loc where_ = Loc::current()) : tensor(&tensor_), where(where_) {}  // NOLINT
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T number, Loc where_ = Loc::current())
      : scalar(number), where(where_) {}                                                  // NOLINT
  Operand(Scalar number, Loc where_ = Loc::current()) : scalar(number), where(where_) {}  // NOLINT
  const Tensor* tensor = nullptr;
  Scalar scalar;
  Loc where;
};

Tensor add(const Operand& a, const Operand& b, const Scalar& alpha = 1);
Tensor sub(const Operand& a, const Operand& b, const Scalar& alpha = 1);
Tensor mul(const Operand& a, const Operand& b);
/// True division: integers become float32. With rounding_mode "trunc" (towards 0) or "floor" (down), the quotient of
/// integers is an integer and the gradient is 0.
Tensor div(const Operand& a, const Operand& b, std::optional<std::string_view> rounding_mode = {});
/// div(a, b, "floor")
Tensor floor_divide(const Operand& a, const Operand& b);
Tensor pow(const Operand& base, const Operand& exponent);
/// If an element is NaN the result is NaN. Of two equal elements each gets half of the gradient.
Tensor maximum(const Operand& a, const Operand& b);
Tensor minimum(const Operand& a, const Operand& b);
/// The remainder of a / b with the quotient truncated towards zero (fmod: sign of a, as in C) or rounded down
/// (remainder: sign of b, as Python's %). For integers, division by 0 is a ValueError on the CPU; on a GPU the result
/// is 0, because a check would make the host wait.
Tensor fmod(const Operand& a, const Operand& b);
Tensor remainder(const Operand& a, const Operand& b);
/// The angle of the point (b, a) in [-pi, pi]; integers become float32.
Tensor atan2(const Operand& a, const Operand& b);
/// start + weight (end - start)
Tensor lerp(const Tensor& start, const Tensor& end, const Operand& weight);
/// x + value a b, and x + value a / b
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1, Loc where = Loc::current());
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1, Loc where = Loc::current());

Tensor neg(const Tensor& x, Loc where = Loc::current());
Tensor abs(const Tensor& x, Loc where = Loc::current());
Tensor exp(const Tensor& x, Loc where = Loc::current());
Tensor log(const Tensor& x, Loc where = Loc::current());
Tensor sqrt(const Tensor& x, Loc where = Loc::current());
Tensor reciprocal(const Tensor& x, Loc where = Loc::current());
Tensor rsqrt(const Tensor& x, Loc where = Loc::current());
Tensor square(const Tensor& x, Loc where = Loc::current());
/// -1, 0 or 1. The gradient of sign, floor, ceil, round and trunc is 0.
Tensor sign(const Tensor& x, Loc where = Loc::current());
Tensor floor(const Tensor& x, Loc where = Loc::current());
Tensor ceil(const Tensor& x, Loc where = Loc::current());
/// Rounds to the nearest integer, and halves to the even integer.
Tensor round(const Tensor& x, Loc where = Loc::current());
/// Rounds towards zero.
Tensor trunc(const Tensor& x, Loc where = Loc::current());
Tensor sin(const Tensor& x, Loc where = Loc::current());
Tensor cos(const Tensor& x, Loc where = Loc::current());
Tensor tan(const Tensor& x, Loc where = Loc::current());
/// The eight functions below compute half types in float32. They and their derivatives are accurate to a few units in
/// the last place. Outside of the domain of a function, the result is NaN.
Tensor sinh(const Tensor& x, Loc where = Loc::current());
Tensor cosh(const Tensor& x, Loc where = Loc::current());   ///< (e^x + e^-x) / 2
Tensor asin(const Tensor& x, Loc where = Loc::current());   ///< in [-pi/2, pi/2]
Tensor acos(const Tensor& x, Loc where = Loc::current());   ///< in [0, pi]
Tensor atan(const Tensor& x, Loc where = Loc::current());   ///< in [-pi/2, pi/2]
Tensor asinh(const Tensor& x, Loc where = Loc::current());  ///< the inverse of sinh
Tensor acosh(const Tensor& x, Loc where = Loc::current());  ///< the inverse of cosh, not negative
Tensor atanh(const Tensor& x, Loc where = Loc::current());  ///< the inverse of tanh
/// log(exp(a) + exp(b)) without overflow.
Tensor logaddexp(const Tensor& a, const Tensor& b, Loc where = Loc::current());
/// Replaces NaN by `nan`, by default 0, and the infinities by posinf and neginf, by default the type's largest and
/// lowest number.
Tensor nan_to_num(const Tensor& x, std::optional<double> nan = {}, std::optional<double> posinf = {},
                  std::optional<double> neginf = {}, Loc where = Loc::current());
Tensor erf(const Tensor& x, Loc where = Loc::current());
Tensor log1p(const Tensor& x, Loc where = Loc::current());
Tensor expm1(const Tensor& x, Loc where = Loc::current());
Tensor log2(const Tensor& x, Loc where = Loc::current());
Tensor log10(const Tensor& x, Loc where = Loc::current());
Tensor relu(const Tensor& x, Loc where = Loc::current());
Tensor sigmoid(const Tensor& x, Loc where = Loc::current());
Tensor tanh(const Tensor& x, Loc where = Loc::current());
/// min(max(x, min), max), where the bounds are numbers or tensors that broadcast. Where min > max, the result is max. A
/// NaN bound gives NaN. The gradient goes to whichever of x, min and max the result was taken from, and to x if x
/// equals a bound.
Tensor clamp(const Tensor& x, std::optional<Operand> min, std::optional<Operand> max = {}, Loc where = Loc::current());
Tensor clamp_min(const Tensor& x, const Operand& min);
Tensor clamp_max(const Tensor& x, const Operand& max);

/// Comparisons return booleans and have no gradient.
Tensor eq(const Operand& a, const Operand& b);
Tensor ne(const Operand& a, const Operand& b);
Tensor lt(const Operand& a, const Operand& b);
Tensor le(const Operand& a, const Operand& b);
Tensor gt(const Operand& a, const Operand& b);
Tensor ge(const Operand& a, const Operand& b);
Tensor logical_and(const Operand& a, const Operand& b);
Tensor logical_or(const Operand& a, const Operand& b);
Tensor logical_xor(const Operand& a, const Operand& b);
Tensor logical_not(const Tensor& x, Loc where = Loc::current());
Tensor isfinite(const Tensor& x, Loc where = Loc::current());
Tensor isnan(const Tensor& x, Loc where = Loc::current());
Tensor isinf(const Tensor& x, Loc where = Loc::current());
/// True where |a - b| <= atol + rtol |b|. Equal infinities are close; NaN is close to NaN only with equal_nan.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
               Loc where = Loc::current());
/// Bitwise on integers, logical on booleans; floating types are a DTypeError. Also available as the operators & | ^ ~.
Tensor bitwise_and(const Operand& a, const Operand& b);
Tensor bitwise_or(const Operand& a, const Operand& b);
Tensor bitwise_xor(const Operand& a, const Operand& b);
Tensor bitwise_not(const Tensor& x, Loc where = Loc::current());
/// condition ? a : b, element by element; condition is boolean.
Tensor where(const Tensor& condition, const Operand& a, const Operand& b);

// ---- For the implementation of operators ----

/// y = op(x). `name` is the operator's name in messages.
Tensor unary(const char* name, UnaryOp op, const Tensor& x, Loc where, const UnaryArgs& args = {});
/// x = op(x)
const Tensor& unary_(const char* name, UnaryOp op, const Tensor& x, Loc where, const UnaryArgs& args = {});
/// dy * op'(saved), where saved is y if saves_output(op) is true, else x. Runs as one kernel, or, if its own gradient
/// is needed, as differentiable operators.
Tensor unary_backward(UnaryOp op, const Tensor& dy, const Tensor& saved, const UnaryArgs& args = {});

}  // namespace gradus

#include <gradus/autograd/tensor.h>  // at the end, because methods of Tensor call these functions
