// Rows that a block reads, by vectors where alignment allows.
#pragma once

#include <type_traits>

#include <gradus/backends/cuda/device/reduce_plan.h>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {

/// A row that a block reads.
template <class T>
struct Row {
  T* data;
  int64_t step;

  template <int kWidth>
  __device__ auto load(int64_t i) const {
    if constexpr (kWidth == 1) return Vec<std::remove_const_t<T>, 1>{data[i * step]};
    else return cuda_detail::load<kWidth>(static_cast<const std::remove_const_t<T>*>(data) + i);
  }
  template <int kWidth>
  __device__ void store(int64_t i, const Vec<T, kWidth>& vec) const {
    if constexpr (kWidth == 1) data[i * step] = vec.value[0];
    else cuda_detail::store(data + i, vec);
  }
  /// How many elements behind a multiple of 16 bytes it begins.
  __device__ uint32_t place() const { return reinterpret_cast<uintptr_t>(data) % 16 / sizeof(T); }
};

/// Elements [head, tail) of rows of one length can be taken in vectors of 16 bytes, which the rows have at the same
/// places or not at all.
template <class T, class... Others>
struct VectorizedRows {
  static constexpr int kWidth = 16 / sizeof(T);
  int64_t size, head = size, tail = size;

  __device__ VectorizedRows(int64_t size, const Row<T>& row, const Row<Others>&... others) : size(size) {
    if (row.step != 1 || !(... && (others.step == 1 && others.place() == row.place()))) return;
    head = min(size, static_cast<int64_t>((kWidth - row.place()) % kWidth));
    tail = size - (size - head) % kWidth;
  }
  /// Calls f<width>(first element) for vectors and single elements, spread over a block.
  template <class F>
  __device__ void for_each_vec(F&& f) const {
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < head; i += blockDim.x) f.template operator()<1>(i);
    for (int64_t i = head + kWidth * threadIdx.x; i < tail; i += kWidth * blockDim.x) f.template operator()<kWidth>(i);
    for (int64_t i = tail + threadIdx.x; i < size; i += blockDim.x) f.template operator()<1>(i);
  }
};

/// to[i] = f(i, from[i]…) by a block, computed in the type that the elements compute in.
template <class Rows, class Out, class F, class... In>
__device__ void map_row(const Rows& rows, const Row<Out>& to, F&& f, const Row<In>&... from) {
  rows.for_each_vec([&]<int kWidth>(int64_t i) {
    Vec<Out, kWidth> out;
    [&](const auto&... in) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        out.value[k] = static_cast<Out>(f(i + k, static_cast<compute_t<Out>>(in.value[k])...));
    }(from.template load<kWidth>(i)...);
    to.store(i, out);
  });
}

}  // namespace gradus::cuda_detail
