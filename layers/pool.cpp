#include <gradus/layers/pool.h>

#include <vector>

#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>

namespace gradus::nn {

std::tuple<Tensor, Tensor> functional::adaptive_max_pool2d_with_indices(const Tensor& x,
                                                                        const AdaptiveMaxPool2dOptions& options) {
  GRADUS_CHECK((x.dim() == 3 || x.dim() == 4) && x.numel() > 0, ShapeError,
               "adaptive_max_pool2d_with_indices takes images (N, C, H, W) or (C, H, W), got shape ", x.sizes());
  const int64_t height = x.size(-2), width = x.size(-1);
  const int64_t h = options.output_size().h.value_or(height), w = options.output_size().w.value_or(width);
  GRADUS_CHECK(h > 0 && w > 0, ValueError, "output_size must be positive, got (", h, ", ", w, ")");
  const auto begin_of = [](int64_t part, int64_t parts, int64_t size) { return part * size / parts; };
  const auto end_of = [](int64_t part, int64_t parts, int64_t size) { return ((part + 1) * size + parts - 1) / parts; };
  TensorList maxima, indices;
  for (int64_t i = 0; i < h; ++i) {
    const int64_t top = begin_of(i, h, height), rows = end_of(i, h, height) - top;
    for (int64_t j = 0; j < w; ++j) {
      const int64_t left = begin_of(j, w, width), columns = end_of(j, w, width) - left;
      const auto [maximum, place] = x.narrow(-2, top, rows).narrow(-1, left, columns).flatten(-2).max(-1);
      maxima.push_back(maximum);
      indices.push_back((place.div(columns, "floor") + top) * width + place.remainder(columns) + left);
    }
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[sizes.size() - 2] = h, sizes.back() = w;
  return {stack(maxima, -1).reshape(sizes), stack(indices, -1).reshape(sizes)};
}

std::tuple<Tensor, Tensor> functional::adaptive_max_pool1d_with_indices(const Tensor& x,
                                                                        const AdaptiveMaxPool1dOptions& options) {
  const auto [maxima, indices] =
      adaptive_max_pool2d_with_indices(x.unsqueeze(-2), OutputSize(1, options.output_size()));
  return {maxima.squeeze(-2), indices.squeeze(-2)};
}

}  // namespace gradus::nn
