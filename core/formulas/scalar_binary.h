// Element-wise functions of two numbers or vectors (see core/formulas/scalar_unary.h for the types). core/op_lists.h
// has the list of functions and the switch over them.
#pragma once

#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/op_lists.h>

namespace gradus::scalar {

// clang-format off
template <BinaryOp op> struct Binary;  // apply(a, b)

template <> struct Binary<BinaryOp::add> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return T(wrapping_t<T>(a) + wrapping_t<T>(b)); }
};
template <> struct Binary<BinaryOp::sub> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return T(wrapping_t<T>(a) - wrapping_t<T>(b)); }
};
template <> struct Binary<BinaryOp::mul> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return T(wrapping_t<T>(a) * wrapping_t<T>(b)); }
};
/// Integer division rounds towards 0; division by 0 gives 0. torch.div promotes integers first; ops::divide_integers
/// does not.
template <> struct Binary<BinaryOp::div> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if constexpr (std::is_signed_v<T>)
        if (b == T(-1)) return T(-wrapping_t<T>(a));  // INT64_MIN / -1 traps
      return b == T(0) ? T(0) : T(a / b);
    } else return a / b;
  }
};
template <> struct Binary<BinaryOp::pow> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) {
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
};
template <> struct Binary<BinaryOp::maximum> {  // NaN if a or b is NaN
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return select((a < b) | (b != b), b, a); }
};
template <> struct Binary<BinaryOp::minimum> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return select((b < a) | (b != b), b, a); }
};
template <> struct Binary<BinaryOp::fmod> {  // integer modulo by 0 gives 0
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) return false;
    else if constexpr (std::is_integral_v<T>) return b == T(0) || b == T(-1) ? T(0) : T(a % b);  // INT64_MIN % -1 traps
    else return fmod(a, b);
  }
};
template <> struct Binary<BinaryOp::remainder> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) {
    const T r = Binary<BinaryOp::fmod>::apply(a, b);
    return select((r != T(0)) & ((r < T(0)) ^ (b < T(0))), T(r + b), r);
  }
};
template <> struct Binary<BinaryOp::atan2> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return atan2(a, b); }
};
template <BinaryOp op> requires(needs_integral(op)) struct Binary<op> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (op == BinaryOp::bitwise_and) return T(a & b);
    else if constexpr (op == BinaryOp::bitwise_or) return T(a | b);
    else return T(a ^ b);
  }
};
/// Comparisons and logical operations give booleans, or masks for vectors.
template <BinaryOp op> requires(is_predicate(op)) struct Binary<op> {
  template <class T> GRADUS_HOST_DEVICE static auto apply(T a, T b) {
    if constexpr (op == BinaryOp::eq) return a == b;
    else if constexpr (op == BinaryOp::ne) return a != b;
    else if constexpr (op == BinaryOp::lt) return a < b;
    else if constexpr (op == BinaryOp::le) return a <= b;
    else if constexpr (op == BinaryOp::gt) return a > b;
    else if constexpr (op == BinaryOp::ge) return a >= b;
    else if constexpr (op == BinaryOp::logical_and) return (a != T(0)) & (b != T(0));
    else if constexpr (op == BinaryOp::logical_or) return (a != T(0)) | (b != T(0));
    else return (a != T(0)) ^ (b != T(0));
  }
};
// clang-format on

}  // namespace gradus::scalar
