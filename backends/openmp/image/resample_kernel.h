// Weighted sums of rows, columns and pixels, used by average pooling and interpolation.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/strided_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T>
void gather_columns(const GatherArgs<T>& args) {
  constexpr int64_t lanes = kLanes<T>;
  for (int64_t q = 0; q < args.columns; q += lanes) {
    Vector<T> sum{};
    for (int64_t k = 0; k < args.taps; ++k) {
      Mask<T> index;
      __builtin_memcpy(&index, args.sources + k * args.pitch + q, sizeof index);
      const Vector<T> v = gather(args.x, index);
      sum = multiply_add(load(args.weights + k * args.pitch + q), v, sum);
    }
    const int64_t left = args.columns - q;
    store_some(args.y + q, sum, left >= lanes, left);
  }
}

template <class T>
void pool_columns(const T* x, int64_t step, int64_t taps, const T* weights, T* y, int64_t count) {
  for (int64_t q = 0; q < count; q += kLanes<T>) {
    const Strip<T> strip{count - q < kLanes<T> ? count - q : kLanes<T>, step};
    Vector<T> sum{};
    for (int64_t k = 0; k < taps; ++k)
      sum = multiply_add(broadcast(weights[k]), strip.load_inputs(x + q * step + k), sum);
    store_some(y + q, sum, strip.count == kLanes<T>, strip.count);
  }
}

template <class T>
void repeat_columns(const T* x, T weight, T* y, int64_t count) {
  constexpr int64_t lanes = kLanes<T>;
  for (int64_t q = 0; q < count; q += 2 * lanes) {
    const int64_t left = count - q, inputs = (left + 1) / 2;
    const Vector<T> v = load_some(x + q / 2, inputs >= lanes, inputs) * broadcast(weight);
    store_interleaved<T>(y + q, v, v, left);
  }
}

template <class T>
void weighted_sum(const T* x, int64_t terms, const int64_t* offsets, const T* weights, T* y, int64_t count) {
  for_lanes<T>(count, [&](int64_t i, auto lanes) {
    Vector<T> sum{};
    for (int64_t t = 0; t < terms; ++t) sum = multiply_add(broadcast(weights[t]), lanes.get(x + offsets[t] + i), sum);
    lanes.put(y + i, sum);
  });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
