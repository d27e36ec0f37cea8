// Layer norm, with one idea per file: y[i,j] = (x[i,j] - mean[i]) / sqrt(variance[i] + eps) weight[j] + bias[j], with
// the mean and biased variance of each row. The variance is computed from deviations from the mean, because sums of
// squares are inexact if the mean is large.
#pragma once

#include <gradus/core/runtime/device.h>

namespace gradus::ladders::layer_norm {

struct Problem {
  int rows, columns;
  const float* x;              ///< (rows, columns)
  const float *weight, *bias;  ///< (columns)
  float* y;                    ///< (rows, columns)
  float eps = 1e-5f;
};

void naive(const Problem& problem, Device device);
void warp_row(const Problem& problem, Device device);
void registers(const Problem& problem, Device device);  ///< columns a multiple of 4, at most 4,096

}  // namespace gradus::ladders::layer_norm
