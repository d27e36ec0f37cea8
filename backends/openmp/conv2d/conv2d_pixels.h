// Convolutions with many channels, as matrix products over pixels (pixels.h): an implicit GEMM that packs nothing but
// the weights. For float and double, on dense weights; conv2d.cpp is their front.
#pragma once

#include <gradus/backends/openmp/conv2d/pixels.h>

namespace gradus::openmp {

/// True where sums for `columns` channels (of one group) fill vectors well enough for the functions below to be fast.
/// They are vectors of filters in the forward pass and in the gradient of the weights, of input channels in that of the
/// image.
template <class T>
bool fills_vectors(const Kernels<T>& kernels, int64_t columns) {
  return columns >= kernels.vector_size && 4 * columns >= 3 * round_up(columns, kernels.vector_size);
}

/// y = x * w (+ bias, then relu if asked). Here and below, w and dw are contiguous, or channels-last with several
/// channels.
template <class T>
void convolve_pixels(const Kernels<T>& kernels, const Images<const T>& x, const Images<const T>& w, const T* bias,
                     bool relu, const Images<T>& y, const Conv2dGeometry& geometry);
/// dx from dy and w. With a mask (laid out like dy), dy counts only where mask > 0.
template <class T>
void convolve_pixels_backward_data(const Kernels<T>& kernels, const Images<const T>& dy, const T* mask,
                                   const Images<const T>& w, const Images<T>& dx, const Conv2dGeometry& geometry);
/// dw from dy and x, and dbias (contiguous, K elements) if not null.
template <class T>
void convolve_pixels_backward_weight(const Kernels<T>& kernels, const Images<const T>& dy, const T* mask,
                                     const Images<const T>& x, const Images<T>& dw, T* dbias,
                                     const Conv2dGeometry& geometry);

}  // namespace gradus::openmp
