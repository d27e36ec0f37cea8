// Neighbours in memory that a thread loads and stores at once, up to 16 bytes of them.
#pragma once

#include <cstring>

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T value[N];
};
template <int N, class T>
__device__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
/// To device memory. The compiler takes packs apart and may then store their elements one by one, each with a
/// transaction of its own; these stores stay whole.
template <int N, class T>
__device__ void store(T* to, const Pack<T, N>& pack) {
  if constexpr (sizeof(pack) % 8 == 0) {
    uint32_t words[sizeof(pack) / 4];
    memcpy(words, &pack, sizeof(pack));
    const size_t at = __cvta_generic_to_global(to);
    if constexpr (sizeof(pack) == 8)
      asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(words[0]), "r"(words[1]) : "memory");
#pragma unroll
    for (size_t i = 0; i < sizeof(pack) / 16; ++i)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at + 16 * i), "r"(words[4 * i]),
                   "r"(words[4 * i + 1]), "r"(words[4 * i + 2]), "r"(words[4 * i + 3])
                   : "memory");
  } else {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  }
}

}  // namespace gradus::cuda_detail
