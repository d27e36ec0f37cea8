// Logarithms of vectors. exp_kernel.h explains the error bounds.
//
// x = 2^k m with m in [sqrt(1/2), sqrt(2)), so log(x) = k ln 2 + log(m), with ln 2 in two parts; k times the first part
// is exact. With f = m - 1, s = f / (2 + f) and z = s^2,
//   log(1 + f) = 2 atanh(s) = f - (f^2 / 2 - s (f^2 / 2 + R)),   R = z (2/3 + 2/5 z + 2/7 z^2 + …),
// where f is exact and all other terms are small compared with it (the arrangement of FDLIBM, Sun Microsystems 1993).
#pragma once

#include <gradus/backends/openmp/simd/exp_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// 2 / first, 2 / (first + 2), …
template <class T, int count>
constexpr Coefficients<T, count> atanh_series(int first) {
  Coefficients<T, count> series{};
  for (int k = 0; k < count; ++k) series.c[k] = static_cast<T>(2.0 / (first + 2 * k));
  return series;
}

template <class T>
struct ByPowersOfTwo {
  Lanes<T> k, f;  ///< x = 2^k (1 + f)
};
/// Computes k and f of positive finite numbers.
template <class T>
inline ByPowersOfTwo<T> split_exponent(Lanes<T> x) {
  using Unsigned = typename VectorOf<T>::Unsigned;
  using B = Bits<T>;
  constexpr IntegerOf<T> one = static_cast<IntegerOf<T>>(B::bias) << B::mantissa;
  constexpr IntegerOf<T> root_half = B::single ? IntegerOf<T>(0x3f3504f3) : IntegerOf<T>(0x3fe6a09e667f3bcd);
  const Mask<T> tiny = x < Lanes<T>(B::smallest_normal);
  const Mask<T> bits = select(tiny, x * Lanes<T>(B::whole), x).bits() + (one - root_half);
  // The biased exponent is converted to floating point through the low bits of `whole`.
  const Unsigned exponent = reinterpret_cast<Unsigned>(bits) >> B::mantissa;
  const Lanes<T> whole = B::whole;
  const Lanes<T> k = Lanes<T>::from_bits(reinterpret_cast<Mask<T>>(exponent) | whole.bits()) -
                     select(tiny, Lanes<T>(B::whole + B::bias + B::mantissa), Lanes<T>(B::whole + B::bias));
  const Lanes<T> m = Lanes<T>::from_bits((bits & ((static_cast<IntegerOf<T>>(1) << B::mantissa) - 1)) + root_half);
  return {k, m - Lanes<T>(1)};
}

/// f - log(1 + f)
template <class T>
inline Lanes<T> below_f(Lanes<T> f) {
  constexpr auto series = atanh_series < T, Bits<T>::single ? 4 : 9 > (3);
  const Lanes<T> s = f / (f + Lanes<T>(2)), z = s * s, half_square = Lanes<T>(0.5) * f * f;
  return half_square - s * multiply_add(z, polynomial(z, series), half_square);
}

/// Returns y for positive finite x, and otherwise the special values of the logarithm: infinity for infinity, -infinity
/// for 0, NaN for NaN and for negative numbers.
template <class T>
inline Lanes<T> with_edges_of_log(Lanes<T> x, Lanes<T> y) {
  const Lanes<T> infinity = Bits<T>::infinity;
  const Lanes<T> outside = select(x == Lanes<T>(0), -infinity, Lanes<T>(Bits<T>::nan));
  return select(x > Lanes<T>(0), select(x < infinity, y, x), outside);
}

/// k ln 2 + log(1 + f), where f + rest is the exact value of f.
template <class T>
inline Lanes<T> logarithm(Lanes<T> k, Lanes<T> f, Lanes<T> rest) {
  const Lanes<T> small = multiply_add(k, Lanes<T>(Ln2<T>::low), rest) - below_f(f);
  return multiply_add(k, Lanes<T>(Ln2<T>::high), f + small);
}

/// log(x) to within 2 ulp.
template <class T>
inline Lanes<T> log(Lanes<T> x) {
  const auto [k, f] = split_exponent(x);
  return with_edges_of_log(x, logarithm<T>(k, f, Lanes<T>(0)));
}

/// log(1 + x) to within 2 ulp. The rounding error of u = 1 + x (`lost`) is added to the f of u.
template <class T>
inline Lanes<T> log1p(Lanes<T> x) {
  const Lanes<T> u = Lanes<T>(1) + x, big = u - Lanes<T>(1), lost = (Lanes<T>(1) - (u - big)) + (x - big);
  const auto [k, f] = split_exponent(u);
  const Lanes<T> part = lost / u * (Lanes<T>(1) + f);  // equals lost 2^-k
  const Lanes<T> sum = f + part, rest = part - (sum - f);
  return select(u == Lanes<T>(1), x, with_edges_of_log(u, logarithm(k, sum, rest)));
}

/// Logarithms to base 2 and 10, to within 2 ulp; log2 of a power of 2 is exact.
template <class T>
inline Lanes<T> log2(Lanes<T> x) {
  const auto [k, f] = split_exponent(x);
  return with_edges_of_log(x, multiply_add(f - below_f(f), Lanes<T>(1.4426950408889634074), k));
}
template <class T>
inline Lanes<T> log10(Lanes<T> x) {
  // log10(2) in two parts. The first has few bits, so that k times it is exact.
  constexpr T high = Bits<T>::single ? T(0x1.344p-2) : T(0x1.34413509f0000p-2);
  constexpr T low = Bits<T>::single ? T(4.605038981195213738895e-06) : T(1.733665960375285410528e-12);
  const auto [k, f] = split_exponent(x);
  const Lanes<T> small = multiply_add(k, Lanes<T>(low), (f - below_f(f)) * Lanes<T>(0.43429448190325182765));
  return with_edges_of_log(x, multiply_add(k, Lanes<T>(high), small));
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
