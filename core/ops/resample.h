// Resampling of images: one kernel for pooling by averages, interpolation, padding by existing pixels, and all their
// gradients.
#pragma once

#include <vector>

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// A Stencil that owns its entries.
struct OwnedStencil {
  int64_t size_in = 0;
  std::vector<int64_t> begin = {0}, source;
  std::vector<double> weight;

  OwnedStencil() = default;
  explicit OwnedStencil(int64_t size_in_) : size_in(size_in_) {}
  int64_t size_out() const { return static_cast<int64_t>(begin.size()) - 1; }
  Stencil view() const { return {size_in, size_out(), begin, source, weight}; }
  /// Adds an entry to the output position that is being written; and ends that position.
  void add(int64_t from, double w) { source.push_back(from), weight.push_back(w); }
  void end_position() { begin.push_back(static_cast<int64_t>(source.size())); }
  /// The stencil of the gradient: entry (p, k) becomes (k, p).
  OwnedStencil transposed() const;

  static OwnedStencil identity(int64_t size);
  /// Position p takes element sources[p].
  static OwnedStencil selection(int64_t size_in, const std::vector<int64_t>& sources);
};

/// y (N, C, rows.size_out(), columns.size_out()) of x (N, C, rows.size_in, columns.size_in).
Array resample2d(const Array& x, const OwnedStencil& rows, const OwnedStencil& columns);

// One axis each.
/// Means of windows; `divisor` replaces the number of elements where it is not 0.
OwnedStencil average_stencil(int64_t size_in, int64_t size_out, int64_t kernel, int64_t stride, int64_t padding,
                             bool count_include_pad, double divisor);
/// First and one past the last element of part p of adaptive pooling.
inline int64_t adaptive_begin(int64_t p, int64_t size_in, int64_t size_out) { return p * size_in / size_out; }
inline int64_t adaptive_end(int64_t p, int64_t size_in, int64_t size_out) {
  return ((p + 1) * size_in + size_out - 1) / size_out;
}
OwnedStencil adaptive_average_stencil(int64_t size_in, int64_t size_out);
/// Interpolation; `scale` = size_out / size_in unless the user gave another.
OwnedStencil nearest_stencil(int64_t size_in, int64_t size_out, double scale, bool exact);
OwnedStencil linear_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners);
OwnedStencil cubic_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners);

}  // namespace gradus::ops
