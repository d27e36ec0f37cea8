// The error function of vectors. exp_kernel.h explains the error bounds.
#pragma once

#include <gradus/backends/openmp/simd/exp_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// erf(x) / x - 1, where erf(x) / x = 2 / sqrt(pi) sum over k of (-1)^k x^2k / (k! (2 k + 1)) (Abramowitz and Stegun
/// 7.1.5).
constexpr Coefficients<float, 11> erf_series_less_one() {
  Coefficients<float, 11> series{};
  double factorial = 1;
  for (int k = 0; k < 11; factorial *= ++k)
    series.c[k] =
        static_cast<float>((k % 2 ? -1.12837916709551257390 : 1.12837916709551257390) / (factorial * (2 * k + 1)));
  series.c[0] = static_cast<float>(0.12837916709551257390);
  return series;
}

/// erf(x) to within 2 ulp: the Taylor series for |x| up to 1, and above it 1 - exp(-x^2) Q(x) with a fitted polynomial
/// Q, until the result rounds to 1. For doubles, which are rare, the C library is used.
inline Lanes<float> erf(Lanes<float> x) {
  constexpr auto series = erf_series_less_one();
  constexpr float end = 4, centre = 1.5f;
  constexpr Coefficients<float, 8> tail = {{0.321585353059f, -0.163624418818f, 0.0761519625146f, -0.0328959362906f,
                                            0.0133834457076f, -0.0053268100057f, 0.00192183597892f,
                                            -0.000388879006318f}};  // from scripts/fit_erfc.py
  const Lanes<float> size = absolute(x), far = select(size > Lanes<float>(end), Lanes<float>(end), size);
  const Lanes<float> near = multiply_add(x, polynomial(x * x, series), x);
  const Lanes<float> rest = exp_of_reduced(reduce_by_ln2(-far * far)) * polynomial(far - centre, tail);
  return select(size > Lanes<float>(1), with_sign_of(Lanes<float>(1) - rest, x), near);
}
inline Lanes<double> erf(Lanes<double> x) {
  return one_by_one([&](int i) { return __builtin_erf(x.v[i]); });
}

/// The distribution function of the normal distribution with an absolute error of at most 2^-24. The probability of
/// values beyond |x| is computed as exp(-x^2 / 2) R(|x|) with a fitted polynomial R. gelu uses this function instead of
/// (1 + erf(x / sqrt(2))) / 2, because it takes half the work (gelu's derivative needs the exponential anyway) and has
/// no cancellation for negative x.
inline Lanes<float> normal_distribution(Lanes<float> x) {
  constexpr float end = 5.3f, centre = 1.25f;
  constexpr Coefficients<float, 12> series = {{0.230760329016f, -0.110492150817f, 0.0463222011631f, -0.0175271944219f,
                                               0.00610576499206f, -0.00198552623667f, 0.000599989491057f,
                                               -0.000169407849008f, 5.03139361524e-5f, -1.55282830853e-5f,
                                               3.37006498957e-6f, -3.15541628597e-7f}};  // from scripts/fit_erfc.py
  const Lanes<float> size = absolute(x), bounded = select(size > Lanes<float>(end), Lanes<float>(end), size);
  const Lanes<float> beyond = exp(Lanes<float>(-0.5) * x * x) * polynomial(bounded - centre, series);
  return select(x > Lanes<float>(0), Lanes<float>(1) - beyond, beyond);
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
