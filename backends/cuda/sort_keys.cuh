// What sorting works with: unsigned integers in the order of the numbers, and rows along an axis.
#pragma once

#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/launch.cuh>

namespace gradus::cuda_detail {

/// Of signed integers the sign bit is turned, of floating numbers it is turned in positive ones and everything in negative
/// ones. -0 counts as 0, every NaN as the largest.
__device__ inline uint64_t key_of(int64_t x) { return static_cast<uint64_t>(x) ^ (uint64_t{1} << 63); }
__device__ inline uint32_t key_of(int32_t x) { return static_cast<uint32_t>(x) ^ (uint32_t{1} << 31); }
__device__ inline uint32_t key_of(uint8_t x) { return x; }
__device__ inline uint32_t key_of(bool x) { return x; }
__device__ inline uint64_t key_of(double x) {
  if (x != x) return ~uint64_t{0};
  const auto bits = static_cast<uint64_t>(__double_as_longlong(x == 0 ? 0.0 : x));
  return bits >> 63 ? ~bits : bits | (uint64_t{1} << 63);
}
__device__ inline uint32_t key_of(float x) {
  if (x != x) return ~uint32_t{0};
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
  return bits >> 31 ? ~bits : bits | (uint32_t{1} << 31);
}
template <class T>
using Key = decltype(key_of(compute_t<T>{}));
template <class T>
inline constexpr int kKeyBits = sizeof(T) == 1 ? 8 : 8 * sizeof(Key<T>);

/// The key by which x comes in ascending order, or in descending order.
template <class T>
__device__ Key<T> ordered_key(T x, bool descending) {
  constexpr Key<T> most = sizeof(T) == 1 ? Key<T>{255} : ~Key<T>{0};
  const Key<T> key = key_of(static_cast<compute_t<T>>(x));
  return descending ? most - key : key;
}

/// Sorts the keys, which are in shared memory, and their places: by key, equal ones by place. `slots` is a power of two
/// (Batcher 1968: bitonic sorting). A warp compares within 64 neighbours up to a step of 32, so other warps need not wait.
template <class K>
__device__ void sort_in_block(K* keys, uint32_t* places, uint32_t slots) {
  __syncthreads();
  for (uint32_t width = 2; width <= slots; width *= 2)
    for (uint32_t step = width / 2; step > 0; step /= 2) {
      for (uint32_t pair = threadIdx.x; pair < slots / 2; pair += blockDim.x) {
        const uint32_t i = 2 * pair - (pair & (step - 1)), j = i + step;
        const K left = keys[i], right = keys[j];
        const uint32_t from = places[i], to = places[j];
        const bool after = left > right || (left == right && from > to);
        if (after != ((i & width) == 0)) continue;
        keys[i] = right, places[i] = to;
        keys[j] = left, places[j] = from;
      }
      if ((step > 1 ? step : width) > 32) __syncthreads();
      else __syncwarp();
    }
  __syncthreads();
}

/// The rows along an axis of x, of the indices, and of the values, which may have null data.
struct SortedRows {
  Nest<3> nest;  // over the other axes
  int64_t size;  // of a row of x
  struct Steps {
    int64_t x, indices, values;
  } steps{0, 0, 0};

  SortedRows(const View& x, int axis, const MutableView& values, const MutableView& indices)
      : size(x.ndim() ? x.shape[axis] : 1) {
    const Strides& value_strides = values.data ? values.strides : indices.strides;
    Shape others = x.shape;
    if (x.ndim()) others[axis] = 1, steps = {x.strides[axis], indices.strides[axis], value_strides[axis]};
    nest = Nest<3>(StridedLoop<3>(others, {&x.strides, &indices.strides, &value_strides}));
  }
};

}  // namespace gradus::cuda_detail
