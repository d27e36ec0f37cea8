// Vectors of the width of the instruction set for which the file is compiled. Arithmetic uses the vector extension of
// the compilers. Operations that the extension lacks (fused multiply-add, square roots, partial loads, …) are defined
// below for each instruction set. Only kernel headers include this file, once per instruction set, in the namespace
// GRADUS_ISA.
#pragma once

#include <cstdint>
#include <utility>
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
  typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes / 4)));  // one per lane
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
using Floats = Vector<float>;
using Doubles = Vector<double>;
template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <class V>
constexpr int kLaneCount = sizeof(V) / sizeof(V{}[0]);
/// True if loads and stores of the first lanes take as long as those of all lanes.
constexpr bool kPartialIsFree = kVectorBytes == 64;

/// The integer type of T's size, used for masks and lane numbers.
template <class T>
using IntegerOf = decltype(Mask<T>{}[0] + 0);

/// IndicesUpTo<3> is Indices<0, 1, 2>.
template <int... i>
using Indices = std::integer_sequence<int, i...>;
template <int count>
using IndicesUpTo = std::make_integer_sequence<int, count>;

/// Lane i of the result is lane from(i) of a followed by b; `from` is known at compile time.
template <auto from, class V, int... i>
inline V shuffled(V a, V b, Indices<i...>) {
  return __builtin_shufflevector(a, b, from(i)...);
}
template <auto from, class V>
inline V shuffled(V a, V b) {
  return shuffled<from>(a, b, IndicesUpTo<kLaneCount<V>>());
}

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

/// A vector with x in all lanes.
template <class T>
inline Vector<T> broadcast(T x) {
  const Vector<T> first{x};
  return shuffled<[](int) { return 0; }>(first, first);
}

/// The vector 0, 1, 2, …
template <class T>
inline Mask<T> lane_numbers() {
  Mask<T> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = i;
  return lane;
}

/// The larger (at_most: the smaller) of x and `bound`, in one instruction; NaN if x is NaN.
template <class V>
inline V at_least(V bound, V x) {
  return x < bound ? bound : x;
}
template <class V>
inline V at_most(V bound, V x) {
  return x > bound ? bound : x;
}

// Each instruction set defines:
//   multiply_add(a, b, c)           a b + c, with one rounding if the instruction set has fused multiply-add
//   square_root(x)
//   load_first(from, count)         the first `count` lanes, 0 < count < lanes; the others are 0. Memory after them
//                                   is not read
//   store_first(to, v, count)
//   gather(from, index)             from[index] in every lane whose index is not negative, else 0
//   any(mask)                       true if a lane of the mask is set; lanes are all ones or all zeros
//   multiply_low_halves(a, b)       the products of the lower halves of 64-bit words

using Words = VectorOf<double>::Unsigned;  // of 64 bits

#if defined(__AVX512F__)

inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
inline Floats square_root(Floats x) { return _mm512_maskz_sqrt_ps(0xffff, x); }
inline Doubles square_root(Doubles x) { return _mm512_maskz_sqrt_pd(0xff, x); }

template <class T>
inline auto first_lanes(int64_t count) {
  return static_cast<std::conditional_t<sizeof(T) == 4, __mmask16, __mmask8>>((1u << count) - 1);
}
inline Floats load_first(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(first_lanes<float>(count), from);
}
inline Doubles load_first(const double* from, int64_t count) {
  return _mm512_maskz_loadu_pd(first_lanes<double>(count), from);
}
inline void store_first(float* to, Floats v, int64_t count) { _mm512_mask_storeu_ps(to, first_lanes<float>(count), v); }
inline void store_first(double* to, Doubles v, int64_t count) {
  _mm512_mask_storeu_pd(to, first_lanes<double>(count), v);
}
inline Floats gather(const float* from, Mask<float> index) {
  const __m512i at = reinterpret_cast<__m512i>(index);
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), _mm512_movepi32_mask(~at), at, from, 4);
}
inline Doubles gather(const double* from, Mask<double> index) {
  const __m512i at = reinterpret_cast<__m512i>(index);
  return _mm512_mask_i64gather_pd(_mm512_setzero_pd(), _mm512_movepi64_mask(~at), at, from, 8);
}
template <class M>
inline bool any(M mask) {
  const __m512i bits = reinterpret_cast<__m512i>(mask);
  return _mm512_test_epi64_mask(bits, bits) != 0;
}
inline Words multiply_low_halves(Words a, Words b) {
  return reinterpret_cast<Words>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
/// x 2^n for an integer n, with a single rounding.
inline Floats times_power_of_two(Floats x, Floats n) { return _mm512_maskz_scalef_ps(0xffff, x, n); }
inline Doubles times_power_of_two(Doubles x, Doubles n) { return _mm512_maskz_scalef_pd(0xff, x, n); }

#elif defined(__AVX2__)

inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a, b, c); }
inline Floats square_root(Floats x) { return _mm256_sqrt_ps(x); }
inline Doubles square_root(Doubles x) { return _mm256_sqrt_pd(x); }

template <class T>
inline __m256i first_lanes(int64_t count) {
  return reinterpret_cast<__m256i>(lane_numbers<T>() < static_cast<IntegerOf<T>>(count));
}
inline Floats load_first(const float* from, int64_t count) {
  return _mm256_maskload_ps(from, first_lanes<float>(count));
}
inline Doubles load_first(const double* from, int64_t count) {
  return _mm256_maskload_pd(from, first_lanes<double>(count));
}
inline void store_first(float* to, Floats v, int64_t count) { _mm256_maskstore_ps(to, first_lanes<float>(count), v); }
inline void store_first(double* to, Doubles v, int64_t count) {
  _mm256_maskstore_pd(to, first_lanes<double>(count), v);
}
inline Floats gather(const float* from, Mask<float> index) {
  const Floats chosen = reinterpret_cast<Floats>(~index);
  return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), from, reinterpret_cast<__m256i>(index), chosen, 4);
}
inline Doubles gather(const double* from, Mask<double> index) {
  const Doubles chosen = reinterpret_cast<Doubles>(~index);
  return _mm256_mask_i64gather_pd(_mm256_setzero_pd(), from, reinterpret_cast<__m256i>(index), chosen, 8);
}
template <class M>
inline bool any(M mask) {
  return _mm256_movemask_epi8(reinterpret_cast<__m256i>(mask)) != 0;
}
inline Words multiply_low_halves(Words a, Words b) {
  return reinterpret_cast<Words>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}

#else

#if defined(__aarch64__)
inline Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return vfmaq_f64(c, a, b); }
inline Floats square_root(Floats x) { return vsqrtq_f32(x); }
inline Doubles square_root(Doubles x) { return vsqrtq_f64(x); }
#else
template <class V>
inline V multiply_add(V a, V b, V c) {
  return a * b + c;
}
inline Floats square_root(Floats x) {
  for (int i = 0; i < kLanes<float>; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
inline Doubles square_root(Doubles x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
}
#endif
template <class T>
inline Vector<T> load_first(const T* from, int64_t count) {
  Vector<T> v{};
  for (int64_t i = 0; i < count; ++i) v[i] = from[i];
  return v;
}
template <class T>
inline void store_first(T* to, Vector<T> v, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = v[i];
}
template <class T>
inline Vector<T> gather(const T* from, Mask<T> index) {
  Vector<T> v{};
  for (int i = 0; i < kLanes<T>; ++i)
    if (index[i] >= 0) v[i] = from[index[i]];
  return v;
}
template <class M>
inline bool any(M mask) {
  bool found = false;
  for (int i = 0; i < static_cast<int>(sizeof mask / sizeof mask[0]); ++i) found |= mask[i] != 0;
  return found;
}
inline Words multiply_low_halves(Words a, Words b) { return (a & UINT32_MAX) * (b & UINT32_MAX); }

#endif

/// Keeps v in a register. Otherwise compilers load the vector from memory again for every use, which is slow if it
/// crosses a cache line.
template <class T>
inline Vector<T> in_register(Vector<T> v) {
#if defined(__AVX2__)
  __asm__("" : "+v"(v));
#endif
  return v;
}

/// Loads a whole vector, or its first `count` lanes.
template <class T>
inline Vector<T> load_some(const T* from, bool whole, int64_t count) {
  return whole ? load(from) : load_first(from, count);
}
template <class T>
inline void store_some(T* to, Vector<T> v, bool whole, int64_t count) {
  whole ? store(to, v) : store_first(to, v, count);
}

/// Reads and writes all lanes of a vector. The next type, which has the same functions, reads and writes only the first
/// `count` lanes: other lanes are read as 0, and keep() sets them to 0.
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
  void put(T* to, Vector<T> v) const { store_first(to, v, count); }
  Vector<T> keep(Vector<T> v) const { return lane_numbers<T>() < static_cast<IntegerOf<T>>(count) ? v : Vector<T>{}; }
};

/// The first `count` lanes, or all lanes if `count` is larger, which is decided at run time.
template <class T>
struct SomeLanes {
  int64_t count;
  Vector<T> get(const T* from) const {
    if constexpr (kPartialIsFree) return load_first(from, count < kLanes<T> ? count : kLanes<T>);
    else return load_some(from, count >= kLanes<T>, count);
  }
  void put(T* to, Vector<T> v) const {
    if constexpr (kPartialIsFree) store_first(to, v, count < kLanes<T> ? count : kLanes<T>);
    else store_some(to, v, count >= kLanes<T>, count);
  }
};

/// Calls f(i, lanes) for the vectors that cover `count` elements, where i is the first element of the vector.
template <class T, class F>
inline void for_lanes(int64_t count, F f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) f(i, AllLanes<T>());
  if (i < count) f(i, FirstLanes<T>{count - i});
}

/// Calls f.template operator()<n>() with the compile-time constant n equal to `value`, which is from 1 to `most`.
template <int most, class F>
inline void with_constant(int64_t value, F f) {
  if constexpr (most > 1)
    if (value != most) return with_constant<most - 1>(value, f);
  f.template operator()<most>();
}

/// Lanes 0, 2, 4, … of a, followed by lanes 0, 2, 4, … of b. odd_lanes(): lanes 1, 3, 5, …
template <class V>
inline V even_lanes(V a, V b) {
  return shuffled<[](int i) { return 2 * i; }>(a, b);
}
template <class V>
inline V odd_lanes(V a, V b) {
  return shuffled<[](int i) { return 2 * i + 1; }>(a, b);
}
/// The sums of neighbouring lanes: a[0] + a[1], a[2] + a[3], …, followed by b[0] + b[1], …
template <class V>
inline V add_pairs(V a, V b) {
  return even_lanes(a, b) + odd_lanes(a, b);
}

/// Rotates: lane i of the result is lane i + width, modulo the number of lanes.
template <class T, int width>
inline Vector<T> rotated(Vector<T> v) {
  return shuffled<[](int i) { return (i + width) % kLanes<T>; }>(v, v);
}
/// Sum of the lanes, by repeatedly adding the upper half to the lower half.
template <class T, int width = kLanes<T> / 2>
inline T sum_of(Vector<T> v) {
  v += rotated<T, width>(v);
  if constexpr (width == 1) return v[0];
  else return sum_of<T, width / 2>(v);
}

/// sums[j] is the sum of the lanes of v[j], for `count` vectors. Four vectors at a time are summed by adding
/// neighbouring lanes.
template <class T, int count>
inline void lane_sums(const Vector<T>* v, T* sums) {
  if constexpr (kLanes<T> >= 4 && count % 4 == 0) {
    for (int j = 0; j < count; j += 4) {
      Vector<T> quarters = add_pairs(add_pairs(v[j], v[j + 1]), add_pairs(v[j + 2], v[j + 3]));
      for (int width = kLanes<T>; width > 4; width /= 2) quarters = add_pairs(quarters, quarters);
      for (int i = 0; i < 4; ++i) sums[j + i] = quarters[i];
    }
  } else {
    for (int j = 0; j < count; ++j) sums[j] = sum_of<T>(v[j]);
  }
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
