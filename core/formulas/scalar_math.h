// Helpers for formulas and kernels that compute single elements, on host and device. T is a number, or a vector of
// floats or doubles whose comparisons give masks (backends/openmp/simd/lanes.h). Half types compute in float
// (compute_t).
#pragma once

#include <cmath>
#include <type_traits>

#include <gradus/core/array/dtype.h>

namespace gradus::scalar {

/// Formulas call these functions unqualified. For vectors, argument-dependent lookup finds functions of the same names.
using std::atan2, std::ceil, std::cos, std::erf, std::exp, std::expm1, std::floor, std::fmod, std::log, std::log10;
using std::log1p, std::log2, std::pow, std::rint, std::sin, std::sqrt, std::tanh, std::trunc;

/// Stands for the operation `op`, a UnaryOp or BinaryOp, among the arguments of a formula.
template <auto op>
using Op = std::integral_constant<decltype(op), op>;

/// condition ? a : b. Vectors have their own overload.
template <class T>
GRADUS_HOST_DEVICE T select(bool condition, T a, T b) {
  return condition ? a : b;
}
/// The type in which sums and products of T are computed. Signed integers use the unsigned type, so they wrap around,
/// as in PyTorch.
template <class T>
using wrapping_t = typename std::conditional_t<std::is_integral_v<T> && std::is_signed_v<T>, std::make_unsigned<T>,
                                               std::type_identity<T>>::type;
/// NaN is the only value that does not equal itself.
template <class T>
GRADUS_HOST_DEVICE auto is_nan(T x) {
  return x != x;
}

/// 1 / (1 + exp(-x))
template <class T>
GRADUS_HOST_DEVICE T logistic(T x) {
  return T(1) / (T(1) + exp(-x));
}
/// log(1 + exp(x)) without overflow.
template <class T>
GRADUS_HOST_DEVICE T log1p_exp(T x) {
  return select(x > T(0), x, T(0)) + log1p(exp(select(x > T(0), -x, x)));
}
/// Distribution and density functions of the standard normal distribution.
template <class T>
GRADUS_HOST_DEVICE T normal_distribution(T x) {
  return T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));
}
template <class T>
GRADUS_HOST_DEVICE T normal_density(T x) {
  return T(0.39894228040143267794) * exp(T(-0.5) * x * x);
}

/// x converted to To. Floating-point numbers become integers by way of int64: fractions are truncated, values out of
/// range saturate, and NaN gives 0; narrower integer types keep the low bits of the int64. Any value but 0 becomes
/// true. Conversions to and from half types go through float.
template <class To, class From>
GRADUS_HOST_DEVICE To convert(From from) {
  const compute_t<From> x = from;
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != compute_t<From>(0);
  } else if constexpr (std::is_floating_point_v<compute_t<From>> && std::is_integral_v<To>) {
    const int64_t whole = x >= 0x1p63f ? INT64_MAX : x < -0x1p63f ? INT64_MIN : is_nan(x) ? 0 : static_cast<int64_t>(x);
    return static_cast<To>(whole);
  } else {
    return static_cast<To>(static_cast<compute_t<To>>(x));
  }
}

}  // namespace gradus::scalar
