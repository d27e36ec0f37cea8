// The softmax of rows, with one idea per file: y[i,j] = exp(x[i,j] - m[i]) / sum over j of exp(x[i,j] - m[i]), where
// m[i] is the row's maximum. The rungs differ in how often they read x: the first ones three times, the last one once.
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
