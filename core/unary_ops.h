// The element-wise operations of one argument. To add an operation, add a line to the list below and a formula to
// core/formulas/scalar_unary.h. Its UnaryOp value, name, traits, autocast rule and the case in visit() are generated
// from the line.
#pragma once

#include <iterator>

#include <gradus/core/element_ops.h>

namespace gradus {

/// What the derivative is computed from: the argument x or the result y. zero: the derivative is 0 wherever it exists.
/// none: results are boolean.
enum class Derivative : uint8_t { of_x, of_y, zero, none };

// clang-format off
// A line is OP(name, ElementTypes, Derivative, CastRule of autocast on CUDA). Each of the three lists contains the one
// before it. For the operations of GRADUS_UNARY_METHODS, autograd/ops/unary.cpp generates functions and methods of
// Tensor (x.exp() and x.exp_()); for the further ones of GRADUS_UNARY_FUNCTIONS, only functions. The further operations
// of GRADUS_UNARY_OPS have UnaryArgs, and their functions are written by hand.
#define GRADUS_UNARY_METHODS(OP)           \
  OP(neg,         any,      of_x, none)    \
  OP(abs,         any,      of_x, none)    \
  OP(sign,        any,      zero, none)    \
  OP(floor,       any,      zero, none)    \
  OP(ceil,        any,      zero, none)    \
  OP(round,       any,      zero, none)    \
  OP(trunc,       any,      zero, none)    \
  OP(square,      any,      of_x, none)    \
  OP(exp,         floating, of_y, float32) \
  OP(expm1,       floating, of_y, float32) \
  OP(log,         floating, of_x, float32) \
  OP(log1p,       floating, of_x, float32) \
  OP(sqrt,        floating, of_y, none)    \
  OP(rsqrt,       floating, of_y, float32) \
  OP(reciprocal,  floating, of_y, float32) \
  OP(sin,         floating, of_x, none)    \
  OP(cos,         floating, of_x, none)    \
  OP(erf,         floating, of_x, none)    \
  OP(relu,        any,      of_y, none)    \
  OP(sigmoid,     floating, of_y, none)    \
  OP(tanh,        floating, of_y, none)
#define GRADUS_UNARY_FUNCTIONS(OP)         \
  GRADUS_UNARY_METHODS(OP)                 \
  OP(log2,        floating, of_x, float32) \
  OP(log10,       floating, of_x, float32) \
  OP(silu,        floating, of_x, none)    \
  OP(mish,        floating, of_x, none)    \
  OP(log_sigmoid, floating, of_x, none)    \
  OP(hardswish,   floating, of_x, none)    \
  OP(logical_not, any,      none, none)    \
  OP(isfinite,    any,      none, none)    \
  OP(isnan,       any,      none, none)    \
  OP(isinf,       any,      none, none)
#define GRADUS_UNARY_OPS(OP)               \
  GRADUS_UNARY_FUNCTIONS(OP)               \
  OP(clamp,       any,      of_x, none)    \
  OP(hardtanh,    any,      of_x, none)    \
  OP(leaky_relu,  floating, of_x, none)    \
  OP(elu,         floating, of_x, none)    \
  OP(gelu,        floating, of_x, none)    \
  OP(gelu_tanh,   floating, of_x, none)    \
  OP(softplus,    floating, of_x, float32)

#define GRADUS_VALUE(op, ...) op,
/// An element-wise operation of one argument.
enum class UnaryOp : uint8_t { GRADUS_UNARY_OPS(GRADUS_VALUE) };
#undef GRADUS_VALUE

#define GRADUS_NAME(op, ...) #op,
/// Names of the operations, in the order of the enum.
inline constexpr const char* kUnaryNames[] = {GRADUS_UNARY_OPS(GRADUS_NAME)};
#undef GRADUS_NAME
/// Number of operations.
inline constexpr int kUnaryOps = std::size(kUnaryNames);
/// "exp"
constexpr const char* name(UnaryOp op) { return kUnaryNames[static_cast<int>(op)]; }

/// The columns of the list for one operation.
struct UnaryTraits {
  ElementTypes types;
  Derivative derivative;
};
#define GRADUS_TRAITS(op, types, derivative, ...) {ElementTypes::types, Derivative::derivative},
/// Traits of all operations, in the order of the enum.
inline constexpr UnaryTraits kUnaryTraits[] = {GRADUS_UNARY_OPS(GRADUS_TRAITS)};
#undef GRADUS_TRAITS
/// Traits of `op`.
constexpr const UnaryTraits& traits(UnaryOp op) { return kUnaryTraits[static_cast<int>(op)]; }

/// Calls f.template operator()<op>(). This is the only switch over unary ops.
template <class F>
decltype(auto) visit(UnaryOp op, F&& f) {
  switch (op) {
#define GRADUS_CASE(op, ...) case UnaryOp::op: return f.template operator()<UnaryOp::op>();
    GRADUS_UNARY_OPS(GRADUS_CASE)
#undef GRADUS_CASE
  }
  __builtin_unreachable();
}
// clang-format on

/// True if `op` is not defined for integers; array ops then promote them to a floating type first.
constexpr bool needs_floating(UnaryOp op) { return traits(op).types == ElementTypes::floating; }
/// True if unary_backward takes the output y, false if it takes the input x.
constexpr bool saves_output(UnaryOp op) { return traits(op).derivative == Derivative::of_y; }
/// True if the derivative is 0 wherever it exists.
constexpr bool is_step_function(UnaryOp op) { return traits(op).derivative == Derivative::zero; }
/// True if the results of `op` are boolean.
constexpr bool is_predicate(UnaryOp op) { return traits(op).derivative == Derivative::none; }
/// True if `op` has a derivative.
constexpr bool has_derivative(UnaryOp op) { return !is_predicate(op); }

}  // namespace gradus
