// Vectorised loads and stores.
#pragma once

#include <cstring>

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

/// N neighbours in memory, which a thread loads and stores with one instruction for every 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T value[N];
};
/// Returns true if the view consists of vectors of `vec` neighbours along `axis` that are aligned as a Vec.
inline bool has_vectors_along(const View& view, int axis, int64_t vec) {
  const auto size = static_cast<int64_t>(size_of(view.dtype)), aligned = std::min(vec, 16 / size);
  if (view.ndim() == 0 || view.strides[axis] != 1 || view.shape[axis] % vec != 0) return false;
  for (int i = 0; i < view.ndim(); ++i)
    if (i != axis && view.shape[i] != 1 && view.strides[i] % aligned != 0) return false;
  return reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(aligned * size) == 0;
}

template <int N, class T>
__device__ Vec<T, N> load(const T* from) {
  return *reinterpret_cast<const Vec<T, N>*>(from);
}
/// Stores a vector to device memory. The compiler may split an ordinary store into one store, and one memory
/// transaction, for each element; the asm statements keep it whole.
template <int N, class T>
__device__ void store(T* to, const Vec<T, N>& vec) {
  if constexpr (sizeof(vec) % 8 == 0) {
    uint32_t words[sizeof(vec) / 4];
    memcpy(words, &vec, sizeof(vec));
    const size_t at = __cvta_generic_to_global(to);
    if constexpr (sizeof(vec) == 8)
      asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(words[0]), "r"(words[1]) : "memory");
#pragma unroll
    for (size_t i = 0; i < sizeof(vec) / 16; ++i)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at + 16 * i), "r"(words[4 * i]),
                   "r"(words[4 * i + 1]), "r"(words[4 * i + 2]), "r"(words[4 * i + 3])
                   : "memory");
  } else {
    *reinterpret_cast<Vec<T, N>*>(to) = vec;
  }
}

}  // namespace gradus::cuda_detail
