// Vectors of the width that this file is compiled for. Arithmetic is the compilers' vector extension; fused
// multiply-add and partial loads, which it lacks, are intrinsics. Included once per instruction set, in the namespace
// GRADUS_ISA, and by kernel headers only.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace gradus::openmp_detail::GRADUS_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16, kRegisters = 32;
#else
constexpr int kVectorBytes = 16, kRegisters = 16;
#endif

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes)));
  typedef int32_t Mask __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t Unsigned __attribute__((vector_size(kVectorBytes)));
  typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes / 4)));  // one a lane
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes)));
  typedef int64_t Mask __attribute__((vector_size(kVectorBytes)));
  typedef uint64_t Unsigned __attribute__((vector_size(kVectorBytes)));
  typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes / 8)));
};
template <class T>
using Vector = typename VectorOf<T>::Type;
template <class T>
using Mask = typename VectorOf<T>::Mask;
template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

/// The integer of T's size, as masks and lane numbers have it.
template <class T>
using IntegerOf = decltype(Mask<T>{}[0] + 0);

/// A list of integers known at compile time: IndicesUpTo<3> is Indices<0, 1, 2>.
template <int... i>
struct Indices {};
template <int count, int... i>
struct CountIndices : CountIndices<count - 1, count - 1, i...> {};
template <int... i>
struct CountIndices<0, i...> {
  using Type = Indices<i...>;
};
template <int count>
using IndicesUpTo = typename CountIndices<count>::Type;

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
inline void store(T* to, Vector<T> v) {
  __builtin_memcpy(to, &v, sizeof v);
}

/// All lanes equal.
inline Vector<float> broadcast(float x) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(x);
#elif defined(__AVX2__)
  return _mm256_set1_ps(x);
#else
  return Vector<float>{x, x, x, x};
#endif
}
inline Vector<double> broadcast(double x) {
#if defined(__AVX512F__)
  return _mm512_set1_pd(x);
#elif defined(__AVX2__)
  return _mm256_set1_pd(x);
#else
  return Vector<double>{x, x};
#endif
}

/// a * b + c, in one rounding where the instruction set has that.
inline Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}
inline Vector<double> multiply_add(Vector<double> a, Vector<double> b, Vector<double> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_pd(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f64(c, a, b);
#else
  return a * b + c;
#endif
}

inline Vector<float> square_root(Vector<float> x) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(0xffff, x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#elif defined(__aarch64__)
  return vsqrtq_f32(x);
#elif defined(__SSE2__)
  return _mm_sqrt_ps(x);
#else
  for (int i = 0; i < kLanes<float>; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}
inline Vector<double> square_root(Vector<double> x) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_pd(0xff, x);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(x);
#elif defined(__aarch64__)
  return vsqrtq_f64(x);
#elif defined(__SSE2__)
  return _mm_sqrt_pd(x);
#else
  for (int i = 0; i < kLanes<double>; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
#endif
}

/// The larger (smaller) of x and a bound; NaN where x is NaN.
inline Vector<float> at_least(Vector<float> bound, Vector<float> x) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(0xffff, bound, x);
#elif defined(__AVX2__)
  return _mm256_max_ps(bound, x);
#elif defined(__SSE2__)
  return _mm_max_ps(bound, x);
#else
  return x < bound ? bound : x;
#endif
}
inline Vector<float> at_most(Vector<float> bound, Vector<float> x) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(0xffff, bound, x);
#elif defined(__AVX2__)
  return _mm256_min_ps(bound, x);
#elif defined(__SSE2__)
  return _mm_min_ps(bound, x);
#else
  return x > bound ? bound : x;
#endif
}
inline Vector<double> at_least(Vector<double> bound, Vector<double> x) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_pd(0xff, bound, x);
#elif defined(__AVX2__)
  return _mm256_max_pd(bound, x);
#elif defined(__SSE2__)
  return _mm_max_pd(bound, x);
#else
  return x < bound ? bound : x;
#endif
}
inline Vector<double> at_most(Vector<double> bound, Vector<double> x) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_pd(0xff, bound, x);
#elif defined(__AVX2__)
  return _mm256_min_pd(bound, x);
#elif defined(__SSE2__)
  return _mm_min_pd(bound, x);
#else
  return x > bound ? bound : x;
#endif
}

/// All bits set where a or b is NaN.
inline Mask<float> unordered(Vector<float> a, Vector<float> b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Mask<float>>(_mm512_movm_epi32(_mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q)));
#elif defined(__AVX2__)
  return reinterpret_cast<Mask<float>>(_mm256_cmp_ps(a, b, _CMP_UNORD_Q));
#else
  return (a != a) | (b != b);
#endif
}
inline Mask<double> unordered(Vector<double> a, Vector<double> b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Mask<double>>(_mm512_movm_epi64(_mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q)));
#elif defined(__AVX2__)
  return reinterpret_cast<Mask<double>>(_mm256_cmp_pd(a, b, _CMP_UNORD_Q));
#else
  return (a != a) | (b != b);
#endif
}

#if defined(__AVX512F__)
/// x 2^n for whole n, rounded once.
inline Vector<float> times_power_of_two(Vector<float> x, Vector<float> n) {
  return _mm512_maskz_scalef_ps(0xffff, x, n);
}
inline Vector<double> times_power_of_two(Vector<double> x, Vector<double> n) {
  return _mm512_maskz_scalef_pd(0xff, x, n);
}
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
/// Lanes 0 to count - 1, as masked loads and stores want them.
template <class T>
inline __m256i first_lanes(int64_t count) {
  if constexpr (sizeof(T) == 4)
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  else return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
#endif

/// The first `count` lanes, 0 < count < lanes; the others are 0. Memory behind them is not touched.
template <class T>
inline Vector<T> load_first(const T* from, int64_t count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
  else return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1), from);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) return _mm256_maskload_ps(from, first_lanes<T>(count));
  else return _mm256_maskload_pd(from, first_lanes<T>(count));
#else
  Vector<T> v{};
  for (int64_t i = 0; i < count; ++i) v[i] = from[i];
  return v;
#endif
}
template <class T>
inline void store_first(T* to, Vector<T> v, int64_t count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), v);
  else _mm512_mask_storeu_pd(to, static_cast<__mmask8>((1u << count) - 1), v);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) _mm256_maskstore_ps(to, first_lanes<T>(count), v);
  else _mm256_maskstore_pd(to, first_lanes<T>(count), v);
#else
  for (int64_t i = 0; i < count; ++i) to[i] = v[i];
#endif
}

/// v in a register: compilers else read a vector from memory again for every use, which costs where it straddles lines
/// of the cache.
template <class T>
inline Vector<T> in_register(Vector<T> v) {
#if defined(__AVX2__)
  __asm__("" : "+v"(v));
#endif
  return v;
}

/// True where a lane of the mask is set; lanes are all ones or zero.
template <class M>
inline bool any(M mask) {
#if defined(__AVX512F__)
  const __m512i bits = reinterpret_cast<__m512i>(mask);
  return _mm512_test_epi64_mask(bits, bits) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_epi8(reinterpret_cast<__m256i>(mask)) != 0;
#elif defined(__aarch64__)
  return vmaxvq_u32(reinterpret_cast<uint32x4_t>(mask)) != 0;
#elif defined(__SSE2__)
  return _mm_movemask_epi8(reinterpret_cast<__m128i>(mask)) != 0;
#else
  bool found = false;
  for (int i = 0; i < static_cast<int>(sizeof mask / sizeof mask[0]); ++i) found |= mask[i] != 0;
  return found;
#endif
}

/// A whole vector, or its first `count` lanes.
template <class T>
inline Vector<T> load_some(const T* from, bool whole, int64_t count) {
  return whole ? load(from) : load_first(from, count);
}
template <class T>
inline void store_some(T* to, Vector<T> v, bool whole, int64_t count) {
  whole ? store(to, v) : store_first(to, v, count);
}

/// How one vector of elements is read and written: all lanes, or the first `count`. Lanes that are not there read as 0,
/// and keep makes them 0.
template <class T>
struct AllLanes {
  static constexpr int64_t count = kLanes<T>;
  Vector<T> get(const T* from) const { return load(from); }
  void put(T* to, Vector<T> v) const { store(to, v); }
  Vector<T> keep(Vector<T> v) const { return v; }
};
template <class T>
struct FirstLanes {
  int64_t count;
  Vector<T> get(const T* from) const { return load_first(from, count); }
  void put(T* to, Vector<T> v) const { store_first<T>(to, v, count); }
  Vector<T> keep(Vector<T> v) const {
    Mask<T> lane;
    for (int k = 0; k < kLanes<T>; ++k) lane[k] = k;
    return lane < static_cast<IntegerOf<T>>(count) ? v : Vector<T>{};
  }
};

/// Calls f(i, lanes) for the vectors of `count` elements; each starts at element i.
template <class T, class F>
inline void for_lanes(int64_t count, F f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) f(i, AllLanes<T>());
  if (i < count) f(i, FirstLanes<T>{count - i});
}

/// Calls f.template operator()<n>() with n = value, a constant from 1 to `most`.
template <int most, class F>
inline void with_constant(int64_t value, F f) {
  if constexpr (most > 1)
    if (value != most) return with_constant<most - 1>(value, f);
  f.template operator()<most>();
}

/// Lanes 0, 2, 4, … of a followed by those of b; and the others.
template <class V, int... i>
inline V even_lanes(V a, V b, Indices<i...>) {
  return __builtin_shufflevector(a, b, (2 * i)...);
}
template <class V, int... i>
inline V odd_lanes(V a, V b, Indices<i...>) {
  return __builtin_shufflevector(a, b, (2 * i + 1)...);
}
/// Sums of neighbours: a[0] + a[1], a[2] + a[3], …, then b's.
template <class T>
inline Vector<T> add_pairs(Vector<T> a, Vector<T> b) {
  return even_lanes(a, b, IndicesUpTo<kLanes<T>>()) + odd_lanes(a, b, IndicesUpTo<kLanes<T>>());
}

/// Sum of the lanes: the upper half is added to the lower one until one is left.
template <class T, int width, int... i>
inline Vector<T> rotated(Vector<T> v, Indices<i...>) {
  return __builtin_shufflevector(v, v, ((i + width) % kLanes<T>)...);
}
template <class T, int width = kLanes<T> / 2>
inline T sum_of(Vector<T> v) {
  v += rotated<T, width>(v, IndicesUpTo<kLanes<T>>());
  if constexpr (width == 1) return v[0];
  else return sum_of<T, width / 2>(v);
}

/// The sums of the lanes of `count` vectors, four at a time by adding neighbours.
template <class T, int count>
inline void lane_sums(const Vector<T>* v, T* sums) {
  if constexpr (kLanes<T> >= 4 && count % 4 == 0) {
    for (int j = 0; j < count; j += 4) {
      Vector<T> quarters = add_pairs<T>(add_pairs<T>(v[j], v[j + 1]), add_pairs<T>(v[j + 2], v[j + 3]));
      for (int width = kLanes<T>; width > 4; width /= 2) quarters = add_pairs<T>(quarters, quarters);
      for (int i = 0; i < 4; ++i) sums[j + i] = quarters[i];
    }
  } else {
    for (int j = 0; j < count; ++j) sums[j] = sum_of<T>(v[j]);
  }
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
