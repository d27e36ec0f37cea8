// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). One stream definition for all backends.
//
// Each call of a random operator is one draw, identified by (seed, offset). The Generator (below) gives each draw a new
// offset. Element i of the result, where i is the row-major logical index, is a function of (seed, offset, i):
//   words(i)   = philox(key = seed, counter = {i lo, i hi, offset lo, offset hi}): four 32-bit words
//   uniform    : float and halves  (words(i / 4)[i % 4] >> 8) * 2^-24;
//                double            53 bits of word pair i % 2 of words(i / 2)
//   bernoulli  : uniform (float stream) < p
//   randint    : low + (64-bit pair i % 2 of words(i / 2)) * range >> 64
//   normal     : Box-Muller on the doubles u, v of words(i / 2): sqrt(-2 ln(1 - u)) * (cos, sin)(2 pi v)[i % 2]
//   randperm   : the indices i, sorted by the 64-bit keys pair i % 2 of words(i / 2); equal keys are ordered by index
// All arithmetic is in double with explicit fma and without contraction, and log, sin and cos are the polynomials
// below, so every backend gives the same bits.
#pragma once

#include <atomic>
#include <cstdint>

#include <gradus/core/backend.h>

namespace gradus {

/// Four 32-bit random words.
struct PhiloxWords {
  uint32_t word[4];
};

/// Philox4x32 with ten rounds.
GRADUS_HOST_DEVICE inline PhiloxWords philox(uint64_t seed, uint64_t offset, uint64_t index) {
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(offset), c3 = static_cast<uint32_t>(offset >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key1;
    c0 = n0;
    c1 = static_cast<uint32_t>(p1);
    c2 = n2;
    c3 = static_cast<uint32_t>(p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

namespace random_detail {

// fused: a b + c, rounded once. times, plus and root: a b, a + b and sqrt(x). A compiler must not contract a product
// and a sum into one operation; on a GPU the intrinsics prevent that, on the CPU a compiler option (-ffp-contract=off).
#if defined(__CUDA_ARCH__)
GRADUS_HOST_DEVICE inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
GRADUS_HOST_DEVICE inline double times(double a, double b) { return __dmul_rn(a, b); }
GRADUS_HOST_DEVICE inline double plus(double a, double b) { return __dadd_rn(a, b); }
GRADUS_HOST_DEVICE inline double root(double x) { return __dsqrt_rn(x); }
#else
GRADUS_HOST_DEVICE inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
GRADUS_HOST_DEVICE inline double times(double a, double b) { return a * b; }
GRADUS_HOST_DEVICE inline double plus(double a, double b) { return a + b; }
GRADUS_HOST_DEVICE inline double root(double x) { return __builtin_sqrt(x); }
#endif

/// ln(x) for x in (0, 1]: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m - 1) / (m + 1)) by its series.
GRADUS_HOST_DEVICE inline double log(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull;
  double m;
  memcpy(&m, &bits, 8);
  if (m > 1.4142135623730951) m = times(m, 0.5), ++exponent;
  const double s = plus(m, -1.0) / plus(m, 1.0), z = times(s, s);
  double series = 1.0 / 21;
  for (int k = 19; k >= 1; k -= 2) series = fused(series, z, 1.0 / k);
  return fused(exponent, 0.6931471805599453, times(times(2.0, s), series));
}

/// cos and sin of 2 pi v for v in [0, 1): reduced to an eighth of a turn, then Taylor series.
GRADUS_HOST_DEVICE inline void cos_sin_turn(double v, double* cosine, double* sine) {
  const int quadrant = static_cast<int>(fused(v, 4.0, 0.5));             // nearest quarter turn, 0 … 4
  const double a = times(fused(quadrant, -0.25, v), 6.283185307179586);  // in [-pi/4, pi/4]
  const double z = times(a, a);
  double s = 1.0, c = 1.0;
  for (int k = 15; k >= 3; k -= 2) s = fused(times(s, -z), 1.0 / (k * (k - 1)), 1.0);
  for (int k = 16; k >= 2; k -= 2) c = fused(times(c, -z), 1.0 / (k * (k - 1)), 1.0);
  s = times(s, a);
  switch (quadrant & 3) {
    case 0: *cosine = c, *sine = s; break;
    case 1: *cosine = -s, *sine = c; break;
    case 2: *cosine = -c, *sine = -s; break;
    default: *cosine = s, *sine = -c; break;
  }
}

GRADUS_HOST_DEVICE inline uint64_t pair(const PhiloxWords& words, uint64_t i) {
  return (i & 1) ? (static_cast<uint64_t>(words.word[3]) << 32 | words.word[2])
                 : (static_cast<uint64_t>(words.word[1]) << 32 | words.word[0]);
}
GRADUS_HOST_DEVICE inline double unit(uint64_t bits) { return times(static_cast<double>(bits >> 11), 0x1p-53); }

}  // namespace random_detail

/// A number in [0, 1) with 24 bits: the stream of float uniforms.
GRADUS_HOST_DEVICE inline float random_unit_float(uint64_t seed, uint64_t offset, uint64_t i) {
  return static_cast<float>(philox(seed, offset, i >> 2).word[i & 3] >> 8) * 0x1p-24f;
}
/// 64 random bits: the stream from which uniform doubles, integers and the keys of permutations are made.
GRADUS_HOST_DEVICE inline uint64_t random_bits64(uint64_t seed, uint64_t offset, uint64_t i) {
  return random_detail::pair(philox(seed, offset, i >> 1), i);
}
/// Element i of a uniform draw from [low, high), converted to T. `words` are words(i / 4), or words(i / 2) if T is
/// double (see the top of this file). If rounding to T gives `high`, the result is `low` instead.
template <class T>
GRADUS_HOST_DEVICE T random_uniform_of(const PhiloxWords& words, uint64_t i, double low, double high) {
  const double unit = sizeof(T) == 8 ? random_detail::unit(random_detail::pair(words, i))
                                     : static_cast<double>(words.word[i & 3] >> 8) * 0x1p-24;
  const double value = random_detail::fused(unit, random_detail::plus(high, -low), low);
  const T rounded = static_cast<T>(static_cast<compute_t<T>>(value));
  return static_cast<double>(rounded) < high || !(low < high) ? rounded
                                                              : static_cast<T>(static_cast<compute_t<T>>(low));
}
template <class T>
GRADUS_HOST_DEVICE T random_uniform(uint64_t seed, uint64_t offset, uint64_t i, double low, double high) {
  return random_uniform_of<T>(philox(seed, offset, i >> (sizeof(T) == 8 ? 1 : 2)), i, low, high);
}
/// True with probability p.
GRADUS_HOST_DEVICE inline bool random_bernoulli(uint64_t seed, uint64_t offset, uint64_t i, double p) {
  return static_cast<double>(random_unit_float(seed, offset, i)) < p;
}
/// An integer in [low, high), where low < high.
GRADUS_HOST_DEVICE inline int64_t random_integer(uint64_t seed, uint64_t offset, uint64_t i, int64_t low,
                                                 int64_t high) {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low),
                 bits = random_bits64(seed, offset, i);
#if defined(__CUDA_ARCH__)
  const uint64_t scaled = __umul64hi(bits, range);
#else
  __extension__ using Wide = unsigned __int128;
  const uint64_t scaled = static_cast<uint64_t>((static_cast<Wide>(bits) * range) >> 64);
#endif
  return static_cast<int64_t>(static_cast<uint64_t>(low) + scaled);
}
/// Element i of the standard normal stream (Box and Muller 1958). Elements 2 k and 2 k + 1 are computed from the same
/// two uniform numbers.
GRADUS_HOST_DEVICE inline double random_normal(uint64_t seed, uint64_t offset, uint64_t i) {
  namespace d = random_detail;
  const PhiloxWords words = philox(seed, offset, i >> 1);
  const double u = d::unit(d::pair(words, 0)), v = d::unit(d::pair(words, 1));
  double cosine, sine;
  d::cos_sin_turn(v, &cosine, &sine);
  const double radius = d::root(d::times(-2.0, d::log(d::plus(1.0, -u))));
  return d::times(radius, i & 1 ? sine : cosine);
}
/// Element i of normal(mean, deviation) in T.
template <class T>
GRADUS_HOST_DEVICE T random_normal(uint64_t seed, uint64_t offset, uint64_t i, double mean, double deviation) {
  return static_cast<T>(
      static_cast<compute_t<T>>(random_detail::fused(deviation, random_normal(seed, offset, i), mean)));
}

/// Assigns draws to random operators. Thread-safe, but the order in which threads that share a generator get its
/// offsets depends on their timing.
class Generator {
 public:
  explicit Generator(uint64_t seed = 67280421310721ull) : seed_(seed) {}
  void manual_seed(uint64_t seed) { seed_ = seed, offset_ = 0; }
  uint64_t seed() const { return seed_; }
  uint64_t offset() const { return offset_; }
  /// Restores a saved state.
  void set_state(uint64_t seed, uint64_t offset) { seed_ = seed, offset_ = offset; }
  /// The next draw. While this thread captures a graph, the offset of the draw is relative to the graph's device
  /// offset.
  RandomState next();

  /// Between begin_capture and end_capture the offsets of this thread's draws count from 0. Each replay of the captured
  /// graph adds `*device_offset` to them.
  static void begin_capture(const uint64_t* device_offset);
  /// Returns the number of draws in the capture.
  static uint64_t end_capture();
  /// Reserves the next `draws` offsets and returns the first of them. A replay of a graph with that many draws writes
  /// it to the device offset.
  uint64_t advance(uint64_t draws) { return offset_.fetch_add(draws); }

 private:
  std::atomic<uint64_t> seed_, offset_{0};
};

/// The generator of all random operators that are called without one. All devices share it.
Generator& default_generator();
/// Restarts the default generator (torch.manual_seed).
void manual_seed(uint64_t seed);

/// Makes `generator` the default_generator() of this thread until the end of the scope. If each of several threads has
/// its own generator, the numbers that it draws do not depend on the timing of the others.
class GeneratorGuard : ScopedValue<Generator*> {
 public:
  explicit GeneratorGuard(Generator& generator);
};

/// The offset of the default generator's next draw; during a capture on this thread, the offset within the capture.
/// set_draw_position() changes it, so that work that is computed again draws the same numbers again.
uint64_t draw_position();
void set_draw_position(uint64_t seed, uint64_t position);

}  // namespace gradus
