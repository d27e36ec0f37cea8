// Sizes and strides of images and filters, under one-letter names.
#pragma once

#include <algorithm>
#include <type_traits>

#include <gradus/backends/openmp/simd/windows.h>
#include <gradus/core/backend.h>

namespace gradus::openmp_detail {

struct ImageLayout {
  int64_t N = 0, C = 0, H = 0, W = 0;
  int64_t n_stride = 0, c_stride = 0, h_stride = 0, w_stride = 0;

  ImageLayout() = default;
  explicit ImageLayout(const StridedLayout& x)
      : N(x.shape[0]), C(x.shape[1]), H(x.shape[2]), W(x.shape[3]), n_stride(x.strides[0]), c_stride(x.strides[1]),
        h_stride(x.strides[2]), w_stride(x.strides[3]) {}

  bool operator==(const ImageLayout&) const = default;
  /// Height or width.
  int64_t size(int axis) const { return axis == 0 ? H : W; }
  int64_t numel() const { return N * C * H * W; }
  /// Elements between neighbouring taps of filters: 1 if contiguous, the number of channels if channels-last.
  int64_t tap_stride() const { return W > 1 ? w_stride : H > 1 ? h_stride : 1; }
};

template <class T>
struct Images : ImageLayout {
  T* data = nullptr;

  Images() = default;
  /// Sizes and strides only; data stays null.
  explicit Images(const StridedLayout& x) : ImageLayout(x) {}
  template <class AnyView>
  explicit Images(const AnyView& x) : ImageLayout(x), data(x.template as<std::remove_const_t<T>>()) {}

  /// The images without the channels before `channel`.
  Images from_channel(int64_t channel) const {
    Images part = *this;
    if (data) part.data += channel * c_stride;
    return part;
  }
};

/// True if every group has one input channel and one output channel.
inline bool is_depthwise(const Conv2dGeometry& g, const ImageLayout& in, const ImageLayout& out) {
  return g.groups > 1 && in.C == g.groups && out.C == g.groups;
}

/// Register tiles of filters: tile i has columns(i) <= `width` filters of one group, starting at first(i). In depthwise
/// convolutions all groups count as one, and lane j of a tile reads channel j.
struct FilterTiles {
  bool depthwise;
  int64_t groups, filters, channels, width;  ///< filters and channels of a group

  FilterTiles(const Conv2dGeometry& g, const ImageLayout& in, const ImageLayout& out, int64_t width)
      : depthwise(is_depthwise(g, in, out)), groups(depthwise ? 1 : g.groups), filters(out.C / groups),
        channels(in.C / g.groups), width(width) {}
  int64_t of_group() const { return ceil_div(filters, width); }
  int64_t count() const { return groups * of_group(); }
  int64_t group(int64_t tile) const { return tile / of_group(); }
  int64_t first(int64_t tile) const { return group(tile) * filters + tile % of_group() * width; }
  int64_t columns(int64_t tile) const { return std::min(width, filters - tile % of_group() * width); }
  int64_t end(int64_t tile) const { return first(tile) + columns(tile); }
  /// The first input channel that the tile reads.
  int64_t source(int64_t tile) const { return depthwise ? first(tile) : group(tile) * channels; }
};

/// Returns the axes of a convolution's result. In the forward pass there is one axis, with all `size` elements. With
/// `backward` the result is the gradient of the image, and there is one axis for each residue modulo the stride.
inline std::vector<WindowAxis> conv_axes(bool backward, const Conv2dGeometry& g, int axis, int64_t size, int64_t source,
                                         int64_t kernel) {
  const auto of = [&](auto make) {
    return make(size, source, kernel, g.stride[axis], g.padding[axis], g.dilation[axis]);
  };
  if (backward) return of(backward_axes);
  return {of(forward_axis)};
}

}  // namespace gradus::openmp_detail
