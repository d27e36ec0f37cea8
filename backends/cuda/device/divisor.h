// Types of kernel arguments: division by a constant (Divisor) and strides. They also compile without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include <gradus/core/array/shape.h>
#include <gradus/core/formulas/integers.h>

namespace gradus::cuda_detail {

/// The lower 32 bits of a number: in kernels, sizes and indices of a launch (kMaxChunk) have no more.
GRADUS_HOST_DEVICE constexpr uint32_t u32(int64_t size) { return static_cast<uint32_t>(size); }

/// The default number of threads of a block.
inline constexpr uint32_t kThreads = 256;
/// The maximum number of elements that one launch indexes; for_each_chunk() divides longer loops into several launches.
inline constexpr int64_t kMaxChunk = int64_t{1} << 30;

/// Division of a number below 2^31 by a constant in three instructions: n / d = (hi32(n * magic) + n) >> shift
/// (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
struct Divisor {
  uint32_t divisor = 1, magic = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(int64_t d) : divisor(static_cast<uint32_t>(std::max<int64_t>(d, 1))) {  // d is 0 for empty views
    while ((uint64_t{1} << shift) < divisor) ++shift;
    magic = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor)) / divisor + 1);
  }
  GRADUS_HOST_DEVICE uint32_t quotient(uint32_t n) const {
#ifdef __CUDA_ARCH__
    return (__umulhi(n, magic) + n) >> shift;
#else
    return (static_cast<uint32_t>(uint64_t{n} * magic >> 32) + n) >> shift;
#endif
  }
  /// Returns n / divisor and sets n to the remainder.
  GRADUS_HOST_DEVICE uint32_t split(uint32_t& n) const {
    const uint32_t q = quotient(n);
    n -= q * divisor;
    return q;
  }
};

/// Strides of a four-dimensional view.
struct Strides4 {
  int64_t n = 0, c = 0, h = 0, w = 0;
  Strides4() = default;
  explicit Strides4(const Strides& strides) : n(strides[0]), c(strides[1]), h(strides[2]), w(strides[3]) {}
};

}  // namespace gradus::cuda_detail
