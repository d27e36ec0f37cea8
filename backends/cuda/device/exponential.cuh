// The exponentials that softmax and cross-entropy need.
#pragma once

#include <gradus/core/dtype.h>

namespace gradus::cuda_detail {

/// exp(x) for a sum to which 1 belongs, good to 2^-22 where x is about 0.
__device__ inline float rough_exponential(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));  // log2(e)
  return power;
}
__device__ inline double rough_exponential(double x) { return ::exp(x); }
/// exp(x) for a result of type T.
template <class T>
__device__ compute_t<T> exponential(compute_t<T> x) {
  if constexpr (sizeof(T) == 2) return rough_exponential(x);
  else return ::exp(x);
}

}  // namespace gradus::cuda_detail
