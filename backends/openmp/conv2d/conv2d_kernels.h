// The convolution kernels for float and double, on dense weights; conv2d.cpp is their front.
#pragma once

#include <gradus/backends/openmp/conv2d/planes.h>

namespace gradus::openmp {

/// y = x * w (+ bias, then relu if asked). w is contiguous.
template <class T>
void convolve(const KernelTable& table, const Images<const T>& x, const Images<const T>& w, const T* bias, bool relu,
              const Images<T>& y, const Conv2dGeometry& geometry);
/// dx from dy and w. With a mask (laid out like dy), dy counts only where mask > 0. w is contiguous.
template <class T>
void convolve_backward_data(const KernelTable& table, const Images<const T>& dy, const T* mask,
                            const Images<const T>& w, const Images<T>& dx, const Conv2dGeometry& geometry);
/// dw (contiguous) from dy and x, and dbias (contiguous, K elements) if not null.
template <class T>
void convolve_backward_weight(const KernelTable& table, const Images<const T>& dy, const T* mask,
                              const Images<const T>& x, const Images<T>& dw, T* dbias, const Conv2dGeometry& geometry);

}  // namespace gradus::openmp
