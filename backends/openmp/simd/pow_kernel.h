// Powers and remainders of vectors; exp_kernel.h tells what the bounds mean. Both need more digits on the way than
// their results have: floats go through double, doubles, which no net needs here, to the C library.
#pragma once

#include <gradus/backends/openmp/simd/log_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// x^y for positive finite x and finite y.
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

/// x^y to within 2 ulp. Zeros, infinities and NaN go to the C library.
inline Lanes<float> pow(Lanes<float> x, Lanes<float> y) {
  const Lanes<float> size = absolute(x), zero = 0, infinity = Bits<float>::infinity;
  Lanes<float> result = power(size, y);
  if (const Mask<float> negative = x < zero; any(negative)) {
    const Lanes<float> half = y * 0.5, whole = select(rint(half) == half, result, -result);  // odd powers keep the sign
    result = select(negative, select(rint(y) == y, whole, Lanes<float>(Bits<float>::nan)), result);
  }
  const Mask<float> usual = (size > zero) & (size < infinity) & (absolute(y) < infinity);
  return or_one_by_one(usual, result, [&](int i) { return __builtin_powf(x.v[i], y.v[i]); });
}
inline Lanes<double> pow(Lanes<double> x, Lanes<double> y) {
  return one_by_one([&](int i) { return __builtin_pow(x.v[i], y.v[i]); });
}

/// The remainder with the sign of x: exact, since 29 + 24 bits of a whole quotient times y fit into a double. Quotients
/// of more digits and zeros go to the C library.
inline Lanes<float> fmod(Lanes<float> x, Lanes<float> y) {
  const Lanes<float> a = absolute(x), b = absolute(y);
  const Wide a_wide = widened(a), b_wide = widened(b);
  const auto rest = [](Lanes<double> a, Lanes<double> b) { return a - trunc(a / b) * b; };
  const Lanes<float> result = narrowed({rest(a_wide.low, b_wide.low), rest(a_wide.high, b_wide.high)});
  const Lanes<float> infinity = Bits<float>::infinity;
  const Mask<float> usual = (a / b < Lanes<float>(0x1p29f)) & (b > Lanes<float>(0)) & (b < infinity) & (a < infinity);
  return or_one_by_one(usual, with_sign_of(result, x), [&](int i) { return __builtin_fmodf(x.v[i], y.v[i]); });
}
inline Lanes<double> fmod(Lanes<double> x, Lanes<double> y) {
  return one_by_one([&](int i) { return __builtin_fmod(x.v[i], y.v[i]); });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
