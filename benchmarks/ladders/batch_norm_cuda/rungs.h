// Batch norm in training, with one idea per file: y = (x - mean[c]) / sqrt(variance[c] + eps) weight[c] + bias[c], with
// the mean and biased variance of each channel over images and pixels. A channel consists of N runs of H W neighbouring
// numbers.
#pragma once

#include <gradus/core/runtime/device.h>

namespace gradus::ladders::batch_norm {

struct Problem {
  int N, C, pixels;            ///< pixels = H W
  const float* x;              ///< (N, C, pixels)
  const float *weight, *bias;  ///< (C)
  float* y;                    ///< (N, C, pixels)
  float* workspace;            ///< (C, kMostSplits, 2)
  float eps = 1e-5f;
};
inline constexpr int kMostSplits = 64;

void naive(const Problem& problem, Device device);
void block_channel(const Problem& problem, Device device);
void split_channels(const Problem& problem, Device device);

}  // namespace gradus::ladders::batch_norm
