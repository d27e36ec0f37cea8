// Element-wise functions of two numbers or vectors (see core/formulas/scalar_unary.h for the types). core/op_lists.h
// has the list of functions and the switch over them.
#pragma once

#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/op_lists.h>

namespace gradus::scalar {

// An operation is a function apply(Op<op>, a, b).
// clang-format off
template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::add>, T a, T b) {
  return T(wrapping_t<T>(a) + wrapping_t<T>(b));
}
template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::sub>, T a, T b) {
  return T(wrapping_t<T>(a) - wrapping_t<T>(b));
}
template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::mul>, T a, T b) {
  return T(wrapping_t<T>(a) * wrapping_t<T>(b));
}
/// Integer division rounds towards 0; division by 0 gives 0. torch.div promotes integers first; ops::divide_integers
/// does not.
template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::div>, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return T(-wrapping_t<T>(a));  // INT64_MIN / -1 traps
    return b == T(0) ? T(0) : T(a / b);
  } else return a / b;
}
template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::pow>, T a, T b) {
  if constexpr (std::is_integral_v<T>) {  // square and multiply; for b < 0, the integer quotient 1 / a^-b
    if constexpr (std::is_signed_v<T>)
      if (b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? (b % 2 ? T(-1) : T(1)) : T(0);
    uint64_t result = 1, base = static_cast<uint64_t>(a);
    for (uint64_t e = static_cast<uint64_t>(b); e; e >>= 1, base *= base)
      if (e & 1) result *= base;
    return static_cast<T>(result);
  } else {
    if constexpr (std::is_floating_point_v<T>) return b == T(2) ? a * a : pow(a, b);
    else return select(b == T(2), a * a, pow(a, b));
  }
}
/// NaN if a or b is NaN.
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::maximum>, auto a, auto b) { return select((a < b) | (b != b), b, a); }
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::minimum>, auto a, auto b) { return select((b < a) | (b != b), b, a); }
/// Integer modulo by 0 gives 0. Modulo by -1 would trap for the smallest number.
template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::fmod>, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return false;
  else if constexpr (std::is_integral_v<T>)
    return b == T(0) || (std::is_signed_v<T> && b == T(-1)) ? T(0) : T(a % b);
  else return fmod(a, b);
}
template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::remainder>, T a, T b) {
  const T r = apply(Op<BinaryOp::fmod>(), a, b);
  return select((r != T(0)) & ((r < T(0)) ^ (b < T(0))), apply(Op<BinaryOp::add>(), r, b), r);
}
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::atan2>, auto a, auto b) { return atan2(a, b); }

template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::bitwise_and>, T a, T b) { return T(a & b); }
template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::bitwise_or>, T a, T b) { return T(a | b); }
template <class T> GRADUS_HOST_DEVICE T apply(Op<BinaryOp::bitwise_xor>, T a, T b) { return T(a ^ b); }

// Comparisons and logical operations give booleans, or masks for vectors.
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::eq>, auto a, auto b) { return a == b; }
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::ne>, auto a, auto b) { return a != b; }
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::lt>, auto a, auto b) { return a < b; }
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::le>, auto a, auto b) { return a <= b; }
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::gt>, auto a, auto b) { return a > b; }
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::ge>, auto a, auto b) { return a >= b; }
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::logical_and>, auto a, auto b) { return (a != 0) & (b != 0); }
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::logical_or>, auto a, auto b) { return (a != 0) | (b != 0); }
GRADUS_HOST_DEVICE auto apply(Op<BinaryOp::logical_xor>, auto a, auto b) { return (a != 0) ^ (b != 0); }
// clang-format on

/// The function of one operation.
template <BinaryOp op>
struct Binary {
  template <class T>
  GRADUS_HOST_DEVICE static auto apply(T a, T b) {
    return scalar::apply(Op<op>(), a, b);
  }
};

}  // namespace gradus::scalar
