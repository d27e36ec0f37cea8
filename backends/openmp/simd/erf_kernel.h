// The error function of vectors; exp_kernel.h tells what the bounds mean.
#pragma once

#include <gradus/backends/openmp/simd/exp_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// erf(x) / x = 2 / sqrt(pi) sum over k of (-1)^k x^2k / (k! (2 k + 1)), Abramowitz and Stegun 7.1.5; less 1.
template <class T, int count>
constexpr Coefficients<T, count> erf_series_less_one() {
  Coefficients<T, count> series{};
  double factorial = 1;
  for (int k = 0; k < count; factorial *= ++k)
    series.c[k] =
        static_cast<T>((k % 2 ? -1.12837916709551257390 : 1.12837916709551257390) / (factorial * (2 * k + 1)));
  series.c[0] = static_cast<T>(0.12837916709551257390);
  return series;
}

/// exp(x^2) erfc(x) for x >= 1: scripts/fit_erfc.py.
template <class T>
struct ScaledErfc;
template <>
struct ScaledErfc<float> {
  static constexpr float end = 4, centre = 1.5f;
  static constexpr Coefficients<float, 8> series = {{0.321585353059f, -0.163624418818f, 0.0761519625146f,
                                                     -0.0328959362906f, 0.0133834457076f, -0.0053268100057f,
                                                     0.00192183597892f, -0.000388879006318f}};
};
template <>
struct ScaledErfc<double> {
  static constexpr double end = 6, centre = 2;
  static constexpr Coefficients<double, 22> series = {
      {0.255395676310505638395,      -0.106796461853489259849,     0.0418027526035441612894,
       -0.0154606377642676713981,    0.00544073853708339911034,    -0.00183166427647981934563,
       0.000592469998225321521107,   -0.00018477836107656984406,   0.0000557283050032070183753,
       -0.0000162937413492994854985, 0.00000462819690659828737545, -0.00000127947912417940157198,
       3.44823651967964152096e-7,    -9.0786027907885373984e-8,    2.33736194640254131266e-8,
       -5.8483829137832886996e-9,    1.42372891921946832417e-9,    -3.55457908154828643997e-10,
       9.31471895656798898806e-11,   -2.13319076244452665091e-11,  3.18957363126342629596e-12,
       -2.14121921467577671748e-13}};
};

/// erf(x) to within 2 ulp: up to 1 its Taylor series, from there on 1 - exp(-x^2) Q(x) with a fitted Q, up to where
/// that is 1.
template <class T>
inline Lanes<T> erf(Lanes<T> x) {
  using Far = ScaledErfc<T>;
  constexpr auto series = erf_series_less_one < T, Bits<T>::single ? 11 : 19 > ();
  const Lanes<T> size = absolute(x), end = Far::end, far = select(size > end, end, size), square = x * x;
  const Lanes<T> near = multiply_add(x, polynomial(square, series), x);
  const Lanes<T> rest = exp_of_reduced(reduce_by_ln2(-far * far)) * polynomial(far - Far::centre, Far::series);
  return select(size > Lanes<T>(1), with_sign_of(Lanes<T>(1) - rest, x), near);
}

/// The normal distribution function of floats with an absolute error of at most 2^-24: exp(-x^2 / 2) R(|x|) is what
/// lies beyond |x|. It takes the place of (1 + erf(x / sqrt(2))) / 2 in gelu: half the work, of which gelu's derivative
/// needs the exponential anyway, and no cancellation where x is negative.
inline Lanes<float> normal_distribution(Lanes<float> x) {
  constexpr float end = 5.3f, centre = 1.25f;
  constexpr Coefficients<float, 12> series = {{0.230760329016f, -0.110492150817f, 0.0463222011631f, -0.0175271944219f,
                                               0.00610576499206f, -0.00198552623667f, 0.000599989491057f,
                                               -0.000169407849008f, 5.03139361524e-5f, -1.55282830853e-5f,
                                               3.37006498957e-6f, -3.15541628597e-7f}};  // scripts/fit_erfc.py
  const Lanes<float> size = absolute(x), bounded = select(size > Lanes<float>(end), Lanes<float>(end), size);
  const Lanes<float> beyond = exp(Lanes<float>(-0.5) * x * x) * polynomial(bounded - centre, series);
  return select(x > Lanes<float>(0), Lanes<float>(1) - beyond, beyond);
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
