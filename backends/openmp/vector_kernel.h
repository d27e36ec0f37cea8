// Loops over contiguous elements that are worth the widest registers. Outputs may be the same memory as an input.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd.h>

namespace gradus::openmp::GRADUS_ISA {

/// exp(x) to within 2 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, exp(r) by its Taylor polynomial of degree 6 (12 for
/// double), times 2^n in two factors, so that subnormal results and overflow to infinity come out right. NaN stays.
template <class T>
inline Vector<T> exponential(Vector<T> x) {
  constexpr bool single = sizeof(T) == 4;
  constexpr T lowest = single ? T(-104) : T(-746), highest = single ? T(89) : T(710);
  const Vector<T> low = broadcast(lowest), high = broadcast(highest);
  const Vector<T> bounded = x < low ? low : x > high ? high : x;
  // Adding and subtracting 1.5 * 2^(mantissa bits) rounds to the nearest integer, which then is in the low bits.
  const Vector<T> magic = broadcast(single ? T(12582912.0) : T(6755399441055744.0));
  const Vector<T> shifted = multiply_add(bounded, broadcast(T(1.4426950408889634074)), magic);
  const Vector<T> n = shifted - magic;
  Vector<T> r = multiply_add(n, broadcast(single ? T(-0.693359375) : T(-6.93147180369123816490e-01)), bounded);
  r = multiply_add(n, broadcast(single ? T(2.12194440e-4) : T(-1.90821492927058770002e-10)), r);
  constexpr int degree = single ? 7 : 13;
  T factorial[degree + 1] = {1};
  for (int k = 1; k <= degree; ++k) factorial[k] = factorial[k - 1] * T(k);
  Vector<T> p = broadcast(T(1) / factorial[degree]);
#pragma GCC unroll 13
  for (int k = degree - 1; k >= 0; --k) p = multiply_add(p, r, broadcast(T(1) / factorial[k]));
  Mask<T> exponent = reinterpret_cast<Mask<T>>(shifted) - reinterpret_cast<Mask<T>>(magic);
  const Mask<T> half = exponent >> 1;
  constexpr int bits = single ? 23 : 52, bias = single ? 127 : 1023;
  const Vector<T> scale1 = reinterpret_cast<Vector<T>>((half + bias) << bits);
  const Vector<T> scale2 = reinterpret_cast<Vector<T>>((exponent - half + bias) << bits);
  const Vector<T> y = p * scale1 * scale2;
  return x == x ? y : x;
}

template <class T>
T sum(const T* x, int64_t count) {
  Vector<T> total{};
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) total += load(x + i);
  if (i < count) total += load_first(x + i, count - i);
  return sum_of<T>(total);
}

template <class T>
T sum_about(const T* x, T shift, int64_t count) {
  const Vector<T> s = broadcast(shift);
  Vector<T> total{};
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) total += load(x + i) - s;
  T sum = sum_of<T>(total);
  for (; i < count; ++i) sum += x[i] - shift;
  return sum;
}

template <class T>
T squares_about(const T* x, T shift, int64_t count) {
  const Vector<T> s = broadcast(shift);
  Vector<T> total{};
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vector<T> d = load(x + i) - s;
    total = multiply_add(d, d, total);
  }
  T sum = sum_of<T>(total);
  for (; i < count; ++i) sum += (x[i] - shift) * (x[i] - shift);
  return sum;
}

template <class T>
void products_about(const T* g, const T* x, T shift, int64_t count, T (&out)[2]) {
  const Vector<T> s = broadcast(shift);
  Vector<T> plain{}, product{};
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vector<T> v = load(g + i);
    plain += v;
    product = multiply_add(v, load(x + i) - s, product);
  }
  out[0] = sum_of<T>(plain), out[1] = sum_of<T>(product);
  for (; i < count; ++i) out[0] += g[i], out[1] += g[i] * (x[i] - shift);
}

template <class T>
T exp_sum(const T* x, T shift, T* y, int64_t count) {
  const Vector<T> shift_v = broadcast(shift);
  Vector<T> sum{};
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vector<T> e = exponential<T>(load(x + i) - shift_v);
    if (y) store(y + i, e);
    sum += e;
  }
  T total = sum_of<T>(sum);
  if (const int64_t left = count - i) {
    const Vector<T> e = exponential<T>(load_first(x + i, left) - shift_v);
    if (y) store_first(y + i, e, left);
    for (int64_t k = 0; k < left; ++k) total += e[k];
  }
  return total;
}

/// y[i] = f(x[i]) and y[i] = f(a[i], b[i]), a vector at a time.
template <class T, class F>
inline void map(const T* x, T* y, int64_t count, F f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) store(y + i, f(load(x + i)));
  if (i < count) store_first<T>(y + i, f(load_first(x + i, count - i)), count - i);
}
template <class T, class F>
inline void map(const T* a, const T* b, T* y, int64_t count, F f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) store(y + i, f(load(a + i), load(b + i)));
  if (i < count) store_first<T>(y + i, f(load_first(a + i, count - i), load_first(b + i, count - i)), count - i);
}

template <class T>
void affine(const T* x, T shift, T scale, T offset, const T* w, const T* b, T* y, int64_t count) {
  const Vector<T> shift_v = broadcast(shift), scale_v = broadcast(scale), offset_v = broadcast(offset);
  if (!w) return map(x, y, count, [&](Vector<T> v) { return multiply_add(v - shift_v, scale_v, offset_v); });
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vector<T> h = multiply_add(load(x + i) - shift_v, scale_v, offset_v);
    store(y + i, multiply_add(h, load(w + i), load(b + i)));
  }
  for (; i < count; ++i) y[i] = ((x[i] - shift) * scale + offset) * w[i] + b[i];
}

template <class T>
void combine(const T* g, const T* x, T shift, T a, T b, T c, T* y, int64_t count) {
  const Vector<T> shift_v = broadcast(shift), a_v = broadcast(a), b_v = broadcast(b), c_v = broadcast(c);
  map(g, x, y, count,
      [&](Vector<T> u, Vector<T> v) { return multiply_add(u, a_v, multiply_add(v - shift_v, b_v, c_v)); });
}

template <class T>
void neg(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return -v; });
}
template <class T>
void abs(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return v > Vector<T>{} ? v : Vector<T>{} - v; });  // 0 - v: no negative zero
}
template <class T>
void square(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return v * v; });
}
template <class T>
void exp(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return exponential<T>(v); });
}
template <class T>
void sqrt(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return square_root(v); });
}
template <class T>
void rsqrt(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return broadcast(T(1)) / square_root(v); });
}
template <class T>
void reciprocal(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return broadcast(T(1)) / v; });
}
template <class T>
void relu(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return v < Vector<T>{} ? Vector<T>{} : v; });
}
template <class T>
inline Vector<T> logistic(Vector<T> v) {
  return broadcast(T(1)) / (broadcast(T(1)) + exponential<T>(-v));
}
template <class T>
void sigmoid(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return logistic<T>(v); });
}
template <class T>
void gelu_tanh(const T* x, T* y, int64_t n) {  // as in core/scalar_unary.h
  map(x, y, n, [](Vector<T> v) {
    return v * logistic<T>(broadcast(T(1.59576912160573071176)) * (v + broadcast(T(0.044715)) * v * v * v));
  });
}
template <class T>
void mish(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) {
    const Vector<T> limit = broadcast(T(20)), two = broadcast(T(2));
    const Vector<T> e = exponential<T>(v > limit ? limit : v), square = e * (e + two);
    return v > limit ? v : v * (square / (square + two));
  });
}
template <class T>
void silu(const T* x, T* y, int64_t n) {
  map(x, y, n, [](Vector<T> v) { return v * logistic<T>(v); });
}
template <class T>
void add(const T* a, const T* b, T* y, int64_t n) {
  map(a, b, y, n, [](Vector<T> u, Vector<T> v) { return u + v; });
}
template <class T>
void sub(const T* a, const T* b, T* y, int64_t n) {
  map(a, b, y, n, [](Vector<T> u, Vector<T> v) { return u - v; });
}
template <class T>
void mul(const T* a, const T* b, T* y, int64_t n) {
  map(a, b, y, n, [](Vector<T> u, Vector<T> v) { return u * v; });
}
template <class T>
void div(const T* a, const T* b, T* y, int64_t n) {
  map(a, b, y, n, [](Vector<T> u, Vector<T> v) { return u / v; });
}
template <class T>
void maximum(const T* a, const T* b, T* y, int64_t n) {  // NaN wins
  map(a, b, y, n, [](Vector<T> u, Vector<T> v) { return u != u ? u : v != v ? v : u < v ? v : u; });
}
template <class T>
void minimum(const T* a, const T* b, T* y, int64_t n) {
  map(a, b, y, n, [](Vector<T> u, Vector<T> v) { return u != u ? u : v != v ? v : v < u ? v : u; });
}
template <class T>
void relu_backward(const T* a, const T* b, T* y, int64_t n) {
  map(a, b, y, n, [](Vector<T> u, Vector<T> v) { return v > Vector<T>{} ? u : Vector<T>{}; });
}

}  // namespace gradus::openmp::GRADUS_ISA
