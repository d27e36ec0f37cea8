// Max pooling, vectors along the output row of a plane or along the channels of a pixel: the first of equals wins, and
// NaN over all.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/strided_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// `count` indices, 0 < count <= lanes.
template <class T>
inline Mask<T> load_indices(const int32_t* from, int64_t count) {
  Mask<T> index{};
  if constexpr (sizeof(T) == 4) {
    if (count == kLanes<T>) __builtin_memcpy(&index, from, sizeof index);
    else index = reinterpret_cast<Mask<T>>(load_first(reinterpret_cast<const float*>(from), count));
  } else {
    for (int64_t i = 0; i < count; ++i) index[i] = from[i];
  }
  return index;
}
template <class T>
inline void store_indices(int32_t* to, Mask<T> index, int64_t count) {
  if constexpr (sizeof(T) == 4) {
    if (count == kLanes<T>) __builtin_memcpy(to, &index, sizeof index);
    else store_first(reinterpret_cast<float*>(to), reinterpret_cast<Vector<float>>(index), count);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int32_t>(index[i]);
  }
}

/// Lanes whose value replaces the best so far: it is larger, or the first NaN.
template <class T>
inline Mask<T> wins(Vector<T> value, Vector<T> best) {
  return ~(value <= best) & (best == best);
}

/// Elements [begin, end) of a window that starts at `start` are in an image of `size`.
struct WindowRange {
  int64_t begin, end;
  WindowRange(int64_t start, int64_t kernel, int64_t dilation, int64_t size) {
    begin = start < 0 ? (-start + dilation - 1) / dilation : 0;
    end = start < size ? (size - start + dilation - 1) / dilation : 0;
    if (end > kernel) end = kernel;
  }
};

/// One output whose window may reach outside.
template <class T>
void max_pool_one(const PoolArgs<T>& args, int64_t p, int64_t q) {
  const int64_t h = p * args.stride[0] - args.padding[0], w = q * args.stride[1] - args.padding[1];
  const WindowRange rows(h, args.kernel[0], args.dilation[0], args.height);
  const WindowRange columns(w, args.kernel[1], args.dilation[1], args.width);
  T best = -T(__builtin_inf());
  int64_t index = -1;
  for (int64_t r = rows.begin; r < rows.end; ++r)
    for (int64_t s = columns.begin; s < columns.end; ++s) {
      const int64_t at = (h + r * args.dilation[0]) * args.width + w + s * args.dilation[1];
      const T value = args.x[at];
      if (index < 0 || (!(value <= best) && best == best)) best = value, index = at;
    }
  args.y[p * args.columns + q] = best;
  args.indices[p * args.columns + q] = static_cast<int32_t>(index);
}

template <class T>
void max_pool(const PoolArgs<T>& args) {
  constexpr int64_t lanes = kLanes<T>;
  using Integer = IntegerOf<T>;
  const auto [stride_h, stride_w] = args.stride;
  Mask<T> lane_columns;  // of the lanes' inputs, relative to the first
  for (int i = 0; i < kLanes<T>; ++i) lane_columns[i] = static_cast<Integer>(i * stride_w);
  // Columns [inner_begin, inner_end) have windows inside the image, if rows do.
  const int64_t reach = (args.kernel[1] - 1) * args.dilation[1];
  int64_t inner_begin = (args.padding[1] + stride_w - 1) / stride_w;
  int64_t inner_end = args.width + args.padding[1] - reach;
  inner_end = inner_end > 0 ? (inner_end + stride_w - 1) / stride_w : 0;
  if (inner_end > args.columns) inner_end = args.columns;
  if (inner_end < inner_begin) inner_begin = inner_end = args.columns;
  for (int64_t p = 0; p < args.rows; ++p) {
    for (int64_t q = 0; q < inner_begin; ++q) max_pool_one(args, p, q);
    for (int64_t q = inner_end; q < args.columns; ++q) max_pool_one(args, p, q);
    const int64_t h = p * stride_h - args.padding[0];
    const WindowRange rows(h, args.kernel[0], args.dilation[0], args.height);
    for (int64_t q = inner_begin; q < inner_end; q += lanes) {
      const Strip<T> strip{inner_end - q < lanes ? inner_end - q : lanes, stride_w};
      const int64_t corner = h * args.width + q * stride_w - args.padding[1];
      Vector<T> best = broadcast(-T(__builtin_inf()));
      Mask<T> index = Mask<T>{} - 1;
      for (int64_t r = rows.begin; r < rows.end; ++r)
        for (int64_t s = 0; s < args.kernel[1]; ++s) {
          const int64_t at = corner + r * args.dilation[0] * args.width + s * args.dilation[1];
          const Vector<T> value = strip.load_inputs(args.x + at);
          const bool first = r == rows.begin && s == 0;
          const Mask<T> won = first ? Mask<T>{} - 1 : wins<T>(value, best);
          best = won ? value : best;
          index = won ? lane_columns + static_cast<Integer>(at) : index;
        }
      T* y = args.y + p * args.columns + q;
      store_some(y, best, strip.count == lanes, strip.count);
      store_indices<T>(args.indices + p * args.columns + q, index, strip.count);
    }
  }
}

template <class T>
void max_pool_channels(const ChannelPoolArgs<T>& args) {
  using Integer = IntegerOf<T>;
  for (int64_t i = 0; i < args.pixels; ++i) {
    const T* x = args.x + i * args.x_step;
    const Integer moved = static_cast<Integer>(i * args.place_step);
    for_lanes<T>(args.channels, [&](int64_t c, auto lanes) {
      const auto get = [&](int64_t t) { return lanes.get(x + args.offsets[t] + c); };
      Vector<T> best = args.taps ? get(0) : broadcast(-T(__builtin_inf()));
      Mask<T> index = Mask<T>{} + (args.taps ? static_cast<Integer>(args.places[0]) + moved : Integer(-1));
      for (int64_t t = 1; t < args.taps; ++t) {
        const Vector<T> value = get(t);
        const Mask<T> won = wins<T>(value, best);
        best = won ? value : best;
        index = won ? Mask<T>{} + (static_cast<Integer>(args.places[t]) + moved) : index;
      }
      lanes.put(args.y + i * args.y_step + c, best);
      store_indices<T>(args.indices + i * args.index_step + c, index, lanes.count);
    });
  }
}

/// Every input looks which of its windows chose it.
template <class T>
void max_pool_channels_backward(const ChannelPoolBackwardArgs<T>& args) {
  for (int64_t i = 0; i < args.pixels; ++i) {
    const Mask<T> place = Mask<T>{} + static_cast<IntegerOf<T>>(args.place + i * args.place_step);
    for (int64_t c = 0; c < args.channels; c += kLanes<T>) {
      const int64_t count = args.channels - c < kLanes<T> ? args.channels - c : kLanes<T>;
      const bool whole = count == kLanes<T>;
      Vector<T> sum{};
      for (int64_t t = 0; t < args.taps; ++t) {
        const Vector<T> dy = load_some(args.dy + i * args.dy_step + args.offsets[t] + c, whole, count);
        const int32_t* indices = args.indices + i * args.index_step + args.index_offsets[t] + c;
        sum += load_indices<T>(indices, count) == place ? dy : Vector<T>{};
      }
      store_some(args.dx + i * args.dx_step + c, sum, whole, count);
    }
  }
}

/// The gradient of pooling by 2 x 2 windows that do not overlap: every input looks whether its window chose it.
template <class T>
void max_pool_backward_2x2(const PoolBackwardArgs<T>& args) {
  using Integer = IntegerOf<T>;
  Mask<T> lane_columns;
  for (int i = 0; i < kLanes<T>; ++i) lane_columns[i] = static_cast<Integer>(2 * i);
  for (int64_t p = 0; p < args.rows; ++p) {
    for_lanes<T>(args.columns, [&](int64_t q, auto lanes) {
      const Vector<T> dy = lanes.get(args.dy + p * args.columns + q);
      const Mask<T> index = load_indices<T>(args.indices + p * args.columns + q, lanes.count);
      for (int64_t r = 0; r < 2; ++r) {
        const int64_t row = (2 * p + r) * args.width;
        const Mask<T> at = lane_columns + static_cast<Integer>(row + 2 * q);
        const Vector<T> even = index == at ? dy : Vector<T>{}, odd = index == at + 1 ? dy : Vector<T>{};
        store_interleaved<T>(args.dx + row + 2 * q, even, odd, 2 * lanes.count);
      }
    });
  }
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
