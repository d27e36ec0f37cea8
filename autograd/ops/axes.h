// What operators along axes share: an axis by its number, sets of axes as bits (core's axis_mask), places in masks.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// 0 to x.dim() - 1; an IndexError where there is no such dimension.
inline int axis_of(const Tensor& x, int64_t dim) { return normalize_axis(dim, static_cast<int>(x.dim())); }

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

/// Where a mask is true, as indices of its elements in row-major order.
inline Tensor places_of(const Tensor& mask) { return mask.reshape({-1}, Loc{}).nonzero(Loc{}).select(1, 0, Loc{}); }

}  // namespace gradus
