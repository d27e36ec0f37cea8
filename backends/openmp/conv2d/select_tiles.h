// How each algorithm of a convolution cuts its work: select.cpp's other half.
#pragma once

#include <gradus/backends/openmp/conv2d/select.h>

namespace gradus::openmp_detail {

// A convolution, or the gradient of an image, which is one too.
struct ConvProblem {
  const ConvSettings& settings;
  DType dtype;             // that it computes in
  ImageLayout in, w, out;  // what is read, the weights, what is written
  const Conv2dGeometry& g;
  bool backward, mask;

  int64_t element() const { return static_cast<int64_t>(size_of(dtype)); }
  // Of `out`, but for gradients of weights.
  std::vector<WindowAxis> axes(int axis) const {
    return conv_axes(backward, g, axis, out.size(axis), in.size(axis), w.size(axis));
  }
  int64_t threads(int64_t chunks) const { return std::min<int64_t>(settings.threads, chunks); }
};

// Each sets the tiles and returns the bytes of scratch memory that the kernel takes. For the gradient of the weights
// `in` is x and `out` is dy.
int64_t cut(NhwcTiles& t, const ConvProblem& p);
int64_t cut(NhwcWeightTiles& t, const ConvProblem& p);
// Backward, `wants_out`: dx, and `wants_dw`: dw and dbias.
int64_t cut(DirectTiles& t, const ConvProblem& p, bool wants_out = true, bool wants_dw = false);

}  // namespace gradus::openmp_detail
