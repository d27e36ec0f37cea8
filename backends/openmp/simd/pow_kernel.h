// Powers and remainders of vectors; exp_kernel.h tells what the bounds mean. Both need more digits on the way than
// their results have: floats go through double, doubles through pairs.
#pragma once

#include <gradus/backends/openmp/simd/log_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// log(x) of positive finite x with about 64 bits: the formula of log_kernel.h with all but the tail of the series in
/// pairs.
inline Pair<double> long_log(Lanes<double> x) {
  using L = Lanes<double>;
  constexpr auto tail = atanh_series<double, 11>(5);  // 2/5 + 2/7 z + …
  const auto [k, f] = split_exponent(x);
  // s = f / d, d = 2 + f, and z = s^2.
  const L d = L(2) + f, d_low = f - (d - L(2)), s = f / d;
  const Pair<double> back = exact_product(s, d);
  const L s_low = (((f - back.high) - back.low) - s * d_low) / d;
  Pair<double> z = exact_product(s, s);
  z.low = multiply_add(L(2) * s, s_low, z.low);
  // series = z (2/3 + z tail), then s series.
  Pair<double> inner = exact_sum(L(0x1.5555555555555p-1), z.high * polynomial(z.high, tail));
  inner.low = inner.low + L(0x1.5555555555555p-55);  // the rest of 2/3
  Pair<double> series = exact_product(z.high, inner.high);
  series.low = series.low + (z.high * inner.low + z.low * inner.high);
  Pair<double> last = exact_product(s, series.high);
  last.low = last.low + (s * series.low + s_low * series.high);
  // k ln 2 + 2 s + s series
  const Pair<double> first = exact_sum(k * Ln2<double>::high, L(2) * s), all = exact_sum(first.high, last.high);
  const L rest = (first.low + all.low) + (multiply_add(k, L(Ln2<double>::low), last.low) + L(2) * s_low);
  return exact_sum(all.high, rest);
}

/// x^y for positive finite x and finite y.
inline Lanes<double> power(Lanes<double> x, Lanes<double> y) {
  y = bounded(y, -1e25, 1e25);  // beyond, all powers but those of 1 are infinity or 0 already
  const Pair<double> log = long_log(x), exponent = exact_product(y, log.high);
  const Lanes<double> high = bounded_for_exp(exponent.high);
  const Lanes<double> low = multiply_add(y, log.low, exponent.low);
  auto reduced = reduce_by_ln2(high);
  reduced.r = reduced.r + select(high == exponent.high, low, Lanes<double>(0));
  return exp_of_reduced(reduced);
}
inline Lanes<float> power(Lanes<float> x, Lanes<float> y) {
  using L = Lanes<double>;
  const auto [k, f] = split_exponent(x);  // exact
  const Wide k_wide = widened(k), f_wide = widened(f), y_wide = widened(y);
  const Wide inverse = widened(Lanes<float>(1) / (f + Lanes<float>(2)));
  const auto part = [](L k, L f, L inverse, L y) {  // as many terms as floats can tell
    constexpr auto tail = atanh_series<double, 6>(3);
    constexpr auto factorials = inverse_factorials<double, 9>(0, 1, false);
    inverse = multiply_add(multiply_add(-(f + L(2)), inverse, L(1)), inverse, inverse);  // a step of Newton's
    const L s = f * inverse, z = s * s, half_square = L(0.5) * f * f;
    const L log = multiply_add(k, L(0.69314718055994530942),
                               f - (half_square - s * multiply_add(z, polynomial(z, tail), half_square)));
    const auto reduced = reduce_by_ln2(bounded(y * log, -110.0, 90.0));  // 0 and infinity beyond
    return polynomial(reduced.r, factorials) * power_of_two<double>(reduced.n);
  };
  return narrowed({part(k_wide.low, f_wide.low, inverse.low, y_wide.low),
                   part(k_wide.high, f_wide.high, inverse.high, y_wide.high)});
}

inline float pow_of(float x, float y) { return __builtin_powf(x, y); }
inline double pow_of(double x, double y) { return __builtin_pow(x, y); }

/// x^y to within 2 ulp. Zeros, infinities and NaN go to the C library.
template <class T>
inline Lanes<T> pow(Lanes<T> x, Lanes<T> y) {
  const Lanes<T> size = absolute(x), zero = T(0), infinity = Bits<T>::infinity;
  Lanes<T> result = power(size, y);
  if (const Where<T> negative = x < zero; any(negative)) {
    const Lanes<T> half = y * 0.5, whole = select(rint(half) == half, result, -result);  // odd powers keep the sign
    result = select(negative, select(rint(y) == y, whole, Lanes<T>(Bits<T>::nan)), result);
  }
  const Where<T> usual = (size > zero) & (size < infinity) & (absolute(y) < infinity);
  return or_one_by_one(usual, result, [&](int i) { return pow_of(x.v[i], y.v[i]); });
}

/// x - q y with q = x / y cut to a whole number, for positive x and y. All of this is exact but for a quotient that
/// rounds up to the next whole number: then the difference is negative, and y too little.
inline Lanes<double> exact_remainder(Lanes<double> x, Lanes<double> y) {
  const Pair<double> product = exact_product(trunc(x / y), y);
  const Lanes<double> rest = (x - product.high) - product.low;
  return select(rest < Lanes<double>(0), rest + y, rest);
}
inline Lanes<float> exact_remainder(Lanes<float> x, Lanes<float> y) {  // 29 + 24 bits of q y fit into a double
  const Wide a = widened(x), b = widened(y);
  const auto wide = [](Lanes<double> a, Lanes<double> b) { return a - trunc(a / b) * b; };
  return narrowed({wide(a.low, b.low), wide(a.high, b.high)});
}

inline float fmod_of(float x, float y) { return __builtin_fmodf(x, y); }
inline double fmod_of(double x, double y) { return __builtin_fmod(x, y); }

/// The remainder with the sign of x: exact. Quotients of many digits, zeros and infinities go to the C library.
template <class T>
inline Lanes<T> fmod(Lanes<T> x, Lanes<T> y) {
  constexpr T most = Bits<T>::single ? T(0x1p29) : T(0x1p52);
  constexpr T smallest = Bits<T>::single ? T(0) : T(0x1p-900),
              largest = Bits<T>::single ? Bits<T>::infinity : T(0x1p990);
  const Lanes<T> a = absolute(x), b = absolute(y);
  const Where<T> usual =
      (a / b < Lanes<T>(most)) & (b > Lanes<T>(smallest)) & (b < Lanes<T>(largest)) & (a < Lanes<T>(largest));
  return or_one_by_one(usual, with_sign_of(exact_remainder(a, b), x), [&](int i) { return fmod_of(x.v[i], y.v[i]); });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
