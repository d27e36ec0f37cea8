// The matrix product of a linear layer, with one idea per file: y[m,n] = sum over k of x[m,k] w[n,k]. Tiles save loads:
// a loaded number is used for as many products as the tile is wide.
#pragma once

#include <gradus/core/array/dtype.h>
#include <gradus/core/runtime/device.h>

namespace gradus::ladders::gemm {

template <class T>
struct Problem {
  int M, N, K;
  const T* x;  ///< (M, K)
  const T* w;  ///< (N, K)
  T* y;        ///< (M, N)
};

void naive(const Problem<float>& problem, Device device);
void naive(const Problem<BFloat16>& problem, Device device);
void shared_tile(const Problem<float>& problem, Device device);
void register_tile(const Problem<float>& problem, Device device);  ///< K a multiple of 16
void mma_sync(const Problem<BFloat16>& problem, Device device);    ///< K a multiple of 32
void cp_async(const Problem<BFloat16>& problem, Device device);    ///< K a multiple of 32

}  // namespace gradus::ladders::gemm
