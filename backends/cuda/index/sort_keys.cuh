// What sorting works with: unsigned integers in the order of the numbers, and rows along an axis.
#pragma once

#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

template <class T>
using Key = std::conditional_t<sizeof(compute_t<T>) == 8, uint64_t, uint32_t>;

/// Of signed integers the sign bit is turned, of floating numbers it is turned in positive ones and everything in
/// negative ones. -0 counts as 0, every NaN as the largest.
template <class T>
__device__ Key<T> key_of(T x) {
  constexpr Key<T> kSign = Key<T>{1} << (8 * sizeof(Key<T>) - 1);
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return ~Key<T>{0};
    const auto bits = __builtin_bit_cast(Key<T>, x == 0 ? T(0) : x);
    return bits & kSign ? ~bits : bits | kSign;
  } else {
    return std::is_signed_v<T> ? static_cast<Key<T>>(x) ^ kSign : static_cast<Key<T>>(x);
  }
}
template <class T>
inline constexpr int kKeyBits = sizeof(T) == 1 ? 8 : 8 * sizeof(Key<T>);

/// The key by which x comes in ascending order, or in descending order.
template <class T>
__device__ Key<T> ordered_key(T x, bool descending) {
  constexpr Key<T> most = sizeof(T) == 1 ? Key<T>{255} : ~Key<T>{0};
  const Key<T> key = key_of(static_cast<compute_t<T>>(x));
  return descending ? most - key : key;
}

/// A key and where it comes from; no two are alike.
template <class K>
struct Placed {
  K key;
  uint32_t place;

  __device__ bool after(const Placed& other) const {
    return key > other.key || (key == other.key && place > other.place);
  }
  __device__ Placed of_lane(uint32_t difference) const {
    return {__shfl_xor_sync(0xffffffffu, key, difference), __shfl_xor_sync(0xffffffffu, place, difference)};
  }
};

/// Sorts the keys, which are in shared memory, and their places: by key, equal ones by place. `slots` is a power of two
/// (Batcher 1968: bitonic sorting). Steps up to 32 stay within 64 neighbours, which a warp keeps in registers
/// meanwhile.
template <class K>
__device__ void sort_in_block(K* keys, uint32_t* places, uint32_t slots) {
  constexpr uint32_t kOfWarp = 64;
  const uint32_t lane = threadIdx.x % 32;
  __syncthreads();
  for (uint32_t width = min(slots, kOfWarp); width <= slots; width *= 2) {
    for (uint32_t step = width / 2; step >= kOfWarp; step /= 2) {
      for (uint32_t pair = threadIdx.x; pair < slots / 2; pair += blockDim.x) {
        const uint32_t i = 2 * pair - (pair & (step - 1)), j = i + step;
        const Placed<K> left{keys[i], places[i]}, right{keys[j], places[j]};
        if (left.after(right) != ((i & width) == 0)) continue;
        keys[i] = right.key, places[i] = right.place;
        keys[j] = left.key, places[j] = left.place;
      }
      __syncthreads();
    }
    for (uint32_t i = threadIdx.x / 32 * kOfWarp + lane; i - lane < slots; i += 2 * blockDim.x) {
      const uint32_t j = i + 32;
      Placed<K> left{}, right{};
      if (i < slots) left = {keys[i], places[i]};
      if (j < slots) right = {keys[j], places[j]};
      for (uint32_t part = width <= kOfWarp ? 2 : width; part <= width; part *= 2) {
        if (part >= kOfWarp && left.after(right) == ((i & part) == 0)) {
          const Placed<K> kept = left;
          left = right, right = kept;
        }
        for (uint32_t step = min(part / 2, 16); step > 0; step /= 2) {
          const bool first = (lane & step) == 0;
          const Placed<K> other_left = left.of_lane(step), other_right = right.of_lane(step);
          if (left.after(other_left) == (((i & part) == 0) == first)) left = other_left;
          if (right.after(other_right) == (((j & part) == 0) == first)) right = other_right;
        }
      }
      if (i < slots) keys[i] = left.key, places[i] = left.place;
      if (j < slots) keys[j] = right.key, places[j] = right.place;
    }
    __syncthreads();
  }
}

/// The rows of x along an axis, and where the order of each goes, as a kernel argument.
template <class T>
struct SortedRows {
  Geometry<3> others;  // the other axes: of x, indices, values
  struct Steps {       // along the axis
    int64_t x = 0, indices = 0, values = 0;
  } steps;
  const T* x;
  int64_t* indices;
  T* values;  // may be null
  bool descending;

  SortedRows(const View& x, int axis, bool descending, const MutableView& values, const MutableView& indices)
      : x(x.as<T>()), indices(indices.as<int64_t>()), values(values.data ? values.as<T>() : static_cast<T*>(nullptr)),
        descending(descending) {
    const Strides& value_strides = values.data ? values.strides : indices.strides;
    Shape shape = x.shape;
    if (x.ndim()) shape[axis] = 1, steps = {x.strides[axis], indices.strides[axis], value_strides[axis]};
    others = Nest<3>(StridedLoop<3>(shape, {&x.strides, &indices.strides, &value_strides})).geometry();
  }

  struct Row {
    const SortedRows& rows;
    int64_t at[3];

    __device__ Key<T> key(uint32_t i) const { return ordered_key(rows.x[at[0] + i * rows.steps.x], rows.descending); }
    /// Element `from` is the one with `rank` others before it.
    __device__ void store(uint32_t rank, uint32_t from) const {
      rows.indices[at[1] + rank * rows.steps.indices] = from;
      if (rows.values) rows.values[at[2] + rank * rows.steps.values] = rows.x[at[0] + from * rows.steps.x];
    }
  };
  __device__ Row operator[](uint32_t r) const {
    Row row{*this, {}};
    others.offsets(r, row.at);
    return row;
  }
};

}  // namespace gradus::cuda_detail
