// Five implementations of a 3x3 convolution with bias and ReLU, with one idea per file, from seven loops to all cores.
// Padding 1, stride 1:
//   y[n,k,p,q]  = max(0, bias[k] + sum over c, r, s of x[n, c, p + r - 1, q + s - 1] w[k,c,r,s])
//   dx[n,c,h,w] = sum over k, r, s of g[n, k, h + 1 - r, w + 1 - s] w[k,c,r,s],  g = dy where y > 0, else 0
//   dw[k,c,r,s] = sum over n, p, q of g[n,k,p,q] x[n, c, p + r - 1, q + s - 1]
//   dbias[k]    = sum over n, p, q of g[n,k,p,q]
// Filters are always (K, C, 3, 3). The file of a rung says in which memory format its images are. `workspace` is
// further memory for a rung: workspace() floats, aligned to a vector.
#pragma once

#include <cstdint>

namespace gradus::ladders {

struct ConvSize {
  int64_t N, H, W, C, K;
};

struct Fprop {
  ConvSize size;
  const float *x, *w, *bias;
  float *y, *workspace;
};

struct Dgrad {
  ConvSize size;
  const float *dy, *y, *w;
  float *dx, *workspace;
};

struct Wgrad {
  ConvSize size;
  const float *dy, *y, *x;
  float *dw, *dbias, *workspace;
};

namespace loops {
void fprop(const Fprop& conv);
void dgrad(const Dgrad& conv);
void wgrad(const Wgrad& conv);
}  // namespace loops

namespace im2col {
int64_t workspace(const ConvSize& size);
void fprop(const Fprop& conv);
void dgrad(const Dgrad& conv);
void wgrad(const Wgrad& conv);
}  // namespace im2col

namespace direct {
int64_t workspace(const ConvSize& size);
void fprop(const Fprop& conv);
}  // namespace direct

namespace packed {
int64_t workspace(const ConvSize& size);
void fprop(const Fprop& conv);
void dgrad(const Dgrad& conv);
void wgrad(const Wgrad& conv);
}  // namespace packed

namespace threads {
int64_t workspace(const ConvSize& size);
void fprop(const Fprop& conv);
void dgrad(const Dgrad& conv);
void wgrad(const Wgrad& conv);
}  // namespace threads

}  // namespace gradus::ladders
