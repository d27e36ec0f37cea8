// Gradients of weights of few channels or filters: which of them slide over rows (conv2d_weight_sliding.cuh).
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// True for operands whose weights' gradient slides: kernels of 3x3 taps, or of 5x5 with at most 16 filters, few
/// channels, no stride or dilation, no doubles, and rows of dy, or filters where these lie side by side, in whole
/// aligned pieces.
bool is_sliding(const View& dy, const View& x, const StridedLayout& dw, const Conv2dGeometry& geometry);

}  // namespace gradus::cuda_detail
