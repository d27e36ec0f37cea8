// Convolution of arrays.
#pragma once

#include <gradus/core/ops/operands.h>

namespace gradus::ops {

/// Throws a ValueError if `padding` is negative or unreasonably large (above 2^40).
void check_padding(int64_t padding);
/// conv2d plus bias, then ReLU if `relu`: x (N, C, H, W), w (K, C / groups, R, S), bias (K) or undefined, result (N, K,
/// P, Q). If the windows cover less than one pixel in a thousand, or the kernel reaches far beyond the image, this is a
/// ShapeError.
Array conv2d(const Array& x, const Array& w, const Array& bias, bool relu, const Conv2dGeometry& geometry);
/// Gradients of conv2d; those that are not wanted are undefined. `y_if_relu` is the forward result if ReLU was applied,
/// else undefined. With `may_overwrite_dy` the backend may reuse dy's memory.
struct Conv2dGradients {
  Array dx, dw, dbias;
};
Conv2dGradients conv2d_backward(const Array& dy, const Array& x, const Array& w, const Array& y_if_relu, bool want_dx,
                                bool want_dw, bool want_dbias, const Conv2dGeometry& geometry, bool may_overwrite_dy);
/// The gradient of conv2d (without ReLU) with respect to an input of shape `x_shape` and layout `format`.
Array conv2d_backward_data(const Array& dy, const Array& w, const Shape& x_shape, MemoryFormat format,
                           const Conv2dGeometry& geometry);
/// The gradient of conv2d (without ReLU) with respect to a weight of shape `w_shape` and layout `format`.
Array conv2d_backward_weight(const Array& dy, const Array& x, const Shape& w_shape, MemoryFormat format,
                             const Conv2dGeometry& geometry);

}  // namespace gradus::ops
