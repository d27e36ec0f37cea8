// Random words and normal numbers of core/runtime/random.h, computed in vectors with the same operations in the same
// order. Each operation rounds as it does for a single number, so the bits are the same.
#pragma once

#include <gradus/backends/openmp/simd/lanes.h>
#include <gradus/backends/openmp/simd/strided_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// a b + c with a single rounding, on every instruction set.
inline Lanes<double> fused(Lanes<double> a, Lanes<double> b, Lanes<double> c) {
#if defined(__AVX2__) || defined(__aarch64__)
  return multiply_add(a, b, c);
#else
  return one_by_one([&](int i) { return __builtin_fma(a.v[i], b.v[i], c.v[i]); });
#endif
}

/// Computes the Philox blocks first, first + 1, … and writes the four words of each as two 64-bit pairs, the first word
/// of a pair in its lower half.
inline void philox_pairs(uint64_t seed, uint64_t offset, uint64_t first, int64_t blocks, uint64_t* pairs) {
  constexpr int64_t lanes = kLanes<double>;
  const Words zero{}, multiplier0 = zero + uint64_t{0xD2511F53}, multiplier1 = zero + uint64_t{0xCD9E8D57};
  Words number = first + reinterpret_cast<Words>(lane_numbers<double>());
  for (int64_t b = 0; b < blocks; b += lanes, number += static_cast<uint64_t>(lanes)) {
    // Only the lower halves of these 64-bit words are used. Their upper halves contain garbage until the end.
    Words c0 = number, c1 = number >> 32, c2 = zero + offset, c3 = zero + (offset >> 32);
    auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const Words p0 = multiply_low_halves(c0, multiplier0), p1 = multiply_low_halves(c2, multiplier1);
      c0 = (p1 >> 32) ^ c1 ^ uint64_t { key0 }, c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ uint64_t { key1 }, c3 = p0;
      key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
    const Words even = (c0 & UINT32_MAX) | (c1 << 32), odd = (c2 & UINT32_MAX) | (c3 << 32);
    const Words out[2] = {interleave_low(even, odd), interleave_high(even, odd)};
    if (b + lanes <= blocks) __builtin_memcpy(pairs + 2 * b, out, sizeof out);
    else
      for (int64_t i = 0; i < 2 * (blocks - b); ++i) pairs[2 * b + i] = out[i / lanes][i % lanes];
  }
}

/// Converts random bits to [0, 1). Halves of 21 and 32 bits are inserted into the mantissas of 2^84 and 2^52, which are
/// then subtracted.
inline Lanes<double> unit(Words bits) {
  const Words top = bits >> 11;
  const auto number = [](Words x) { return Lanes<double>(reinterpret_cast<Vector<double>>(x)); };
  const Lanes<double> high = number((top >> 32) | 0x4530000000000000u) - 0x1p84,
                      low = number((top & UINT32_MAX) | 0x4330000000000000u) - 0x1p52;
  return (high + low) * 0x1p-53;
}

/// y[i] = element i of uniform(low, high), computed from `pairs` as by random_uniform_of(). A float uses a word, a
/// double a pair of words.
template <class T>
void uniform(const uint64_t* pairs, int64_t count, double low, double high, T* y) {
  using L = Lanes<double>;
  constexpr int64_t lanes = kLanes<double>, per_pair = sizeof(T) == 4 ? 2 : 1;
  const L low_v = low, range = high + -low;
  T limit = static_cast<T>(high);  // the smallest T that is at least `high`
  if (static_cast<double>(limit) < high) limit = __builtin_nextafterf(limit, Bits<T>::infinity);
  const auto between = [&](L unit) { return fused(unit, range, low_v); };
  for (int64_t i = 0; i < count; i += per_pair * lanes) {
    const int64_t held = count - i < per_pair * lanes ? count - i : per_pair * lanes;
    Words bits{};
    __builtin_memcpy(&bits, pairs + i / per_pair,
                     static_cast<size_t>((held + per_pair - 1) / per_pair) * sizeof *pairs);
    const auto write = [&](Lanes<T> values) {
      // Rounding may have raised a number to `high`.
      if (low < high) values = select(values < Lanes<T>(limit), values, Lanes<T>(low));
      store_some<T>(y + i, values.v, held == kLanes<T>, held);
    };
    if constexpr (sizeof(T) == 8) {
      write(between(unit(bits)));
    } else {
      const auto number = [](Words x) {  // converts a 24-bit integer to [0, 1)
        return (L(reinterpret_cast<Vector<double>>(x | uint64_t{0x4330000000000000})) - 0x1p52) * 0x1p-24;
      };
      const L even = between(number((bits >> 8) & 0xffffffu)), odd = between(number(bits >> 40));
      write(narrowed({interleave_low(even.v, odd.v), interleave_high(even.v, odd.v)}));
    }
  }
}

/// random_detail::log() for vectors.
inline Lanes<double> log_of_unit(Lanes<double> x) {
  const Words bits = reinterpret_cast<Words>(x.v);
  const auto number = [](Words x) { return Lanes<double>(reinterpret_cast<Vector<double>>(x)); };
  const Lanes<double> exponent = number((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1023);
  const Lanes<double> m = number((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  const Mask<double> large = m > Lanes<double>(1.4142135623730951);
  const Lanes<double> near = select(large, m * 0.5, m), e = select(large, exponent + 1, exponent);
  const Lanes<double> s = (near + -1.0) / (near + 1.0), z = s * s;
  Lanes<double> series = 1.0 / 21;
#pragma GCC unroll 10
  for (int k = 19; k >= 1; k -= 2) series = fused(series, z, Lanes<double>(1.0 / k));
  return fused(e, Lanes<double>(0.6931471805599453), Lanes<double>(2.0) * s * series);
}

struct CosineSine {
  Lanes<double> cosine, sine;
};
/// random_detail::cos_sin_turn() for vectors.
inline CosineSine cos_sin_turn(Lanes<double> v) {
  using L = Lanes<double>;
  const L quadrant = trunc(fused(v, L(4.0), L(0.5)));
  const L a = fused(quadrant, L(-0.25), v) * 6.283185307179586, z = a * a;
  L s = 1.0, c = 1.0;
#pragma GCC unroll 8
  for (int k = 15; k >= 3; k -= 2) s = fused(s * -z, L(1.0 / (k * (k - 1))), L(1.0));
#pragma GCC unroll 8
  for (int k = 16; k >= 2; k -= 2) c = fused(c * -z, L(1.0 / (k * (k - 1))), L(1.0));
  s = s * a;
  const Mask<double> quarter = (quadrant + L(Bits<double>::whole)).bits();
  const Mask<double> turned = (quarter & 1) != 0;
  // Changes the sign of x in the lanes in which bit 1 of `bit` is set, by shifting this bit to the sign bit.
  const auto signed_by = [](L x, Mask<double> bit) { return L::from_bits(x.bits() ^ (bit << 62)); };
  return {signed_by(select(turned, s, c), (quarter + 1) & 2), signed_by(select(turned, c, s), quarter & 2)};
}

/// y[i] = mean + deviation times normal number i, computed from `pairs`. If `count` is odd, the whole last block is
/// read.
template <class T>
void normal(const uint64_t* pairs, int64_t count, double mean, double deviation, T* y) {
  using L = Lanes<double>;
  constexpr int64_t lanes = kLanes<double>;
  const L mean_v = mean, deviation_v = deviation;
  for (int64_t i = 0; i < count; i += 2 * lanes) {
    Words in[2] = {};
    const bool whole = i + 2 * lanes <= count;
    __builtin_memcpy(in, pairs + i, whole ? sizeof in : static_cast<size_t>((count - i + 1) / 2 * 2) * sizeof *pairs);
    const Words even = even_lanes(in[0], in[1]), odd = odd_lanes(in[0], in[1]);
    const L radius = sqrt(L(-2.0) * log_of_unit(L(1.0) + -unit(even)));
    const CosineSine turn = cos_sin_turn(unit(odd));
    const L cosine = fused(deviation_v, radius * turn.cosine, mean_v),
            sine = fused(deviation_v, radius * turn.sine, mean_v);
    const Wide out = {interleave_low(cosine.v, sine.v), interleave_high(cosine.v, sine.v)};
    const auto write = [&](const auto& values) {
      __builtin_memcpy(y + i, &values, whole ? sizeof values : static_cast<size_t>(count - i) * sizeof(T));
    };
    if constexpr (sizeof(T) == 4) write(narrowed(out).v);
    else write(out);
  }
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
