// What the gradients of reductions share: sets of axes as bits (core's axis_mask).
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// y, reduced over the axes of `mask`, with those axes back as size 1.
inline Tensor restore_axes(const Tensor& y, const Shape& x_shape, uint32_t mask) {
  return y.reshape(reduced_shape(x_shape, mask, true));
}

/// The axes of `mask` as a list.
inline Dims axes_of(uint32_t mask) {
  Dims axes;
  for (int i = 0; i < kMaxDims; ++i)
    if (mask >> i & 1) axes.push_back(i);
  return axes;
}

}  // namespace gradus
