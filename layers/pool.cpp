#include <gradus/layers/pool.h>

#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus::nn::functional {

TensorPair adaptive_max_pool2d_with_indices(const Tensor& x, const AdaptiveMaxPool2dOptions& options, Loc where) {
  const OpContext context("adaptive_max_pool2d_with_indices", where);
  GRADUS_CHECK((x.dim() == 3 || x.dim() == 4) && x.numel() > 0, ShapeError,
               "takes images (N, C, H, W) or (C, H, W), got shape ", x.sizes());
  const int64_t height = x.size(-2), width = x.size(-1);
  const int64_t h = options.output_size().h.value_or(height), w = options.output_size().w.value_or(width);
  GRADUS_CHECK(h > 0 && w > 0, ValueError, "output_size must be positive, got (", h, ", ", w, ")");
  TensorList maxima, indices;
  for (int64_t i = 0; i < h; ++i) {
    const int64_t top = ops::adaptive_begin(i, height, h), rows = ops::adaptive_end(i, height, h) - top;
    for (int64_t j = 0; j < w; ++j) {
      const int64_t left = ops::adaptive_begin(j, width, w), columns = ops::adaptive_end(j, width, w) - left;
      const auto [maximum, place] = x.narrow(-2, top, rows).narrow(-1, left, columns).flatten(-2).max(-1);
      maxima.push_back(maximum);
      indices.push_back((place.div(columns, "floor") + top) * width + place.remainder(columns) + left);
    }
  }
  Shape sizes = x.sizes();
  sizes[sizes.size() - 2] = h, sizes[sizes.size() - 1] = w;
  return {stack(maxima, -1).reshape(sizes), stack(indices, -1).reshape(sizes)};
}

TensorPair adaptive_max_pool1d_with_indices(const Tensor& x, const AdaptiveMaxPool1dOptions& options, Loc where) {
  const auto [maxima, indices] =
      adaptive_max_pool2d_with_indices(x.unsqueeze(-2), OutputSize(1, options.output_size()), where);
  return {maxima.squeeze(-2), indices.squeeze(-2)};
}

}  // namespace gradus::nn::functional
