// Half-precision numbers to floats and back, a vector at a time, to the bits of core/dtype.h (but for the digits of
// NaN). bfloat16 is the upper half of a float. binary16 has instructions on AVX2 and AVX-512 machines (F16C) and on
// arm64; elsewhere its exponent is put right by a multiplication with a power of two, which subnormal numbers pass
// through unharmed.
#pragma once

#include <gradus/backends/openmp/simd/lanes.h>

namespace gradus::openmp_detail::GRADUS_ISA {

constexpr int kHalfBytes = kVectorBytes / 2;
typedef uint16_t HalfBits __attribute__((vector_size(kHalfBytes)));

inline Lanes<float> from_bfloat16(HalfBits bits) {
  return Lanes<float>::from_bits(__builtin_convertvector(bits, Mask<float>) << 16);
}
inline HalfBits to_bfloat16(Lanes<float> x) {
  using Unsigned = VectorOf<float>::Unsigned;
  const Unsigned bits = reinterpret_cast<Unsigned>(x.bits());
  const Unsigned rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;     // to nearest even
  const Unsigned result = (x.v == x.v) ? rounded : ((bits >> 16) | 0x40);  // NaN stays quiet
  return __builtin_convertvector(result, HalfBits);
}

inline Lanes<float> from_half(HalfBits bits) {
#if defined(__AVX512F__)
  return Lanes<float>(Vector<float>(_mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(bits))));
#elif defined(__AVX2__)
  return Lanes<float>(Vector<float>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(bits))));
#else
  const Mask<float> wide = __builtin_convertvector(bits, Mask<float>), size = (wide & 0x7fff) << 13;
  const Lanes<float> scaled = Lanes<float>::from_bits(size) * 0x1p112;
  const Lanes<float> special = Lanes<float>::from_bits(size | 0x7f800000);  // infinity and NaN
  const Lanes<float> x = select(Where<float>{size >= (31 << 23)}, special, scaled);
  return Lanes<float>::from_bits(x.bits() | (wide & 0x8000) << 16);
#endif
}
inline HalfBits to_half(Lanes<float> x) {
#if defined(__AVX512F__)
  return reinterpret_cast<HalfBits>(_mm512_maskz_cvtps_ph(0xffff, x.v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  return reinterpret_cast<HalfBits>(_mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
#else
  const Lanes<float> size = absolute(x);
  // Normal: the exponent changes its bias, and 13 bits are rounded off to even. Subnormal: adding 0.5 rounds at the
  // last place of a half, as both have their last place at 2^-24.
  const Mask<float> normal = (size.bits() - (112 << 23) + 0xfff + ((size.bits() >> 13) & 1)) >> 13;
  const Mask<float> subnormal = (size + 0.5).bits() - Lanes<float>(0.5).bits();
  Mask<float> bits = size.bits() < (113 << 23) ? subnormal : normal;
  bits = size.bits() >= 0x477ff000 ? (bits & 0) + 0x7c00 : bits;  // rounds to infinity
  bits = size.v == size.v ? bits : (bits & 0) + 0x7e00;
  return __builtin_convertvector(bits | ((x.bits() >> 16) & 0x8000), HalfBits);
#endif
}

/// Vectors of floats from memory of a half type: a Source of gemv_kernel.h.
template <Lanes<float> (*convert)(HalfBits)>
struct Widened {
  using Element = uint16_t;
  static Vector<float> load_some(const uint16_t* from, bool whole, int64_t count) {
    HalfBits bits{};
    if (whole) __builtin_memcpy(&bits, from, sizeof bits);
    else __builtin_memcpy(&bits, from, static_cast<size_t>(count) * 2);
    return convert(bits).v;
  }
};

/// Rows of them: y[i] = convert(x[i]).
template <Lanes<float> (*convert)(HalfBits)>
void widen(const uint16_t* x, float* y, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes<float> <= count; i += kLanes<float>) store(y + i, Widened<convert>::load_some(x + i, true, 0));
  if (i < count) store_first(y + i, Widened<convert>::load_some(x + i, false, count - i), count - i);
}
template <HalfBits (*convert)(Lanes<float>)>
void narrow(const float* x, uint16_t* y, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes<float> <= count; i += kLanes<float>) {
    const HalfBits bits = convert(load(x + i));
    __builtin_memcpy(y + i, &bits, sizeof bits);
  }
  if (const int64_t left = count - i; left > 0) {
    const HalfBits bits = convert(load_first(x + i, left));
    __builtin_memcpy(y + i, &bits, static_cast<size_t>(left) * 2);
  }
}

/// pairs[i] = the bits of even[i] and, above them, those of odd[i], or zeros if odd is null.
inline void pair_up(const uint16_t* even, const uint16_t* odd, float* pairs, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t pair = even[i] | (odd ? static_cast<uint32_t>(odd[i]) << 16 : 0u);
    __builtin_memcpy(pairs + i, &pair, 4);
  }
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
