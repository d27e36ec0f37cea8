// Conversion between half types and floats, in vectors, with the same bits as core/array/dtype.h (except for the
// payload of NaN). bfloat16 is the upper half of a float. AVX2 and AVX-512 machines have instructions for binary16
// (F16C); on others its elements are converted one by one.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/lanes.h>

namespace gradus::openmp_detail::GRADUS_ISA {

constexpr int kHalfBytes = kVectorBytes / 2;
typedef uint16_t HalfBits __attribute__((vector_size(kHalfBytes)));

/// Converts the bits of a half type H to a vector of floats, and back.
template <class H>
inline Floats floats_of(HalfBits bits) {
  return reinterpret_cast<Floats>(__builtin_convertvector(bits, Mask<float>) << 16);
}
template <class H>
inline HalfBits bits_of(Floats x) {
  using Unsigned = VectorOf<float>::Unsigned;
  const Unsigned bits = reinterpret_cast<Unsigned>(x);
  const Unsigned rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest even
  const Unsigned result = x == x ? rounded : ((bits >> 16) | 0x40);     // NaN must not become infinity
  return __builtin_convertvector(result, HalfBits);
}
template <>
inline Floats floats_of<Half>(HalfBits bits) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(bits));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(bits));
#else
  Floats x{};
  for (int i = 0; i < kLanes<float>; ++i) x[i] = Half::to_float(bits[i]);
  return x;
#endif
}
template <>
inline HalfBits bits_of<Half>(Floats x) {
#if defined(__AVX512F__)
  return reinterpret_cast<HalfBits>(_mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  return reinterpret_cast<HalfBits>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#else
  HalfBits bits{};
  for (int i = 0; i < kLanes<float>; ++i) bits[i] = Half::from_float(x[i]);
  return bits;
#endif
}

/// Loads floats from memory of a half type: a whole vector, or its first `count` lanes.
template <class H>
requires(sizeof(H) == 2) inline Floats load_some(const H* from, bool whole, int64_t count) {
  HalfBits bits{};
  if (whole) __builtin_memcpy(&bits, from, sizeof bits);
  else __builtin_memcpy(&bits, from, static_cast<size_t>(count) * 2);
  return floats_of<H>(bits);
}

template <class H>
void widen(const H* x, float* y, int64_t count) {
  for_lanes<float>(count, [&](int64_t i, auto lanes) {
    lanes.put(y + i, load_some(x + i, lanes.count == kLanes<float>, lanes.count));
  });
}
template <class H>
void narrow(const float* x, H* y, int64_t count) {
  for_lanes<float>(count, [&](int64_t i, auto lanes) {
    const HalfBits bits = bits_of<H>(lanes.get(x + i));
    __builtin_memcpy(static_cast<void*>(y + i), &bits, static_cast<size_t>(lanes.count) * 2);
  });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
