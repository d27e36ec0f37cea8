// Convolutions with many channels, as matrix products over pixels (pixels.h): an implicit GEMM that packs nothing but
// the weights. For float and double, on dense weights, with the tiles of select.h; conv2d.cpp is their front.
#pragma once

#include <gradus/backends/openmp/conv2d/pixels.h>
#include <gradus/backends/openmp/conv2d/select.h>

namespace gradus::openmp {

/// y = x * w (+ bias, then relu if asked). Here and below, w and dw are contiguous, or channels-last with several
/// channels.
template <class T>
void convolve_pixels(const Kernels<T>& kernels, const NhwcTiles& tiles, const Images<const T>& x,
                     const Images<const T>& w, const T* bias, bool relu, const Images<T>& y,
                     const Conv2dGeometry& geometry);
/// dx from dy and w. With a mask (laid out like dy), dy counts only where mask > 0.
template <class T>
void convolve_pixels_backward_data(const Kernels<T>& kernels, const NhwcTiles& tiles, const Images<const T>& dy,
                                   const T* mask, const Images<const T>& w, const Images<T>& dx,
                                   const Conv2dGeometry& geometry);
/// dw from dy and x, and dbias (contiguous, K elements) if not null.
template <class T>
void convolve_pixels_backward_weight(const Kernels<T>& kernels, const NhwcWeightTiles& tiles, const Images<const T>& dy,
                                     const T* mask, const Images<const T>& x, const Images<T>& dw, T* dbias,
                                     const Conv2dGeometry& geometry);

}  // namespace gradus::openmp
