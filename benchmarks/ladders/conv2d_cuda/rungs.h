// A 3x3 convolution with bias and ReLU seven times, one idea a file, from a thread a result to what tensor cores of
// Hopper can do. All rungs: padding 1, stride 1, channels-last,
//   y[n,p,q,k] = max(0, bias[k] + sum over r, s, c of x[n, p + r - 1, q + s - 1, c] w[k,r,s,c]).
#pragma once

#include <gradus/core/device.h>
#include <gradus/core/dtype.h>

namespace gradus::ladders {

struct ConvSize {
  int N, H, W, C, K;
};

template <class T>
struct Fprop {
  ConvSize size;
  const T* x;     ///< (N, H, W, C)
  const T* w;     ///< (K, 3, 3, C)
  const T* bias;  ///< (K)
  T* y;           ///< (N, H, W, K)
};

void naive(const Fprop<float>& conv, Device device);
void naive(const Fprop<BFloat16>& conv, Device device);
void register_tile(const Fprop<float>& conv, Device device);
void shared_tile(const Fprop<float>& conv, Device device);    ///< K a multiple of 4
void implicit_gemm(const Fprop<float>& conv, Device device);  ///< C a multiple of 16
void mma_sync(const Fprop<BFloat16>& conv, Device device);    ///< C a multiple of 32
void cp_async(const Fprop<BFloat16>& conv, Device device);    ///< C a multiple of 32
void wgmma(const Fprop<BFloat16>& conv, Device device);       ///< C 32 or 64, K a multiple of 32, sm_90

}  // namespace gradus::ladders
