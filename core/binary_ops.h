// The element-wise operations of two arguments. An operation is a line of the list below, from which its value of
// BinaryOp, its name, its traits, its case of visit() and what autocast makes of it follow, and a formula in
// core/formulas/scalar_binary.h.
#pragma once

#include <iterator>

#include <gradus/core/array/dtype.h>
#include <gradus/core/element_ops.h>

namespace gradus {

// clang-format off
// OP(name, ElementTypes, whether results are booleans, the CastRule of autocast on CUDA). Of the first part, operations
// without derivative, autograd/ops/comparison.cpp makes the functions and methods of Tensor from the list.
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
/// The operations of the list.
enum class BinaryOp : uint8_t { GRADUS_BINARY_OPS(GRADUS_VALUE) };
#undef GRADUS_VALUE

#define GRADUS_NAME(op, ...) #op,
/// Their names, in order.
inline constexpr const char* kBinaryNames[] = {GRADUS_BINARY_OPS(GRADUS_NAME)};
#undef GRADUS_NAME
/// Their number.
inline constexpr int kBinaryOps = std::size(kBinaryNames);
/// "add"
constexpr const char* name(BinaryOp op) { return kBinaryNames[static_cast<int>(op)]; }

/// What the list says of an operation.
struct BinaryTraits {
  ElementTypes types;
  bool is_predicate;
};
#define GRADUS_TRAITS(op, types, is_predicate, ...) {ElementTypes::types, is_predicate},
/// Of all, in order.
inline constexpr BinaryTraits kBinaryTraits[] = {GRADUS_BINARY_OPS(GRADUS_TRAITS)};
#undef GRADUS_TRAITS
/// Of `op`.
constexpr const BinaryTraits& traits(BinaryOp op) { return kBinaryTraits[static_cast<int>(op)]; }

/// Calls f.template operator()<op>(): the one switch over binary ops.
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

/// True for the ops that integers do not have: array ops promote to a floating type first.
constexpr bool needs_floating(BinaryOp op) { return traits(op).types == ElementTypes::floating; }
/// True for the ops that floating types do not have.
constexpr bool needs_integral(BinaryOp op) { return traits(op).types == ElementTypes::integral; }
/// True where kernels have `op` for elements of type T.
template <BinaryOp op, class T>
constexpr bool is_defined = is_floating(dtype_of<T>) ? !needs_integral(op) : !needs_floating(op);
/// True where results are boolean.
constexpr bool is_predicate(BinaryOp op) { return traits(op).is_predicate; }

}  // namespace gradus
