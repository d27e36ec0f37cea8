// Winograd convolutions (winograd_kernel.h): kernels of 3x3, stride 1, dilation 1, in float, with the tiles of
// select.h. Nothing larger than some tiles' share is laid out; conv2d.cpp is their front.
#pragma once

#include <gradus/backends/openmp/conv2d/select.h>

namespace gradus::openmp {

/// y = x * w, not empty (+ bias, then relu if asked). w is contiguous.
void convolve_winograd(const KernelTable& table, const WinogradTiles& tiles, const Images<const float>& x,
                       const Images<const float>& w, const float* bias, bool relu, const Images<float>& y,
                       const Conv2dGeometry& geometry);
/// dx, not empty, from dy and w. With a mask (laid out like dy), dy counts only where mask > 0. w is contiguous.
void convolve_winograd_backward_data(const KernelTable& table, const WinogradTiles& tiles,
                                     const Images<const float>& dy, const float* mask, const Images<const float>& w,
                                     const Images<float>& dx, const Conv2dGeometry& geometry);

}  // namespace gradus::openmp
