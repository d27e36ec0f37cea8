// The element-wise operations by name. Apart from core/backend.h, so that formulas and kernels of one instruction set
// need nothing else of the library.
#pragma once

#include <cstdint>

namespace gradus {

/// Element-wise functions of one argument; formulas and derivatives are in core/scalar_unary.h.
enum class UnaryOp : uint8_t {
  // clang-format off
  neg, abs, sign, floor, ceil, round, trunc, square, exp, expm1, log, log1p, log2, log10, sqrt, rsqrt,
  reciprocal, sin, cos, erf, relu, sigmoid, tanh, clamp, hardtanh, leaky_relu, elu, gelu, gelu_tanh, silu,
  softplus, mish, log_sigmoid, hardswish, logical_not, isfinite, isnan, isinf
  // clang-format on
};
/// Parameters of a unary op. clamp and hardtanh: [a, b]; leaky_relu: slope a; elu: x for x > 0, else a (exp(b x) - 1);
/// softplus: beta a, threshold b.
struct UnaryArgs {
  double a = 0, b = 0;
};
/// Element-wise functions of two arguments. From `eq` on the result is boolean.
enum class BinaryOp : uint8_t {
  // clang-format off
  add, sub, mul, div, pow, maximum, minimum, fmod, remainder, atan2, bitwise_and, bitwise_or, bitwise_xor, eq,
  ne, lt, le, gt, ge, logical_and, logical_or, logical_xor
  // clang-format on
};
constexpr bool is_predicate(BinaryOp op) { return op >= BinaryOp::eq; }
constexpr bool is_predicate(UnaryOp op) { return op >= UnaryOp::logical_not; }
inline constexpr int kUnaryOps = static_cast<int>(UnaryOp::isinf) + 1;
inline constexpr int kBinaryOps = static_cast<int>(BinaryOp::logical_xor) + 1;

/// True for the ops that integers do not have: array ops promote to a floating type first.
constexpr bool needs_floating(BinaryOp op) { return op == BinaryOp::atan2; }
/// True for the ops that floating types do not have.
constexpr bool needs_integral(BinaryOp op) { return op >= BinaryOp::bitwise_and && op <= BinaryOp::bitwise_xor; }

}  // namespace gradus
