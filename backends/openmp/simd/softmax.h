// One row of softmax, which cross-entropy needs too.
#pragma once

#include <cmath>

#include <gradus/backends/openmp/kernels.h>

namespace gradus::openmp_detail {

/// y = softmax or log_softmax of x, `size` > 0 contiguous elements; y may be x. Needs the largest element and the sum
/// first, so that nothing overflows:
///   y = exp(x - m) / Z, or x - m - ln Z;  m = max(x),  Z = sum(exp(x - m))
template <class C>
void softmax_row(const Kernels<C>& kernels, const C* x, C* y, int64_t size, bool log) {
  const C max = kernels.max(x, size);
  const C sum = kernels.exp_sum(x, max, log ? nullptr : y, size);
  if (log) kernels.affine(x, max, C(1), -std::log(sum), nullptr, nullptr, y, size);
  else kernels.affine(y, C(0), C(1) / sum, C(0), nullptr, nullptr, y, size);
}

}  // namespace gradus::openmp_detail
