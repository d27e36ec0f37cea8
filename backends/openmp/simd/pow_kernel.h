// Powers and remainders of vectors. exp_kernel.h explains the error bounds. Both functions need intermediate values of
// higher precision: floats are computed in double. For doubles, which are rare, the C library is used.
#pragma once

#include <gradus/backends/openmp/simd/log_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// x^y for positive finite x and finite y.
inline Lanes<float> power(Lanes<float> x, Lanes<float> y) {
  using L = Lanes<double>;
  const auto [k, f] = split_exponent(x);  // exact
  const Wide k_wide = widened(k), f_wide = widened(f), y_wide = widened(y);
  const Wide inverse = widened(Lanes<float>(1) / (f + Lanes<float>(2)));
  const auto part = [](L k, L f, L inverse, L y) {  // the series have as many terms as float precision needs
    constexpr auto tail = atanh_series<double, 6>(3);
    constexpr auto factorials = inverse_factorials<double, 9>(0, 1, false);
    // A Newton step doubles the number of correct digits.
    inverse = multiply_add(multiply_add(-(f + L(2)), inverse, L(1)), inverse, inverse);
    const L s = f * inverse, z = s * s, half_square = L(0.5) * f * f;
    const L log = multiply_add(k, L(0.69314718055994530942),
                               f - (half_square - s * multiply_add(z, polynomial(z, tail), half_square)));
    // Beyond these bounds the result is 0 or infinity.
    const auto reduced = reduce_by_ln2(bounded(y * log, -110.0, 90.0));
    return polynomial(reduced.r, factorials) * power_of_two<double>(reduced.n);
  };
  return narrowed({part(k_wide.low, f_wide.low, inverse.low, y_wide.low),
                   part(k_wide.high, f_wide.high, inverse.high, y_wide.high)});
}

/// x^y to within 2 ulp. The C library computes it for zeros, infinities and NaN.
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

/// The remainder of x / y with the sign of x. It is exact, because an integer quotient of up to 29 bits times y (24
/// bits) fits in a double. For larger quotients and zeros, the C library is used.
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
