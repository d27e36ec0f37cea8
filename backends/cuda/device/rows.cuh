// Sums and maxima over the threads of a block that work on one row together. A block has whole warps.
#pragma once

#include <type_traits>

#include <gradus/backends/cuda/device/packs.cuh>

namespace gradus::cuda_detail {

/// What the lane whose number differs from this one's by the bit `step` has.
template <class A>
__device__ A exchanged(const A& value, int step) {
  if constexpr (std::is_arithmetic_v<A>) return __shfl_xor_sync(0xffffffffu, value, step);
  else return value.exchanged(step);
}

/// Adds values over the lanes that differ in the bits from kStep down to kLast; lanes end with equal shares of the
/// sums, in their order, in front. Each step exchanges half of what is left with a partner, kCount values.
template <int kStep, int kLast, int kCount, int N, class C>
__device__ void share_sums(C (&values)[N], int lane) {
  if constexpr (kStep >= kLast) {
    const bool upper = lane & kStep;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const C sent = upper ? values[i] : values[i + kCount], kept = upper ? values[i + kCount] : values[i];
      values[i] = kept + exchanged(sent, kStep);
    }
    share_sums<kStep / 2, kLast, kCount / 2>(values, lane);
  }
}

/// fold over groups of kLanes neighbouring lanes of a warp, in a fixed tree; every lane gets the result.
template <int kLanes, class A, class F>
__device__ A fold_group(A value, F&& fold) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value = fold(value, exchanged(value, step));
  return value;
}
template <class A, class F>
__device__ A fold_warp(A value, F&& fold) {
  return fold_group<32>(value, fold);
}

/// fold over all threads of a block; every thread gets the result. `shared` has room for 32 values.
template <class A, class F>
__device__ A fold_block(A value, A* shared, F&& fold) {
  value = fold_warp(value, fold);
  const uint32_t warps = blockDim.x / 32;
  if (warps == 1) return value;
  __syncthreads();  // an earlier result may still be read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (uint32_t warp = 1; warp < warps; ++warp) value = fold(value, shared[warp]);
  return value;
}

struct Add {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
struct Larger {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a > b || a != a ? a : b;
  }
};

/// The larger number; NaN only of two. A sum of exponentials finds NaN by itself.
struct LargerNumber {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return ::fmax(a, b);
  }
};

/// exp(x) for a sum to which 1 belongs, good to 2^-22 where x is about 0.
__device__ inline float rough_exponential(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));  // log2(e)
  return power;
}
__device__ inline double rough_exponential(double x) { return ::exp(x); }
/// exp(x) for a result of type T.
template <class T>
__device__ compute_t<T> exponential(compute_t<T> x) {
  if constexpr (sizeof(T) == 2) return rough_exponential(x);
  else return ::exp(x);
}

/// m = max(x) and sum(exp(x - m)) of numbers that come a few at a time, in one pass (Milakov and Gimelshein 2018).
/// Where all are -inf the sum stays 0.
template <class C>
struct RunningSum {
  C max = -C(INFINITY), sum = 0;

  template <int N>
  __device__ void add(const C (&x)[N]) {
    C top = max;
#pragma unroll
    for (int k = 0; k < N; ++k) top = LargerNumber()(x[k], top);
    const C base = base_of(top);
    sum *= rough_exponential(max - base);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += rough_exponential(x[k] - base);
    max = top;
  }
  /// Of all threads of a block, in each of them. `shared` has room for 32 values.
  __device__ void fold_over_block(C* shared) {
    const C top = fold_block(max, shared, LargerNumber());
    sum = fold_block(sum * rough_exponential(max - base_of(top)), shared, Add());
    max = top;
  }

 private:
  // Without it -inf - -inf would be NaN.
  __device__ static C base_of(C top) { return top == -C(INFINITY) ? C(0) : top; }
};

/// That of a row, whose element i is at(i), by a block.
template <class C, class At>
__device__ RunningSum<C> running_sum_of_row(int64_t size, C* shared, At&& at) {
  constexpr int kAtOnce = 4;
  RunningSum<C> result;
  for (int64_t first = threadIdx.x; first < size; first += kAtOnce * blockDim.x) {
    C x[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t i = first + k * static_cast<int64_t>(blockDim.x);
      x[k] = i < size ? at(i) : -C(INFINITY);
    }
    result.add(x);
  }
  result.fold_over_block(shared);
  return result;
}

/// A row that a block walks.
template <class T>
struct Row {
  T* data;
  int64_t step;

  template <int kWidth>
  __device__ auto load(int64_t i) const {
    if constexpr (kWidth == 1) return Pack<std::remove_const_t<T>, 1>{data[i * step]};
    else return cuda_detail::load<kWidth>(static_cast<const std::remove_const_t<T>*>(data) + i);
  }
  template <int kWidth>
  __device__ void store(int64_t i, const Pack<T, kWidth>& pack) const {
    if constexpr (kWidth == 1) data[i * step] = pack.value[0];
    else cuda_detail::store(data + i, pack);
  }
  /// How many elements behind a multiple of 16 bytes it begins.
  __device__ uint32_t place() const { return reinterpret_cast<uintptr_t>(data) % 16 / sizeof(T); }
};

/// Elements [head, tail) of rows of one length can be taken in packs of 16 bytes, which the rows have at the same
/// places or not at all.
template <class T, class... Others>
struct PackedRows {
  static constexpr int kWidth = 16 / sizeof(T);
  int64_t size, head = size, tail = size;

  __device__ PackedRows(int64_t size, const Row<T>& row, const Row<Others>&... others) : size(size) {
    if (row.step != 1 || !(... && (others.step == 1 && others.place() == row.place()))) return;
    head = min(size, static_cast<int64_t>((kWidth - row.place()) % kWidth));
    tail = size - (size - head) % kWidth;
  }
  /// Calls f<width>(first element) for packs and single elements, spread over a block.
  template <class F>
  __device__ void walk(F&& f) const {
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < head; i += blockDim.x) f.template operator()<1>(i);
    for (int64_t i = head + kWidth * threadIdx.x; i < tail; i += kWidth * blockDim.x) f.template operator()<kWidth>(i);
    for (int64_t i = tail + threadIdx.x; i < size; i += blockDim.x) f.template operator()<1>(i);
  }
};

/// By packs where there are any.
template <class C, class T, class... Others>
__device__ RunningSum<C> running_sum_of_row(const PackedRows<T, Others...>& rows, const Row<T>& row, C* shared) {
  if (rows.head == rows.size)
    return running_sum_of_row<C>(rows.size, shared, [&](int64_t i) { return static_cast<C>(row.data[i * row.step]); });
  RunningSum<C> result;
  rows.walk([&]<int kWidth>(int64_t i) {
    const auto pack = row.template load<kWidth>(i);
    C x[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) x[k] = static_cast<C>(pack.value[k]);
    result.add(x);
  });
  result.fold_over_block(shared);
  return result;
}

/// Rows of up to so many elements are a warp's, which keeps them in registers; longer ones are a block's.
inline constexpr int64_t kWarpRow = 1024;
/// Threads for a block that works on a row of `size` elements.
inline uint32_t row_threads(int64_t size) { return size <= 4096 ? 256 : 1024; }

}  // namespace gradus::cuda_detail
