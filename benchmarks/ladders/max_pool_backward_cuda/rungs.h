// The gradient of max pooling with windows of 3 x 3, stride 2 and padding 1, as in ResNet, with one idea per file:
// dx[n,c,h,w] = sum of the dy[n,c,p,q] whose window found its maximum there, indices[n,c,p,q] = h W + w. Windows
// overlap, so up to four windows may have their maximum at the same pixel. Their gradients are added in the order of
// (p,q), which is the same in every run.
#pragma once

#include <cstdint>

#include <gradus/core/runtime/device.h>

namespace gradus::ladders::max_pool_backward {

struct Problem {
  int planes, H, W, P, Q;  ///< N C; P = (H + 1) / 2, Q = (W + 1) / 2
  const float* dy;         ///< (planes, P, Q)
  const int32_t* indices;  ///< (planes, P, Q)
  float* dx;               ///< (planes, H, W)
};

void naive(const Problem& problem, Device device);
void gather(const Problem& problem, Device device);
void register_tile(const Problem& problem, Device device);

}  // namespace gradus::ladders::max_pool_backward
