// What the algorithms of a convolution work on, in float or double, and how they are called: by the type of the plan's
// tiles (select.h). conv2d.cpp is their front.
#pragma once

#include <gradus/backends/openmp/conv2d/select.h>

namespace gradus::openmp_detail {

/// y = x * w (+ bias, then relu if asked). Or `backward`: the gradient of the image, which is a convolution too, of dy
/// (here x) with the filters flipped and transposed, to dx (here y); and, with the same dy, the gradients of w and of
/// the bias. Of the gradients those that have data are wanted, dbias with dw; the others have sizes alone, and so has
/// what nobody reads then: w without dx, the image without dw.
template <class T>
struct ConvOperands {
  const KernelTable& table;
  const Conv2dGeometry& geometry;
  bool backward;
  Images<const T> x;
  const T* mask;  ///< laid out like x, which counts only where mask > 0; null: everywhere
  Images<const T> w;
  const T* bias;  ///< null: none
  bool relu;
  Images<T> y;
  Images<const T> image = {};  ///< what dw is computed with: the forward pass's x
  Images<T> dw = {};
  T* dbias = nullptr;

  const Kernels<T>& kernels() const { return kernels_of<T>(table); }
  /// In a group, of x and of y; and the strides of w along them and from group to group.
  int64_t channels() const { return x.C / geometry.groups; }
  int64_t filters() const { return y.C / geometry.groups; }
  int64_t channel_stride() const { return backward ? w.n_stride : w.c_stride; }
  int64_t filter_stride() const { return filters() == 1 ? group_stride() : backward ? w.c_stride : w.n_stride; }
  int64_t group_stride() const { return w.N / geometry.groups * w.n_stride; }
  /// The weight of the first filter of a tile, channel c and the first tap.
  const T* weights_of(const FilterTiles& tiles, int64_t tile, int64_t c) const {
    const int64_t group = tiles.group(tile);
    return w.data + group * group_stride() + (tiles.first(tile) - group * tiles.filters) * filter_stride() +
           c * channel_stride();
  }
  std::vector<WindowAxis> axes(int axis) const {
    return conv_axes(backward, geometry, axis, y.size(axis), x.size(axis), w.size(axis));
  }
};

// Weights (w, dw) are contiguous; implicit_gemm_nhwc's may be channels-last with several channels instead.
template <class T>
void run(const NhwcTiles& tiles, const ConvOperands<T>& o);
template <class T>
void run(const NhwcWeightTiles& tiles, const ConvOperands<T>& o);
/// Forward, or all gradients that are wanted: what they read of dy is read from memory once.
template <class T>
void run(const DirectTiles& tiles, const ConvOperands<T>& o);

}  // namespace gradus::openmp_detail
