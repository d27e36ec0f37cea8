// Sums of rows, with one idea per file: y[i] = sum over j of x[i,j], in an order that is the same in every run. Each
// number takes only one addition, so the limit is the bandwidth of the memory.
#pragma once

#include <gradus/core/runtime/device.h>

namespace gradus::ladders::reduce {

struct Problem {
  int rows, columns;
  const float* x;    ///< (rows, columns)
  float* y;          ///< (rows)
  float* workspace;  ///< split_rows(): (rows, kMostSplits)
};
inline constexpr int kMostSplits = 64;

void naive(const Problem& problem, Device device);
void warp_row(const Problem& problem, Device device);
void vectors(const Problem& problem, Device device);     ///< columns a multiple of 4
void split_rows(const Problem& problem, Device device);  ///< columns a multiple of 4

}  // namespace gradus::ladders::reduce
