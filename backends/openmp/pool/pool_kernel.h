// Max pooling in vectors. Among equal elements the first is the maximum; NaN is larger than all numbers.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/strided_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// Loads 32-bit indices as a vector of integers of the size of T.
template <class T, class Some>
inline Mask<T> load_indices(Some lanes, const int32_t* from) {
  Mask<T> index{};
  if constexpr (sizeof(T) == 4) return reinterpret_cast<Mask<T>>(lanes.get(reinterpret_cast<const float*>(from)));
  for (int64_t i = 0; i < lanes.count; ++i) index[i] = from[i];
  return index;
}
template <class T, class Some>
inline void store_indices(Some lanes, int32_t* to, Mask<T> index) {
  if constexpr (sizeof(T) == 4) return lanes.put(reinterpret_cast<float*>(to), reinterpret_cast<Vector<float>>(index));
  for (int64_t i = 0; i < lanes.count; ++i) to[i] = static_cast<int32_t>(index[i]);
}

/// The lanes in which `value` replaces `best`, because it is larger or the first NaN.
template <class T>
inline Mask<T> wins(Vector<T> value, Vector<T> best) {
  return ~(value <= best) & (best == best);
}

/// `step` is args.x_lane if it is a compile-time constant, else 0.
template <class T, int step>
inline void max_pool_by(const PoolArgs<T>& args) {
  using Integer = IntegerOf<T>;
  const Mask<T> lane_places = lane_numbers<T>() * static_cast<Integer>(args.place_lane);
  for (int64_t r = 0; r < args.rows; ++r)
    for_lanes<T>(args.lanes, [&](int64_t c, auto lanes) {
      const Strip<T> strip{lanes.count, step ? step : args.x_lane};
      const T* x = args.x + r * args.x_row + c * strip.step;
      const Mask<T> moved = lane_places + static_cast<Integer>(r * args.place_row + c * args.place_lane);
      Vector<T> best = args.taps ? strip.load_inputs(x + args.offsets[0]) : broadcast(-T(__builtin_inf()));
      Mask<T> index = args.taps ? moved + static_cast<Integer>(args.places[0]) : Mask<T>{} - 1;
      for (int64_t t = 1; t < args.taps; ++t) {
        const Vector<T> value = strip.load_inputs(x + args.offsets[t]);
        const Mask<T> won = wins<T>(value, best);
        best = won ? value : best;
        index = won ? moved + static_cast<Integer>(args.places[t]) : index;
      }
      lanes.put(args.y + r * args.y_row + c, best);
      store_indices<T>(lanes, args.indices + r * args.index_row + c, index);
    });
}
template <class T>
void max_pool(const PoolArgs<T>& args) {
  if (args.x_lane == 1) max_pool_by<T, 1>(args);
  else if (args.x_lane == 2) max_pool_by<T, 2>(args);
  else max_pool_by<T, 0>(args);
}

/// The gradient of pooling with 2 x 2 windows that do not overlap: an element of dx is dy if its window selected it,
/// else 0.
template <class T>
void max_pool_backward_2x2(const T* dy, const int32_t* indices, int64_t rows, int64_t columns, T* dx, int64_t width) {
  using Integer = IntegerOf<T>;
  const Mask<T> lane_columns = 2 * lane_numbers<T>();
  for (int64_t p = 0; p < rows; ++p)
    for_lanes<T>(columns, [&](int64_t q, auto lanes) {
      const Vector<T> g = lanes.get(dy + p * columns + q);
      const Mask<T> index = load_indices<T>(lanes, indices + p * columns + q);
      for (int64_t r = 0; r < 2; ++r) {
        const int64_t row = (2 * p + r) * width;
        const Mask<T> at = lane_columns + static_cast<Integer>(row + 2 * q);
        const Vector<T> even = index == at ? g : Vector<T>{}, odd = index == at + 1 ? g : Vector<T>{};
        store_interleaved<T>(dx + row + 2 * q, even, odd, 2 * lanes.count);
      }
    });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
