// Measures the limits of the machine: multiply-adds per second, and bytes per second from each level of its memory. A
// program that makes I operations for each byte that it loads can make at most min(peak, I * bandwidth) operations per
// second (Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
// architectures", 2009).
#pragma once

#include <cstdint>
#include <vector>

#include <gradus/benchmarks/ladders/cpu/vector.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::ladders {

// Makes the compiler assume that v changes and is used, so that it does not remove the computation of v.
inline void touch(FloatVector& v) {
#if defined(__aarch64__)
  asm volatile("" : "+w"(v));
#elif defined(__x86_64__)
  asm volatile("" : "+x"(v));
#else
  asm volatile("" : "+m"(v));
#endif
}

/// Runs independent chains of multiply-adds on each of `threads` threads. Returns floating-point operations per second.
inline double peak_flops(int threads) {
  constexpr int kChains = 12;
  constexpr int64_t kSteps = 200'000;
  const double seconds = benchmarks::best_seconds(0.5, [&] {
    parallel_for(threads, 1, [&](int64_t, int64_t) {
      FloatVector sums[kChains] = {}, x = {}, y = {};
      touch(x), touch(y);
      for (auto& sum : sums) touch(sum);  // so that the compiler does not know that all chains are equal
      for (int64_t step = 0; step < kSteps; ++step)
#pragma GCC unroll 12
        for (auto& sum : sums) sum = sum * x + y;
      for (auto& sum : sums) touch(sum);
    });
  });
  return static_cast<double>(2 * threads * kChains * kSteps * kVectorFloats) / seconds;
}

/// Reads `bytes` bytes repeatedly, with a part for each of `threads` threads. Returns bytes per second.
inline double read_bandwidth(int threads, int64_t bytes) {
  constexpr int64_t kTogether = 8;
  const int64_t floats = bytes / 4 / threads / (kTogether * kVectorFloats) * (kTogether * kVectorFloats);
  const int64_t rounds = std::max<int64_t>(1, (int64_t{1} << 22) / bytes);
  const std::vector<float> memory(static_cast<size_t>(floats * threads + kVectorFloats), 1.0f);
  // Aligns the vectors, because a vector that crosses a cache line would cost two loads.
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.data()) % kVectorBytes) / 4;
  const float* aligned = memory.data() + (kVectorFloats - misaligned) % kVectorFloats;
  const double seconds = benchmarks::best_seconds(0.5, [&] {
    parallel_for(threads, 1, [&](int64_t thread, int64_t) {
      FloatVector sums[kTogether] = {};
      for (int64_t round = 0; round < rounds; ++round) {
        const float* from = aligned + thread * floats;
        for (int64_t i = 0; i < floats; i += kTogether * kVectorFloats)
#pragma GCC unroll 8
          for (int64_t j = 0; j < kTogether; ++j) sums[j] += load(from + i + j * kVectorFloats);
        for (auto& sum : sums) touch(sum);
      }
    });
  });
  return static_cast<double>(4 * floats * threads * rounds) / seconds;
}

}  // namespace gradus::ladders
