// Convolutions with so few channels in a group, depthwise ones above all, that a matrix product would spend its time on
// moving operands. For float and double, on dense weights, with the tiles of select.h; conv2d.cpp is their front.
#pragma once

#include <gradus/backends/openmp/conv2d/select.h>

namespace gradus::openmp {

/// y = x * w (+ bias, then relu if asked). w is contiguous.
template <class T>
void convolve_directly(const Kernels<T>& kernels, const DirectTiles& tiles, const Images<const T>& x,
                       const Images<const T>& w, const T* bias, bool relu, const Images<T>& y,
                       const Conv2dGeometry& geometry);

/// Where the gradients of a convolution go; null data: not wanted. dw (contiguous) and dbias (contiguous, null where
/// not wanted) go together.
template <class T>
struct ConvolutionGradients {
  Images<T> dx, dw;
  T* dbias;
};
/// All gradients at once: what an image's gradients read is read from memory once. With a mask (laid out like dy), dy
/// counts only where mask > 0. w is contiguous.
template <class T>
void convolve_directly_backward(const Kernels<T>& kernels, const DirectBackwardTiles& tiles, const Images<const T>& dy,
                                const T* mask, const Images<const T>& x, const Images<const T>& w,
                                const ConvolutionGradients<T>& gradients, const Conv2dGeometry& geometry);

/// The same for one input and one output channel in each group, for images whose channels are neighbours in memory or
/// whose planes are dense.
template <class T>
void convolve_depthwise(const Kernels<T>& kernels, const DepthwiseTiles& tiles, const Images<const T>& x,
                        const Images<const T>& w, const T* bias, bool relu, const Images<T>& y,
                        const Conv2dGeometry& geometry);
template <class T>
void convolve_depthwise_backward(const Kernels<T>& kernels, const DepthwiseTiles& tiles, const Images<const T>& dy,
                                 const Images<const T>& x, const Images<const T>& w,
                                 const ConvolutionGradients<T>& gradients, const Conv2dGeometry& geometry);

}  // namespace gradus::openmp
