// The element-wise operations of two arguments. To add an operation, add a line to the list below and a formula to
// core/formulas/scalar_binary.h. Its BinaryOp value, name, traits, autocast rule and the case in visit() are generated
// from the line.
#pragma once

#include <iterator>

#include <gradus/core/array/dtype.h>
#include <gradus/core/element_ops.h>

namespace gradus {

// clang-format off
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
/// An element-wise operation of two arguments.
enum class BinaryOp : uint8_t { GRADUS_BINARY_OPS(GRADUS_VALUE) };
#undef GRADUS_VALUE

#define GRADUS_NAME(op, ...) #op,
/// Names of the operations, in the order of the enum.
inline constexpr const char* kBinaryNames[] = {GRADUS_BINARY_OPS(GRADUS_NAME)};
#undef GRADUS_NAME
/// Number of operations.
inline constexpr int kBinaryOps = std::size(kBinaryNames);
/// "add"
constexpr const char* name(BinaryOp op) { return kBinaryNames[static_cast<int>(op)]; }

/// The columns of the list for one operation.
struct BinaryTraits {
  ElementTypes types;
  bool is_predicate;
};
#define GRADUS_TRAITS(op, types, is_predicate, ...) {ElementTypes::types, is_predicate},
/// Traits of all operations, in the order of the enum.
inline constexpr BinaryTraits kBinaryTraits[] = {GRADUS_BINARY_OPS(GRADUS_TRAITS)};
#undef GRADUS_TRAITS
/// Traits of `op`.
constexpr const BinaryTraits& traits(BinaryOp op) { return kBinaryTraits[static_cast<int>(op)]; }

/// Calls f.template operator()<op>(). This is the only switch over binary ops.
template <class F>
decltype(auto) visit(BinaryOp op, F&& f) {
  switch (op) {
#define GRADUS_CASE(op, ...) case BinaryOp::op: return f.template operator()<BinaryOp::op>();
    GRADUS_BINARY_OPS(GRADUS_CASE)
#undef GRADUS_CASE
  }
  __builtin_unreachable();
}
// clang-format on

/// True if `op` is not defined for integers; array ops then promote them to a floating type first.
constexpr bool needs_floating(BinaryOp op) { return traits(op).types == ElementTypes::floating; }
/// True if `op` is not defined for floating types.
constexpr bool needs_integral(BinaryOp op) { return traits(op).types == ElementTypes::integral; }
/// True if kernels implement `op` for elements of type T.
template <BinaryOp op, class T>
constexpr bool is_defined = is_floating(dtype_of<T>) ? !needs_integral(op) : !needs_floating(op);
/// True if the results of `op` are boolean.
constexpr bool is_predicate(BinaryOp op) { return traits(op).is_predicate; }

}  // namespace gradus
