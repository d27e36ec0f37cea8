// Helpers of operators along axes: axis numbers, sets of axes as bit masks (core's axis_mask), positions in boolean
// masks.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Converts a possibly negative axis to 0 … x.dim() - 1. Throws an IndexError if there is no such dimension.
inline int axis_of(const Tensor& x, int64_t dim) { return normalize_axis(dim, static_cast<int>(x.dim())); }

/// Restores the axes of `mask`, over which y was reduced, with size 1.
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

/// Indices, in row-major order, of the elements where a boolean mask is true.
inline Tensor places_of(const Tensor& mask) { return mask.reshape({-1}, Loc{}).nonzero(Loc{}).select(1, 0, Loc{}); }

}  // namespace gradus
