// Sines, cosines and arctangents of vectors. exp_kernel.h explains the error bounds.
//
// x = n pi/2 + r with an integer n and |r| <= pi/4. sin(r) and cos(r) are Taylor polynomials, and n modulo 4 selects
// one of them and its sign. r is computed in double, with pi/2 in three parts of 33, 33 and 53 bits (Cody and Waite): n
// times each of the first two parts is exact for |n| < 2^20, with or without fused multiply-add. For larger arguments,
// which are rare, the C library is used, whose reduction is exact.
#pragma once

#include <gradus/backends/openmp/simd/exp_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// The largest |x| for which r is computed in vectors.
inline constexpr double kMostRadians = 1e6;

template <class T>
struct Quadrant {
  Lanes<T> n, r;
};
inline Quadrant<double> reduce_by_half_pi(Lanes<double> x) {
  const Lanes<double> magic = 1.5 * Bits<double>::whole;
  const Lanes<double> n = x * Lanes<double>(0.63661977236758134308) + magic - magic;
  const Lanes<double> r = x - n * 0x1.921fb54400000p+0 - n * 0x1.0b4611a600000p-34;
  return {n, r - n * 0x1.3198a2e037073p-69};
}
inline Quadrant<float> reduce_by_half_pi(Lanes<float> x) {
  const Wide wide = widened(x);
  const auto low = reduce_by_half_pi(wide.low), high = reduce_by_half_pi(wide.high);
  return {narrowed({low.n, high.n}), narrowed({low.r, high.r})};
}

/// sin(x + quarters pi/2) for |x| <= kMostRadians.
template <class T>
inline Lanes<T> sine(Lanes<T> x, int quarters) {
  constexpr auto odd = inverse_factorials < T, Bits<T>::single ? 4 : 8 > (3, 2, true);
  constexpr auto even = inverse_factorials < T, Bits<T>::single ? 5 : 8 > (2, 2, true);
  const auto [n, r] = reduce_by_half_pi(x);
  const Lanes<T> square = r * r;
  const Lanes<T> sin = multiply_add(-r * square, polynomial(square, odd), r);
  const Lanes<T> cos = multiply_add(-square, polynomial(square, even), Lanes<T>(1));
  const Mask<T> quarter = (n + Lanes<T>(T(1.5) * Bits<T>::whole)).bits() + quarters;
  const Lanes<T> y = select((quarter & 1) != 0, cos, with_sign_of(sin, r));
  return Lanes<T>::from_bits(y.bits() ^ ((quarter & 2) << (8 * sizeof(T) - 2)));
}

inline float sin_of(float x) { return __builtin_sinf(x); }
inline double sin_of(double x) { return __builtin_sin(x); }
inline float cos_of(float x) { return __builtin_cosf(x); }
inline double cos_of(double x) { return __builtin_cos(x); }

/// sin(x) and cos(x) to within 2 ulp.
template <class T>
inline Lanes<T> sin(Lanes<T> x) {
  const Mask<T> usual = absolute(x) <= Lanes<T>(kMostRadians);
  return or_one_by_one(usual, sine(x, 0), [&](int i) { return sin_of(x.v[i]); });
}
template <class T>
inline Lanes<T> cos(Lanes<T> x) {
  const Mask<T> usual = absolute(x) <= Lanes<T>(kMostRadians);
  return or_one_by_one(usual, sine(x, 1), [&](int i) { return cos_of(x.v[i]); });
}

/// 1/3, -1/5, 1/7, …
template <class T, int count>
constexpr Coefficients<T, count> arctangent_series() {
  Coefficients<T, count> series{};
  for (int k = 0; k < count; ++k) series.c[k] = static_cast<T>((k % 2 ? -1.0 : 1.0) / (2 * k + 3));
  return series;
}

/// The angle of (x, y) to within 4 ulp. In the first octant it is the arctangent of t = min / max; beyond pi/8 it is
/// pi/4 + the arctangent of (t - 1) / (t + 1), so that the arguments of the Taylor series are at most tan(pi/8). The
/// other octants are reflections. For two zeros, infinities and NaN, the C library is used.
inline float atan2_of(float y, float x) { return __builtin_atan2f(y, x); }
inline double atan2_of(double y, double x) { return __builtin_atan2(y, x); }
template <class T>
inline Lanes<T> atan2(Lanes<T> y, Lanes<T> x) {
  constexpr auto series = arctangent_series < T, Bits<T>::single ? 9 : 20 > ();
  const Lanes<T> width = absolute(x), height = absolute(y);
  const Mask<T> steep = height > width;
  const Lanes<T> low = select(steep, width, height), high = select(steep, height, width);
  const Mask<T> beyond = low > high * 0.41421356237309504880;
  const Lanes<T> u = select(beyond, low - high, low) / select(beyond, low + high, high), square = u * u;
  const Lanes<T> small = multiply_add(-u * square, polynomial(square, series), u);
  Lanes<T> angle = select(beyond, small + 0.78539816339744830962, small);
  angle = select(steep, Lanes<T>(1.57079632679489661923) - angle, angle);
  const Mask<T> left = x.bits() < 0;
  angle = with_sign_of(select(left, Lanes<T>(3.14159265358979323846) - angle, angle), y);
  const Mask<T> usual = (width + height < Lanes<T>(Bits<T>::infinity)) & (high > Lanes<T>(0));
  return or_one_by_one(usual, angle, [&](int i) { return atan2_of(y.v[i], x.v[i]); });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
