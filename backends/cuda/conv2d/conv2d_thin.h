// Convolutions of few input channels by half types: who has kernels for them (conv2d_thin.cuh).
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// True for a convolution whose result, or whose weights' gradient from y (there dy), the thin kernels make: half
/// types, fewer than eight input channels and at most 64 taps (C R S), no groups, a multiple of eight filters, y
/// channels-last and dense, the channels of x innermost or its columns, a device with tensor cores.
bool is_thin(const View& x, const StridedLayout& w, const View& y, const Conv2dGeometry& geometry);

}  // namespace gradus::cuda_detail
