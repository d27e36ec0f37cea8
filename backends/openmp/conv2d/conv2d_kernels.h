// Convolutions over planes, for float and double, on dense weights, with the tiles of select.h; conv2d.cpp is their
// front.
#pragma once

#include <gradus/backends/openmp/conv2d/select.h>

namespace gradus::openmp {

/// y = x * w (+ bias, then relu if asked). w is contiguous.
template <class T>
void convolve(const Kernels<T>& kernels, const NchwTiles& tiles, const Images<const T>& x, const Images<const T>& w,
              const T* bias, bool relu, const Images<T>& y, const Conv2dGeometry& geometry);
/// dx from dy and w. With a mask (laid out like dy), dy counts only where mask > 0. w is contiguous.
template <class T>
void convolve_backward_data(const Kernels<T>& kernels, const NchwTiles& tiles, const Images<const T>& dy, const T* mask,
                            const Images<const T>& w, const Images<T>& dx, const Conv2dGeometry& geometry);
/// dw (contiguous) from dy and x, and dbias (contiguous, K elements) if not null.
template <class T>
void convolve_backward_weight(const Kernels<T>& kernels, const NchwWeightTiles& tiles, const Images<const T>& dy,
                              const T* mask, const Images<const T>& x, const Images<T>& dw, T* dbias,
                              const Conv2dGeometry& geometry);

}  // namespace gradus::openmp
