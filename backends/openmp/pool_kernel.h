// Max pooling of one plane, vectors along the output row: the first of equals wins, and NaN over all.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd.h>

namespace gradus::openmp::GRADUS_ISA {

/// Lanes 0, 2, 4, … of a followed by those of b.
template <class V, int... i>
inline V even_lanes(V a, V b, Indices<i...>) {
  return __builtin_shufflevector(a, b, (2 * i)...);
}

/// `count` elements that are `step` apart, 0 < count <= lanes. Reads nothing behind the last of them.
template <class T>
inline Vector<T> load_strided(const T* from, int64_t step, int64_t count) {
  constexpr int64_t lanes = kLanes<T>;
  if (step == 1) return count == lanes ? load(from) : load_first(from, count);
  if (step == 2) {
    const int64_t span = 2 * count - 1;
    const Vector<T> low = span >= lanes ? load(from) : load_first(from, span);
    const Vector<T> high = span > lanes ? load_first(from + lanes, span - lanes) : Vector<T>{};
    return even_lanes(low, high, IndicesUpTo<kLanes<T>>());
  }
  Vector<T> v{};
  for (int64_t i = 0; i < count; ++i) v[i] = from[i * step];
  return v;
}

template <class T>
void max_pool(const PoolArgs<T>& args) {
  constexpr int64_t lanes = kLanes<T>;
  Mask<T> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = i;
  const auto [stride_h, stride_w] = args.stride;
  using Integer = IntegerOf<T>;
  for (int64_t p = 0; p < args.rows; ++p)
    for (int64_t q = 0; q < args.columns; q += lanes) {
      const int64_t count = args.columns - q < lanes ? args.columns - q : lanes;
      const int64_t first = p * stride_h * args.width + q * stride_w;
      Vector<T> best = load_strided(args.x + first, stride_w, count);
      const Mask<T> columns = lane * static_cast<Integer>(stride_w);
      Mask<T> index = columns + static_cast<Integer>(first);
      for (int64_t r = 0; r < args.kernel[0]; ++r)
        for (int64_t s = r == 0 ? 1 : 0; s < args.kernel[1]; ++s) {
          const int64_t at = first + r * args.dilation[0] * args.width + s * args.dilation[1];
          const Vector<T> value = load_strided(args.x + at, stride_w, count);
          const Mask<T> wins = (value > best) | ((value != value) & (best == best));
          best = wins ? value : best;
          index = wins ? columns + static_cast<Integer>(at) : index;
        }
      T* y = args.y + p * args.columns + q;
      count == lanes ? store(y, best) : store_first<T>(y, best, count);
      int32_t* out = args.indices + p * args.columns + q;
      if constexpr (sizeof(T) == 4) {
        if (count == lanes) __builtin_memcpy(out, &index, sizeof index);
        else store_first(reinterpret_cast<float*>(out), reinterpret_cast<Vector<float>>(index), count);
      } else {
        for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(index[i]);
      }
    }
}

}  // namespace gradus::openmp::GRADUS_ISA
