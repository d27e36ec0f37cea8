// Max pooling of one plane, vectors along the output row: the first of equals wins, and NaN over all.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd.h>

namespace gradus::openmp::GRADUS_ISA {

/// The lanes of one vector of outputs that exist, and how to read their inputs.
template <class T>
struct Strip {
  int64_t count;  ///< outputs, 0 < count <= lanes
  int64_t step;   ///< between their inputs

  /// `count` elements that are `step` apart. Reads nothing behind the last of them.
  Vector<T> load_inputs(const T* from) const {
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
};

template <class T>
void max_pool(const PoolArgs<T>& args) {
  constexpr int64_t lanes = kLanes<T>;
  using Integer = IntegerOf<T>;
  const auto [stride_h, stride_w] = args.stride;
  Mask<T> columns;  // of the lanes' inputs, relative to the first
  for (int i = 0; i < kLanes<T>; ++i) columns[i] = static_cast<Integer>(i * stride_w);
  for (int64_t q = 0; q < args.columns; q += lanes) {
    const Strip<T> strip{args.columns - q < lanes ? args.columns - q : lanes, stride_w};
    for (int64_t p = 0; p < args.rows; ++p) {
      const int64_t first = p * stride_h * args.width + q * stride_w;
      Vector<T> best = strip.load_inputs(args.x + first);
      Mask<T> index = columns + static_cast<Integer>(first);
      for (int64_t r = 0; r < args.kernel[0]; ++r)
        for (int64_t s = r == 0 ? 1 : 0; s < args.kernel[1]; ++s) {
          const int64_t at = first + r * args.dilation[0] * args.width + s * args.dilation[1];
          const Vector<T> value = strip.load_inputs(args.x + at);
          const Mask<T> wins = ~(value <= best) & (best == best);
          best = wins ? value : best;
          index = wins ? columns + static_cast<Integer>(at) : index;
        }
      T* y = args.y + p * args.columns + q;
      strip.count == lanes ? store(y, best) : store_first<T>(y, best, strip.count);
      int32_t* out = args.indices + p * args.columns + q;
      if constexpr (sizeof(T) == 4) {
        if (strip.count == lanes) __builtin_memcpy(out, &index, sizeof index);
        else store_first(reinterpret_cast<float*>(out), reinterpret_cast<Vector<float>>(index), strip.count);
      } else {
        for (int64_t i = 0; i < strip.count; ++i) out[i] = static_cast<int32_t>(index[i]);
      }
    }
  }
}

/// Interleaves the lower (upper) halves of a and b: a[0], b[0], a[1], b[1], …
template <class V, int... i>
inline V interleave_low(V a, V b, Indices<i...>) {
  constexpr int lanes = sizeof...(i);
  return __builtin_shufflevector(a, b, (i / 2 + (i % 2) * lanes)...);
}
template <class V, int... i>
inline V interleave_high(V a, V b, Indices<i...>) {
  constexpr int lanes = sizeof...(i);
  return __builtin_shufflevector(a, b, (lanes / 2 + i / 2 + (i % 2) * lanes)...);
}

/// The gradient of pooling by 2 x 2 windows that do not overlap: every input looks whether its window chose it.
template <class T>
void max_pool_backward_2x2(const PoolBackwardArgs<T>& args) {
  constexpr int64_t lanes = kLanes<T>;
  using Integer = IntegerOf<T>;
  for (int64_t q = 0; q < args.columns; q += lanes) {
    const int64_t count = args.columns - q < lanes ? args.columns - q : lanes;
    Mask<T> columns;
    for (int i = 0; i < kLanes<T>; ++i) columns[i] = static_cast<Integer>(2 * (q + i));
    for (int64_t p = 0; p < args.rows; ++p) {
      const T* gradient = args.dy + p * args.columns + q;
      const int32_t* chosen = args.indices + p * args.columns + q;
      const Vector<T> dy = count == lanes ? load(gradient) : load_first(gradient, count);
      Mask<T> index{};
      if constexpr (sizeof(T) == 4) {
        if (count == lanes) __builtin_memcpy(&index, chosen, sizeof index);
        else index = reinterpret_cast<Mask<T>>(load_first(reinterpret_cast<const float*>(chosen), count));
      } else {
        for (int64_t i = 0; i < count; ++i) index[i] = chosen[i];
      }
      for (int64_t r = 0; r < 2; ++r) {
        const int64_t row = (2 * p + r) * args.width;
        const Mask<T> at = columns + static_cast<Integer>(row);
        const Vector<T> even = index == at ? dy : Vector<T>{}, odd = index == at + 1 ? dy : Vector<T>{};
        T* to = args.dx + row + 2 * q;
        const Vector<T> low = interleave_low(even, odd, IndicesUpTo<kLanes<T>>());
        const Vector<T> high = interleave_high(even, odd, IndicesUpTo<kLanes<T>>());
        const int64_t width = 2 * count;
        width >= lanes ? store(to, low) : store_first<T>(to, low, width);
        if (width == 2 * lanes) store(to + lanes, high);
        else if (width > lanes) store_first<T>(to + lanes, high, width - lanes);
      }
    }
  }
}

}  // namespace gradus::openmp::GRADUS_ISA
