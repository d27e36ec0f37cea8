// Lanes: a vector that can be used like a number in formulas such as those of core/formulas/scalar_unary.h and
// core/formulas/optimizer_rules.h. Comparisons return masks; select() chooses between two vectors by a mask.
#pragma once

#include <type_traits>

#include <gradus/backends/openmp/simd/simd.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T>
struct Lanes {
  Vector<T> v;
  Lanes() = default;
  Lanes(Vector<T> v) : v(v) {}  // NOLINT(google-explicit-constructor)
  template <class Number>
  requires std::is_arithmetic_v<Number> Lanes(Number x)  // NOLINT(google-explicit-constructor)
      : v(broadcast(static_cast<T>(x))) {}
  static Lanes from_bits(Mask<T> bits) { return reinterpret_cast<Vector<T>>(bits); }
  Mask<T> bits() const { return reinterpret_cast<Mask<T>>(v); }

  friend Lanes operator-(Lanes a) { return -a.v; }
  friend Lanes operator+(Lanes a, Lanes b) { return a.v + b.v; }
  friend Lanes operator-(Lanes a, Lanes b) { return a.v - b.v; }
  friend Lanes operator*(Lanes a, Lanes b) { return a.v * b.v; }
  friend Lanes operator/(Lanes a, Lanes b) { return a.v / b.v; }
  friend Mask<T> operator<(Lanes a, Lanes b) { return a.v < b.v; }
  friend Mask<T> operator>(Lanes a, Lanes b) { return a.v > b.v; }
  friend Mask<T> operator<=(Lanes a, Lanes b) { return a.v <= b.v; }
  friend Mask<T> operator>=(Lanes a, Lanes b) { return a.v >= b.v; }
  friend Mask<T> operator==(Lanes a, Lanes b) { return a.v == b.v; }
  friend Mask<T> operator!=(Lanes a, Lanes b) { return a.v != b.v; }
  friend Lanes select(Mask<T> where, Lanes a, Lanes b) { return where ? a.v : b.v; }
  friend Lanes sqrt(Lanes x) { return square_root(x.v); }
  /// a b + c, with a single rounding if the instruction set has fused multiply-add.
  friend Lanes multiply_add(Lanes a, Lanes b, Lanes c) { return GRADUS_ISA::multiply_add(a.v, b.v, c.v); }
};

/// The bit layout of T, and constants that follow from it.
template <class T>
struct Bits {
  static constexpr bool single = sizeof(T) == 4;
  static constexpr int mantissa = single ? 23 : 52, bias = single ? 127 : 1023;
  static constexpr IntegerOf<T> sign = static_cast<IntegerOf<T>>(1) << (8 * sizeof(T) - 1);
  static constexpr T infinity = static_cast<T>(__builtin_inf()), nan = static_cast<T>(__builtin_nan(""));
  static constexpr T smallest_normal = single ? T(0x1p-126) : T(0x1p-1022);
  /// All numbers of at least this size are integers. x + 1.5 whole rounds x to the nearest integer, which is then in
  /// the low bits of the sum.
  static constexpr T whole = single ? T(0x1p23) : T(0x1p52);
};

/// |x|. This function and with_sign_of() change only the sign bit, so NaN and zeros of both signs need no special case.
template <class T>
inline Lanes<T> absolute(Lanes<T> x) {
  return Lanes<T>::from_bits(x.bits() & ~Bits<T>::sign);
}
template <class T>
inline Lanes<T> with_sign_of(Lanes<T> x, Lanes<T> sign) {
  return Lanes<T>::from_bits((x.bits() & ~Bits<T>::sign) | (sign.bits() & Bits<T>::sign));
}

/// Rounds to the nearest integer. The next functions round down, up and towards zero. All are exact and keep the sign
/// of zeros. NaN and numbers beyond `whole` are unchanged.
template <class T>
inline Lanes<T> rint(Lanes<T> x) {
  const Lanes<T> size = absolute(x), whole = Bits<T>::whole;
  return select(size < whole, with_sign_of(size + whole - whole, x), x);
}
template <class T>
inline Lanes<T> floor(Lanes<T> x) {
  const Lanes<T> near = rint(x);
  return with_sign_of(select(near > x, near - 1, near), x);
}
template <class T>
inline Lanes<T> ceil(Lanes<T> x) {
  const Lanes<T> near = rint(x);
  return with_sign_of(select(near < x, near + 1, near), x);
}
template <class T>
inline Lanes<T> trunc(Lanes<T> x) {
  const Lanes<T> size = absolute(x), near = rint(size);
  return with_sign_of(select(near > size, near - 1, near), x);
}

/// Coefficients of a polynomial, lowest power first.
template <class T, int count>
struct Coefficients {
  T c[count];
};
template <class T, int count>
inline Lanes<T> polynomial(Lanes<T> x, const Coefficients<T, count>& of) {  // Horner's rule
  Lanes<T> y = of.c[count - 1];
#pragma GCC unroll 32
  for (int k = count - 2; k >= 0; --k) y = multiply_add(y, x, Lanes<T>(of.c[k]));
  return y;
}

/// A vector of floats as two vectors of doubles. Used where float precision is not enough for intermediate values
/// (quotients, reduced arguments, logarithms of powers). widened() and narrowed() convert between the two forms.
struct Wide {
  Lanes<double> low, high;
};
template <int... i>
inline Wide widened(Vector<float> x, Indices<i...>) {
  return {__builtin_convertvector(__builtin_shufflevector(x, x, i...), Vector<double>),
          __builtin_convertvector(__builtin_shufflevector(x, x, (i + kLanes<double>)...), Vector<double>)};
}
inline Wide widened(Lanes<float> x) { return widened(x.v, IndicesUpTo<kLanes<double>>()); }
template <int... i>
inline Lanes<float> narrowed(Wide x, Indices<i...>) {
  typedef float Half __attribute__((vector_size(kVectorBytes / 2)));
  const Half low = __builtin_convertvector(x.low.v, Half), high = __builtin_convertvector(x.high.v, Half);
  return Lanes<float>(Vector<float>(__builtin_shufflevector(low, high, i...)));
}
inline Lanes<float> narrowed(Wide x) { return narrowed(x, IndicesUpTo<kLanes<float>>()); }

/// Returns y if all lanes are `usual`, which is almost always the case; otherwise computes the other lanes one by one
/// as f(i).
template <class T, class F>
inline Lanes<T> or_one_by_one(Mask<T> usual, Lanes<T> y, F f) {
  if (any(~usual)) [[unlikely]]
    for (int i = 0; i < kLanes<T>; ++i)
      if (!usual[i]) y.v[i] = f(i);
  return y;
}
/// Computes all lanes of a vector of doubles one by one as f(i).
template <class F>
inline Lanes<double> one_by_one(F f) {
  return or_one_by_one(Mask<double>{}, Lanes<double>{}, f);
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
