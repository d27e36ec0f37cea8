// Loads vectors of elements with a fixed stride, and stores two vectors so that their elements alternate in memory.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/simd.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// The number of valid lanes of a vector of outputs, and the stride of the inputs.
template <class T>
struct Strip {
  int64_t count;  ///< outputs, 0 < count <= lanes
  int64_t step;   ///< distance between the inputs of neighbouring outputs

  /// Loads `count` elements with stride `step`. Reads nothing after the last of them.
  Vector<T> load_inputs(const T* from) const {
    constexpr int64_t lanes = kLanes<T>;
    if (step == 1) return count == lanes ? load(from) : load_first(from, count);
    if (step == 2) {
      const int64_t span = 2 * count - 1;
      const Vector<T> low = span >= lanes ? load(from) : load_first(from, span);
      const Vector<T> high = span > lanes ? load_first(from + lanes, span - lanes) : Vector<T>{};
      return even_lanes(low, high);
    }
    Vector<T> v{};
    for (int64_t i = 0; i < count; ++i) v[i] = from[i * step];
    return v;
  }
};

/// Interleaves the lower (upper) halves of a and b: a[0], b[0], a[1], b[1], …
template <class V>
inline V interleave_low(V a, V b) {
  return shuffled<[](int i) { return i / 2 + i % 2 * kLaneCount<V>; }>(a, b);
}
template <class V>
inline V interleave_high(V a, V b) {
  return shuffled<[](int i) { return kLaneCount<V> / 2 + i / 2 + i % 2 * kLaneCount<V>; }>(a, b);
}

/// Stores the first `count` (at least one) of a[0], b[0], a[1], b[1], …
template <class T>
inline void store_interleaved(T* to, Vector<T> a, Vector<T> b, int64_t count) {
  constexpr int64_t lanes = kLanes<T>;
  store_some(to, interleave_low(a, b), count >= lanes, count);
  if (count > lanes) store_some(to + lanes, interleave_high(a, b), count >= 2 * lanes, count - lanes);
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
