// Operands of the convolution algorithms, in float or double, and their entry points `run`, one for each type of the
// plan's tiles (select.h). Called by conv2d.cpp.
#pragma once

#include <gradus/backends/openmp/conv2d/select.h>

namespace gradus::openmp_detail {

/// Forward: y = x * w (+ bias, then ReLU if `relu`). With `backward`, the gradient of the image, which is also a
/// convolution: of dy (here x) with flipped and transposed filters, giving dx (here y). The same dy also gives the
/// gradients of w and of the bias. Gradients without data are not wanted; dbias is computed with dw. Operands that are
/// then not read (w without dx, image without dw) have only sizes.
template <class T>
struct ConvOperands {
  const KernelTable& table;
  const Conv2dGeometry& geometry;
  bool backward;
  Images<const T> x;
  const T* mask;  ///< same layout as x; x counts only where mask > 0; null: everywhere
  Images<const T> w;
  const T* bias;  ///< null: none
  bool relu;
  Images<T> y;
  Images<const T> image = {};  ///< the forward pass's x, needed for dw
  Images<T> dw = {};
  T* dbias = nullptr;

  const Kernels<T>& kernels() const { return kernels_of<T>(table); }
  /// Channels of x and of y in a group; and strides of w along these channels and between groups.
  int64_t channels() const { return x.C / geometry.groups; }
  int64_t filters() const { return y.C / geometry.groups; }
  int64_t channel_stride() const { return backward ? w.n_stride : w.c_stride; }
  int64_t filter_stride() const { return filters() == 1 ? group_stride() : backward ? w.c_stride : w.n_stride; }
  int64_t group_stride() const { return w.N / geometry.groups * w.n_stride; }
  /// Address of the weight for a tile's first filter, channel c and the first tap.
  const T* weights_of(const FilterTiles& tiles, int64_t tile, int64_t c) const {
    const int64_t group = tiles.group(tile);
    return w.data + group * group_stride() + (tiles.first(tile) - group * tiles.filters) * filter_stride() +
           c * channel_stride();
  }
  std::vector<WindowAxis> axes(int axis) const {
    return conv_axes(backward, geometry, axis, y.size(axis), x.size(axis), w.size(axis));
  }
};

// Weights (w, dw) are contiguous; for implicit_gemm_nhwc with several channels they may be channels-last instead.
template <class T>
void run(const NhwcTiles& tiles, const ConvOperands<T>& o);
template <class T>
void run(const NhwcWeightTiles& tiles, const ConvOperands<T>& o);
/// Forward, or all wanted gradients in one pass, which reads dy from memory once.
template <class T>
void run(const DirectTiles& tiles, const ConvOperands<T>& o);

}  // namespace gradus::openmp_detail
