// Pooling of arrays.
#pragma once

#include <tuple>

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// Checks the geometry and returns the shape of the result of pooling x (N, C, H, W).
Shape pool2d_shape(const Shape& x, const Pool2dGeometry& geometry, bool ceil_mode);
/// Returns the maxima (N, C, P, Q) of x (N, C, H, W) and their int32 indices h * W + w. With `ceil_mode` the output
/// size is rounded up if the last window still starts inside the image or its left padding.
std::tuple<Array, Array> max_pool2d(const Array& x, const Pool2dGeometry& geometry, bool ceil_mode);
/// dx of shape `x_shape` from dy and the indices.
Array max_pool2d_backward(const Array& dy, const Array& indices, const Shape& x_shape, const Pool2dGeometry& geometry);
/// Elements of x (N, C, H, W) at `indices` within each plane: the gradient of max_pool2d_backward.
Array pick_from_planes(const Array& x, const Array& indices);

}  // namespace gradus::ops
