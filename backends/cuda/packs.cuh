// Neighbours in memory that a thread loads and stores at once, up to 16 bytes of them.
#pragma once

#include <gradus/backends/cuda/launch.cuh>

namespace gradus::cuda_detail {

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T value[N];
};
template <int N, class T>
__device__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

}  // namespace gradus::cuda_detail
