// Convolution, with and without the fused ReLU.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/backend.h>

namespace gradus {

/// One number for both directions, or a pair (height, width).
struct Pair {
  Pair(int64_t both) : h(both), w(both) {}  // NOLINT(google-explicit-constructor)
  Pair(int64_t h, int64_t w) : h(h), w(w) {}
  int64_t h, w;
};

/// Cross-correlation of x (N, C, H, W) with w (K, C / groups, R, S), plus bias (K) where defined; result (N, K, P, Q).
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Pair stride = 1, Pair padding = 0,
              Pair dilation = 1, int64_t groups = 1, Loc where = Loc::current());
/// relu(conv2d(…)) in one kernel, and one for its backward, where the backend has them.
Tensor conv2d_relu(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Pair stride = 1, Pair padding = 0,
                   Pair dilation = 1, int64_t groups = 1, Loc where = Loc::current());

}  // namespace gradus
