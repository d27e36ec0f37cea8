// Sums and extremes of contiguous elements, in vectors.
#pragma once

#include <gradus/backends/openmp/simd/norm_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T>
T sum(const T* x, int64_t count) {
  constexpr int64_t step = 4 * kLanes<T>;
  Vector<T> part[4] = {};  // four independent chains of additions
  int64_t i = 0;
  for (; i + step <= count; i += step)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) part[k] += load(x + i + k * kLanes<T>);
  Vector<T> total = (part[0] + part[1]) + (part[2] + part[3]);
  for (; i + kLanes<T> <= count; i += kLanes<T>) total += load(x + i);
  if (i < count) total += load_first(x + i, count - i);
  return sum_of<T>(total);
}

template <class T>
T exp_sum(const T* x, T shift, T* y, int64_t count) {
  const Vector<T> shift_v = broadcast(shift);
  Vector<T> sum{};
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vector<T> e = exp<T>(Lanes<T>(load(x + i) - shift_v)).v;
    if (y) store(y + i, e);
    sum += e;
  }
  T total = sum_of<T>(sum);
  if (const int64_t left = count - i) {
    const Vector<T> e = exp<T>(Lanes<T>(load_first(x + i, left) - shift_v)).v;
    if (y) store_first(y + i, e, left);
    for (int64_t k = 0; k < left; ++k) total += e[k];
  }
  return total;
}

/// The product, computed in double because products of floats soon exceed the range of float.
template <class T>
double product(const T* x, int64_t count) {
  constexpr int chains = 64;  // independent chains, which compilers vectorise
  double part[chains];
  for (double& p : part) p = 1;
  int64_t i = 0;
  for (; i + chains <= count; i += chains)
    for (int k = 0; k < chains; ++k) part[k] *= static_cast<double>(x[i + k]);
  for (; i < count; ++i) part[0] *= static_cast<double>(x[i]);
  for (int k = 1; k < chains; ++k) part[0] *= part[k];
  return part[0];
}

/// In each lane, the larger (or smaller) of the two numbers, or NaN if one of them is NaN.
template <class T, bool largest>
inline Vector<T> better(Vector<T> best, Vector<T> v) {
  return ((largest ? v > best : v < best) | (v != v)) ? v : best;
}
/// The best of all lanes: compares the halves of the vector, then the halves of the result, until one lane remains.
template <class T, bool largest, int width = kLanes<T> / 2>
inline T best_lane(Vector<T> best) {
  best = better<T, largest>(best, rotated<T, width>(best));
  if constexpr (width == 1) return best[0];
  else return best_lane<T, largest, width / 2>(best);
}

/// The largest (or smallest) element, or NaN if there is one. Requires count > 0.
template <class T, bool largest>
T extreme(const T* x, int64_t count) {
  constexpr int64_t lanes = kLanes<T>, step = 4 * lanes;
  Vector<T> best[4] = {broadcast(x[0]), broadcast(x[0]), broadcast(x[0]), broadcast(x[0])};
  Mask<T> nan{};  // at_least and at_most may drop NaN, so it is tracked separately
  int64_t i = 0;
  for (; i + step <= count; i += step)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const Vector<T> v = load(x + i + k * lanes);
      best[k] = largest ? at_least(v, best[k]) : at_most(v, best[k]);
      nan |= v != v;
    }
  if (any(nan)) return Bits<T>::nan;
  for (int k = 1; k < 4; ++k) best[0] = better<T, largest>(best[0], best[k]);
  for (; i + lanes <= count; i += lanes) best[0] = better<T, largest>(best[0], load(x + i));
  for (; i < count; ++i) best[0] = better<T, largest>(best[0], broadcast(x[i]));
  return best_lane<T, largest>(best[0]);
}

/// Index of the first element for which `holds` is true (a mask for vectors, a bool for numbers), or `count`.
template <class T, class F>
inline int64_t first_where(const T* x, int64_t count, F holds) {
  int64_t i = 0;
  while (i + kLanes<T> <= count && !any(holds(Lanes<T>(load(x + i))))) i += kLanes<T>;
  while (i < count && !holds(x[i])) ++i;
  return i;
}
template <class T>
int64_t find(const T* x, T value, int64_t count) {
  if (value != value) {
    return first_where(x, count, [](auto v) { return v != v; });
  }
  return first_where(x, count, [value](auto v) { return v == decltype(v)(value); });
}
template <class T>
int64_t find_beyond(const T* x, T limit, bool above, int64_t count) {
  if (above) {
    return first_where(x, count, [limit](auto v) { return !(v <= decltype(v)(limit)); });
  }
  return first_where(x, count, [limit](auto v) { return v < decltype(v)(limit); });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
