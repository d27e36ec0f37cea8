// The element-wise operations of one and of two arguments. To add an operation, add a line to a list below, and a
// formula to core/formulas/scalar_unary.h or scalar_binary.h. The value of UnaryOp or BinaryOp, the name, the traits,
// the rule of autocast and the case in visit() are generated from the line.
#pragma once

#include <iterator>

#include <gradus/core/array/dtype.h>
#include <gradus/core/element_ops.h>

namespace gradus {

/// What the derivative of an operation of one argument is computed from: the argument x or the result y. zero: the
/// derivative is 0 wherever it exists. none: there is no derivative, because results are boolean.
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

// A line is OP(name, ElementTypes, whether results are booleans, CastRule of autocast on CUDA). For the operations of
// GRADUS_BINARY_COMPARISONS, which have no derivative, autograd/ops/elementwise.cpp generates the functions and methods
// of Tensor.
#define GRADUS_BINARY_COMPARISONS(OP)        \
  OP(bitwise_and, integral, false, none)     \
  OP(bitwise_or,  integral, false, none)     \
  OP(bitwise_xor, integral, false, none)     \
  OP(eq,          any,      true,  none)     \
  OP(ne,          any,      true,  none)     \
  OP(lt,          any,      true,  none)     \
  OP(le,          any,      true,  none)     \
  OP(gt,          any,      true,  none)     \
  OP(ge,          any,      true,  none)     \
  OP(logical_and, any,      true,  none)     \
  OP(logical_or,  any,      true,  none)     \
  OP(logical_xor, any,      true,  none)
#define GRADUS_BINARY_OPS(OP)                \
  OP(add,         any,      false, none)     \
  OP(sub,         any,      false, none)     \
  OP(mul,         any,      false, none)     \
  OP(div,         any,      false, none)     \
  OP(pow,         any,      false, float32)  \
  OP(maximum,     any,      false, none)     \
  OP(minimum,     any,      false, none)     \
  OP(fmod,        any,      false, none)     \
  OP(remainder,   any,      false, none)     \
  OP(atan2,       floating, false, none)     \
  GRADUS_BINARY_COMPARISONS(OP)

#define GRADUS_VALUE(op, ...) op,
#define GRADUS_NAME(op, ...) #op,
#define GRADUS_UNARY_TRAITS(op, types, derivative, ...) {ElementTypes::types, Derivative::derivative},
#define GRADUS_BINARY_TRAITS(op, types, is_predicate, ...) {ElementTypes::types, is_predicate},
#define GRADUS_UNARY_CASE(op, ...) case UnaryOp::op: return f.template operator()<UnaryOp::op>();
#define GRADUS_BINARY_CASE(op, ...) case BinaryOp::op: return f.template operator()<BinaryOp::op>();

enum class UnaryOp : uint8_t { GRADUS_UNARY_OPS(GRADUS_VALUE) };
enum class BinaryOp : uint8_t { GRADUS_BINARY_OPS(GRADUS_VALUE) };

/// Names of the operations, in the order of the enum.
inline constexpr const char* kUnaryNames[] = {GRADUS_UNARY_OPS(GRADUS_NAME)};
inline constexpr const char* kBinaryNames[] = {GRADUS_BINARY_OPS(GRADUS_NAME)};
/// Number of operations.
inline constexpr int kUnaryOps = std::size(kUnaryNames), kBinaryOps = std::size(kBinaryNames);
/// "exp", "add"
constexpr const char* name(UnaryOp op) { return kUnaryNames[static_cast<int>(op)]; }
constexpr const char* name(BinaryOp op) { return kBinaryNames[static_cast<int>(op)]; }

/// What an operation's line in the lists states, except for the rule of autocast.
struct UnaryTraits {
  ElementTypes types;
  Derivative derivative;
};
struct BinaryTraits {
  ElementTypes types;
  bool is_predicate;
};
/// Traits of all operations, in the order of the enum.
inline constexpr UnaryTraits kUnaryTraits[] = {GRADUS_UNARY_OPS(GRADUS_UNARY_TRAITS)};
inline constexpr BinaryTraits kBinaryTraits[] = {GRADUS_BINARY_OPS(GRADUS_BINARY_TRAITS)};
/// Traits of `op`.
constexpr const UnaryTraits& traits(UnaryOp op) { return kUnaryTraits[static_cast<int>(op)]; }
constexpr const BinaryTraits& traits(BinaryOp op) { return kBinaryTraits[static_cast<int>(op)]; }

/// Calls f.template operator()<op>(). These are the only switches over element-wise operations.
template <class F>
decltype(auto) visit(UnaryOp op, F&& f) {
  switch (op) { GRADUS_UNARY_OPS(GRADUS_UNARY_CASE) }
  __builtin_unreachable();
}
template <class F>
decltype(auto) visit(BinaryOp op, F&& f) {
  switch (op) { GRADUS_BINARY_OPS(GRADUS_BINARY_CASE) }
  __builtin_unreachable();
}

#undef GRADUS_VALUE
#undef GRADUS_NAME
#undef GRADUS_UNARY_TRAITS
#undef GRADUS_BINARY_TRAITS
#undef GRADUS_UNARY_CASE
#undef GRADUS_BINARY_CASE
// clang-format on

/// True if `op` is not defined for integers; array operators then convert them to a floating type first.
constexpr bool needs_floating(UnaryOp op) { return traits(op).types == ElementTypes::floating; }
constexpr bool needs_floating(BinaryOp op) { return traits(op).types == ElementTypes::floating; }
/// True if `op` is not defined for floating types.
constexpr bool needs_integral(BinaryOp op) { return traits(op).types == ElementTypes::integral; }
/// True if kernels implement `op` for elements of type T.
template <BinaryOp op, class T>
constexpr bool is_defined = is_floating(dtype_of<T>) ? !needs_integral(op) : !needs_floating(op);
/// True if the results of `op` are boolean.
constexpr bool is_predicate(UnaryOp op) { return traits(op).derivative == Derivative::none; }
constexpr bool is_predicate(BinaryOp op) { return traits(op).is_predicate; }
/// True if unary_backward takes the result y, false if it takes the argument x.
constexpr bool saves_output(UnaryOp op) { return traits(op).derivative == Derivative::of_y; }
/// True if the derivative is 0 wherever it exists.
constexpr bool is_step_function(UnaryOp op) { return traits(op).derivative == Derivative::zero; }
/// True if `op` has a derivative.
constexpr bool has_derivative(UnaryOp op) { return !is_predicate(op); }

}  // namespace gradus
