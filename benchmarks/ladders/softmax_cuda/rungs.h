// The softmax of rows, one idea a file: y[i,j] = exp(x[i,j] - m[i]) / sum over j of exp(x[i,j] - m[i]), m[i] the row's
// maximum. What there is to save is reading x: the first rungs read it three times, the last ones once.
#pragma once

#include <gradus/core/runtime/device.h>

namespace gradus::ladders::softmax {

struct Problem {
  int rows, columns;
  const float* x;  ///< (rows, columns)
  float* y;        ///< (rows, columns)
};

void naive(const Problem& problem, Device device);
void warp_row(const Problem& problem, Device device);
void online(const Problem& problem, Device device);
void registers(const Problem& problem, Device device);  ///< columns a multiple of 4, at most 8,192

}  // namespace gradus::ladders::softmax
