// Sums and extremes of contiguous elements, a vector at a time.
#pragma once

#include <gradus/backends/openmp/norm_kernel.h>

namespace gradus::openmp::GRADUS_ISA {

template <class T>
T sum(const T* x, int64_t count) {
  constexpr int64_t step = 4 * kLanes<T>;
  Vector<T> part[4] = {};  // four chains of additions, each of which waits for itself alone
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

/// The largest (or smallest) element, NaN if there is one; count > 0.
template <class T, bool largest>
T extreme(const T* x, int64_t count) {
  const auto better = [](Vector<T> best, Vector<T> v) {
    return ((largest ? v > best : v < best) | (v != v)) ? v : best;
  };
  // Once NaN is in a lane nothing is better than it, but for another NaN.
  constexpr int64_t step = 4 * kLanes<T>;
  Vector<T> best[4] = {broadcast(x[0]), broadcast(x[0]), broadcast(x[0]), broadcast(x[0])};
  int64_t i = 0;
  for (; i + step <= count; i += step)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) best[k] = better(best[k], load(x + i + k * kLanes<T>));
  Vector<T> one = better(better(best[0], best[1]), better(best[2], best[3]));
  for (; i + kLanes<T> <= count; i += kLanes<T>) one = better(one, load(x + i));
  T result = one[0];
  const auto take = [&](T v) { result = (largest ? v > result : v < result) || v != v ? v : result; };
  for (int lane = 1; lane < kLanes<T>; ++lane) take(one[lane]);
  for (; i < count; ++i) take(x[i]);
  return result;
}

/// Index of the first element that equals `value`, or of the first NaN if that is what it is; -1 if there is none.
template <class T>
int64_t find(const T* x, T value, int64_t count) {
  const Vector<T> wanted = broadcast(value);
  const bool any_nan = value != value;
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vector<T> v = load(x + i);
    if (any(any_nan ? v != v : v == wanted)) break;
  }
  for (; i < count; ++i)
    if (any_nan ? x[i] != x[i] : x[i] == value) return i;
  return -1;
}

/// In each lane the extreme of the rows and the first row that has it, NaN counting as extreme.
template <class T, bool largest>
inline void extremes_of_lanes(const RowsOf<const T>& x, T* best, int64_t* row) {
  for_lanes<T>(x.lanes, [&](int64_t c, auto get, auto put) {
    Vector<T> most = get(x.data + c);
    Mask<T> at{};
    for (int64_t r = 1; r < x.rows; ++r) {
      const Vector<T> v = get(x.data + r * x.stride + c);
      const Mask<T> wins = (largest ? v > most : v < most) | ((v != v) & (most == most));
      most = wins ? v : most;
      at = wins ? (at & 0) + static_cast<IntegerOf<T>>(r) : at;
    }
    put(best + c, most);
    for (int64_t i = c; i < x.lanes && i < c + kLanes<T>; ++i) row[i] = at[i - c];
  });
}
template <class T>
void lane_extremes(const RowsOf<const T>& x, bool largest, T* best, int64_t* row) {
  if (largest) extremes_of_lanes<T, true>(x, best, row);
  else extremes_of_lanes<T, false>(x, best, row);
}

}  // namespace gradus::openmp::GRADUS_ISA
