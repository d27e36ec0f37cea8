// The exponential and functions based on it, for vectors of floats and doubles. The comment of each function states a
// bound of its error in units of the last place (ulp) of the exact result; tests/backends/vector_math_test.cpp checks
// these bounds over the whole range.
//
// x = n ln 2 + r with an integer n and |r| <= ln 2 / 2, so exp(x) = 2^n exp(r). ln 2 is split into two parts (Cody and
// Waite, "Software Manual for the Elementary Functions", 1980): n times the first part is exact, and the second part
// adds the missing digits. exp(r) is a Taylor polynomial; degree 7 (13 for double) has an error below 0.1 ulp.
#pragma once

#include <gradus/backends/openmp/simd/lanes.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T>
struct Ln2 {
  static constexpr T high = Bits<T>::single ? T(0x1.62e4p-1) : T(0x1.62e42fee00000p-1);
  static constexpr T low = Bits<T>::single ? T(1.42860682030941723212e-6) : T(1.90821492927058770002e-10);
};

template <class T>
struct ByLn2 {
  Mask<T> n;
  Lanes<T> r;
  Lanes<T> whole;  // n as a floating-point number
};
/// Computes n and r. |n| may be at most twice the largest exponent of T, because exp_of_reduced() multiplies by 2^n in
/// two factors.
template <class T>
inline ByLn2<T> reduce_by_ln2(Lanes<T> x) {
  const Lanes<T> magic = T(1.5) * Bits<T>::whole;
  const Lanes<T> shifted = multiply_add(x, Lanes<T>(1.4426950408889634074), magic), n = shifted - magic;
  const Lanes<T> r = multiply_add(n, Lanes<T>(-Ln2<T>::high), x);
  return {shifted.bits() - magic.bits(), multiply_add(n, Lanes<T>(-Ln2<T>::low), r), n};
}

/// 2^n, which must be a normal number.
template <class T>
inline Lanes<T> power_of_two(Mask<T> n) {
  return Lanes<T>::from_bits((n + Bits<T>::bias) << Bits<T>::mantissa);
}

/// 1 / first!, 1 / (first + step)!, …, with alternating signs if `alternating`.
template <class T, int count>
constexpr Coefficients<T, count> inverse_factorials(int first, int step, bool alternating) {
  Coefficients<T, count> series{};
  double factorial = 1;
  for (int i = 2; i <= first; ++i) factorial *= i;
  for (int k = 0, i = first; k < count; ++k) {
    series.c[k] = static_cast<T>((alternating && k % 2 ? -1 : 1) / factorial);
    for (int j = 0; j < step; ++j) factorial *= ++i;
  }
  return series;
}

template <class T>
inline Lanes<T> bounded(Lanes<T> x, T low, T high) {
  return at_least(broadcast(low), at_most(broadcast(high), x.v));
}

/// 2^n exp(r). If the instruction set has no scaling instruction, the result is multiplied by 2^n in two factors, so
/// that subnormal results and overflow are correct.
template <class T>
inline Lanes<T> exp_of_reduced(ByLn2<T> x) {
  constexpr auto series = inverse_factorials < T, Bits<T>::single ? 8 : 14 > (0, 1, false);
#if defined(__AVX512F__)
  return times_power_of_two(polynomial(x.r, series).v, x.whole.v);
#else
  const Mask<T> half = x.n >> 1;
  return polynomial(x.r, series) * power_of_two<T>(half) * power_of_two<T>(x.n - half);
#endif
}
/// exp(x) to within 2 ulp; 0 or infinity beyond the bounds.
template <class T>
inline Lanes<T> exp(Lanes<T> x) {
  constexpr T lowest = Bits<T>::single ? T(-104) : T(-746), highest = Bits<T>::single ? T(89) : T(710);
  return exp_of_reduced(reduce_by_ln2(bounded(x, lowest, highest)));
}

/// expm1(x) = exp(x) - 1 to within 2 ulp. With q = exp(r) - 1 it is 2^n q + (2^n - 1). Both terms are halved, and the
/// sum is doubled at the end, so that 2^n does not overflow.
template <class T>
inline Lanes<T> expm1(Lanes<T> x) {
  constexpr T lowest = Bits<T>::single ? T(-18) : T(-38), highest = Bits<T>::single ? T(89) : T(710);
  const auto [n, r, whole] = reduce_by_ln2(bounded(x, lowest, highest));
  constexpr auto series = inverse_factorials < T, Bits<T>::single ? 6 : 12 > (2, 1, false);
  const Lanes<T> q = multiply_add(r * r, polynomial(r, series), r);
  const Lanes<T> half = power_of_two<T>(n - 1);
  const Lanes<T> y = Lanes<T>(2) * multiply_add(half, q, half - Lanes<T>(0.5));
  return select(x == x, with_sign_of(select(n == 0, q, y), x), x);
}

/// tanh(x) to within 3 ulp: e / (e + 2) with e = exp(2 |x|) - 1.
template <class T>
inline Lanes<T> tanh(Lanes<T> x) {
  const Lanes<T> size = absolute(x), limit = Bits<T>::single ? T(10) : T(20);  // tanh rounds to 1 beyond the limit
  const Lanes<T> e = expm1(Lanes<T>(2) * select(size > limit, limit, size));
  return with_sign_of(e / (e + Lanes<T>(2)), x);
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
