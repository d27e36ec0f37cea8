// Operators on images (N, C, H, W): pooling, resampling and grayscale. One kernel of resampling serves average pooling,
// interpolation, padding by existing pixels, and the gradients of all of these.
#pragma once

#include <tuple>
#include <vector>

#include <gradus/core/ops/operands.h>

namespace gradus::ops {

/// Checks the geometry and returns the shape of the result of pooling x (N, C, H, W).
Shape pool2d_shape(const Shape& x, const Pool2dGeometry& geometry, bool ceil_mode);
/// Returns the maxima (N, C, P, Q) of x (N, C, H, W) and their int32 indices h * W + w. With `ceil_mode` the output
/// size is rounded up if the last window still starts inside the image or its left padding.
std::tuple<Array, Array> max_pool2d(const Array& x, const Pool2dGeometry& geometry, bool ceil_mode);
/// dx of shape `x_shape` from dy and the indices.
Array max_pool2d_backward(const Array& dy, const Array& indices, const Shape& x_shape, const Pool2dGeometry& geometry);
/// Elements of x (N, C, H, W) at `indices` within each plane: the gradient of max_pool2d_backward.
Array pick_from_planes(const Array& x, const Array& indices);

/// A Stencil that owns its arrays.
struct OwnedStencil {
  int64_t size_in = 0;
  std::vector<int64_t> begin = {0}, source;
  std::vector<double> weight;

  OwnedStencil() = default;
  explicit OwnedStencil(int64_t size_in_) : size_in(size_in_) {}
  int64_t size_out() const { return static_cast<int64_t>(begin.size()) - 1; }
  Stencil view() const { return {size_in, size_out(), begin, source, weight}; }
  /// Adds an entry to the current output position; end_position() completes that position.
  void add(int64_t from, double w) { source.push_back(from), weight.push_back(w); }
  void end_position() { begin.push_back(static_cast<int64_t>(source.size())); }
  /// The stencil of the gradient: entry (p, k) becomes (k, p).
  OwnedStencil transposed() const;

  static OwnedStencil identity(int64_t size);
  /// Position p takes element sources[p].
  static OwnedStencil selection(int64_t size_in, const std::vector<int64_t>& sources);
};

/// y (N, C, rows.size_out(), columns.size_out()) from x (N, C, rows.size_in, columns.size_in).
Array resample2d(const Array& x, const OwnedStencil& rows, const OwnedStencil& columns);

// Stencils of one axis.
/// Means of windows. A `divisor` other than 0 replaces the number of elements.
OwnedStencil average_stencil(int64_t size_in, int64_t size_out, int64_t kernel, int64_t stride, int64_t padding,
                             bool count_include_pad, double divisor);
/// First element of part p of adaptive pooling, and one past its last element.
inline int64_t adaptive_begin(int64_t p, int64_t size_in, int64_t size_out) { return p * size_in / size_out; }
inline int64_t adaptive_end(int64_t p, int64_t size_in, int64_t size_out) {
  return ((p + 1) * size_in + size_out - 1) / size_out;
}
OwnedStencil adaptive_average_stencil(int64_t size_in, int64_t size_out);
/// Interpolation. `scale` is size_out / size_in unless the user gave another value.
OwnedStencil nearest_stencil(int64_t size_in, int64_t size_out, double scale, bool exact);
OwnedStencil linear_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners);
OwnedStencil cubic_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners);

/// 0.2989 R + 0.5870 G + 0.1140 B: (…, 3, H, W) to (…, 1, H, W).
Array rgb_to_grayscale(const Array& x);

}  // namespace gradus::ops
