// Seven implementations of a 3x3 convolution with bias and ReLU, with one idea per file, from a thread for each result
// to the tensor cores of Hopper; and the gradients of a convolution. All rungs have padding 1, stride 1 and
// channels-last images:
//   y[n,p,q,k]  = max(0, bias[k] + sum over r, s, c of x[n, p + r - 1, q + s - 1, c] w[k,r,s,c])
//   dx[n,h,w,c] = sum over r, s, k of dy[n, h - r + 1, w - s + 1, k] w[k,r,s,c]
//   dw[k,r,s,c] = sum over n, p, q of dy[n,p,q,k] x[n, p + r - 1, q + s - 1, c]
#pragma once

#include <gradus/core/array/dtype.h>
#include <gradus/core/runtime/device.h>

namespace gradus::ladders {

struct ConvSize {
  int N, H, W, C, K;
};

template <class T>
struct Fprop {
  ConvSize size;
  const T* x;     ///< (N, H, W, C)
  const T* w;     ///< (K, 3, 3, C)
  const T* bias;  ///< (K); null: neither bias nor ReLU
  T* y;           ///< (N, H, W, K)
};

template <class T>
struct Dgrad {
  ConvSize size;
  const T *dy, *w;
  T *dx, *flipped;  ///< flipped: memory for filters (C, 3, 3, K)
};

template <class T>
struct Wgrad {
  ConvSize size;
  const T *dy, *x;
  T* dw;
  float* partials;  ///< memory for (kMostSplits, K, 3, 3, C)
};
inline constexpr int kMostSplits = 128;

void naive(const Fprop<float>& conv, Device device);
void naive(const Fprop<BFloat16>& conv, Device device);
void register_tile(const Fprop<float>& conv, Device device);
void shared_tile(const Fprop<float>& conv, Device device);    ///< K a multiple of 4
void implicit_gemm(const Fprop<float>& conv, Device device);  ///< C a multiple of 16
void mma_sync(const Fprop<BFloat16>& conv, Device device);    ///< C a multiple of 32
void cp_async(const Fprop<BFloat16>& conv, Device device);    ///< C a multiple of 32
void wgmma(const Fprop<BFloat16>& conv, Device device);       ///< C 32 or 64, K a multiple of 32, sm_90
/// Returns the rungs of the forward pass that support this size.
template <class T>
struct FpropRung {
  int number;
  const char* name;
  void (*run)(const Fprop<T>& conv, Device device);
  bool (*takes)(const ConvSize& size);
};
inline bool takes_all(const ConvSize&) { return true; }
inline const FpropRung<float> kFloatRungs[] = {
    {1, "1 naive", naive, takes_all},
    {2, "2 register_tile", register_tile, takes_all},
    {3, "3 shared_tile", shared_tile, takes_all},
    {4, "4 implicit_gemm", implicit_gemm, [](const ConvSize& size) { return size.C % 16 == 0; }}};
inline const FpropRung<BFloat16> kHalfRungs[] = {
    {1, "1 naive", naive, takes_all},
    {5, "5 mma_sync", mma_sync, [](const ConvSize& size) { return size.C % 32 == 0; }},
    {6, "6 cp_async", cp_async, [](const ConvSize& size) { return size.C % 32 == 0; }},
#ifdef GRADUS_LADDER_HAS_WGMMA
    {7, "7 wgmma", wgmma,
     [](const ConvSize& size) { return (size.C == 32 || size.C == 64) && size.K % 32 == 0 && size.W <= 128; }},
#endif
};

void dgrad_naive(const Dgrad<float>& conv, Device device);
void dgrad_naive(const Dgrad<BFloat16>& conv, Device device);
void dgrad_flipped(const Dgrad<float>& conv, Device device);     ///< K a multiple of 16
void dgrad_flipped(const Dgrad<BFloat16>& conv, Device device);  ///< K a multiple of 32
void wgrad_naive(const Wgrad<float>& conv, Device device);
void wgrad_naive(const Wgrad<BFloat16>& conv, Device device);
void wgrad_split_k(const Wgrad<float>& conv, Device device);
void wgrad_split_k(const Wgrad<BFloat16>& conv, Device device);

}  // namespace gradus::ladders
