// Layer norm, one idea a file: y[i,j] = (x[i,j] - mean[i]) / sqrt(variance[i] + eps) weight[j] + bias[j], mean and
// biased variance of each row. The variance is that of deviations from the mean: sums of squares lose it where the mean
// is large.
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
