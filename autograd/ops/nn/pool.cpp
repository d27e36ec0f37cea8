#include <gradus/autograd/ops/nn/pool.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/nn/image.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus {
namespace {

struct MaxPool2dBackward final : Node {  // dx[indices] += dy, linear in dy
  Saved indices{this, "indices"};
  Array forward(const Array& dy, const Array& at, const Shape& x_shape, const Pool2dGeometry& geometry) {
    indices = at;
    return ops::max_pool2d_backward(dy, at, x_shape, geometry);
  }
  Grads backward(const Tensor& g) override { return {apply<PickFromPlanes>("pick_from_planes", g, indices.array())}; }
  struct PickFromPlanes final : Node {  // y = x[indices] in each plane; no backward, so no third derivative
    Array forward(const Array& x, const Array& at) { return ops::pick_from_planes(x, at); }
  };
};

struct MaxPool2d final : Node {  // y = maximum of each window
  Saved indices{this, "indices"};
  Pool2dGeometry geometry;
  Shape shape;
  std::tuple<Array, Array> forward(const Array& x, const Pool2dGeometry& g, bool ceil_mode) {
    geometry = g, shape = x.shape();
    auto result = ops::max_pool2d(x, g, ceil_mode);
    indices = std::get<1>(result);
    return result;
  }
  Grads backward(const Tensor& dy) override {
    return {apply<MaxPool2dBackward>("max_pool2d_backward", dy, indices.array(), shape, geometry)};
  }
};

Pool2dGeometry geometry_of(Pair kernel, std::optional<Pair> stride, Pair padding, Pair dilation) {
  const Pair step = stride.value_or(kernel);
  return {{kernel.h, kernel.w}, {step.h, step.w}, {padding.h, padding.w}, {dilation.h, dilation.w}};
}

std::optional<Pair> pair_of(std::optional<int64_t> size) {
  return size ? std::optional<Pair>({1, *size}) : std::nullopt;
}

TensorPair run_max_pool2d(OpScope& op, const Tensor& x, Pair kernel, std::optional<Pair> stride, Pair padding,
                          Pair dilation, bool ceil_mode) {
  const Pool2dGeometry geometry = geometry_of(kernel, stride, padding, dilation);
  const bool single = x.dim() == 3;
  auto [y, indices] = apply<MaxPool2d>(op, single ? x.unsqueeze(0) : x, geometry, ceil_mode);
  if (single) return {y.squeeze(0), indices.squeeze(0)};
  return {y, indices};
}

Tensor run_avg_pool2d(OpScope& op, const Tensor& x, Pair kernel, std::optional<Pair> stride, Pair padding,
                      bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  GRADUS_CHECK(!divisor || *divisor != 0, ValueError, "divisor_override must not be 0");
  return batched(x, 4, [&](const Tensor& image) {
    const Pool2dGeometry g = geometry_of(kernel, stride, padding, 1);
    const Shape out = ops::pool2d_shape(image.sizes(), g, ceil_mode);
    const auto stencil = [&](int i, double by) {
      return ops::average_stencil(image.size(2 + i), out[2 + i], g.kernel[i], g.stride[i], g.padding[i],
                                  count_include_pad, by);
    };
    const double by = divisor ? static_cast<double>(*divisor) : 0;
    return resample2d(op, image, stencil(0, by), stencil(1, divisor ? 1 : 0));
  });
}

Tensor run_adaptive_avg_pool2d(OpScope& op, const Tensor& x, int64_t h, int64_t w) {
  if (h == 1 && w == 1 && x.size(2) * x.size(3) == 0) return x.mean({2, 3}, true);  // NaN, as in PyTorch
  return resample2d(op, x, ops::adaptive_average_stencil(x.size(2), h), ops::adaptive_average_stencil(x.size(3), w));
}

// Returns a stencil that copies the elements of all parts of an adaptive pooling, one part after another. Raises
// `length` to the size of the longest part. A shorter part repeats its last element, so that all parts become windows
// of equal length.
ops::OwnedStencil parts_of(int64_t size_in, int64_t size_out, int64_t* length) {
  for (int64_t p = 0; p < size_out; ++p)
    *length = std::max(*length, ops::adaptive_end(p, size_in, size_out) - ops::adaptive_begin(p, size_in, size_out));
  std::vector<int64_t> sources;
  for (int64_t p = 0; p < size_out; ++p)
    for (int64_t i = 0; i < *length; ++i)
      sources.push_back(
          std::min(ops::adaptive_begin(p, size_in, size_out) + i, ops::adaptive_end(p, size_in, size_out) - 1));
  return ops::OwnedStencil::selection(size_in, sources);
}

Tensor run_adaptive_max_pool2d(OpScope& op, const Tensor& x, int64_t h, int64_t w) {
  int64_t rows = 1, columns = 1;
  const ops::OwnedStencil down = parts_of(x.size(2), h, &rows), across = parts_of(x.size(3), w, &columns);
  const Pool2dGeometry geometry = geometry_of({rows, columns}, {}, 0, 1);
  const bool as_is = down.size_out() == x.size(2) && across.size_out() == x.size(3);
  return std::get<0>(apply<MaxPool2d>(op, as_is ? x : resample2d(op, x, down, across), geometry, false));
}

// Runs the adaptive pooling run(op, batch, h, w) of an image or, if `is_sequence`, of a sequence. `averages` allows
// images without pixels, whose mean is NaN.
template <class Run>
Tensor run_adaptive(const char* name, bool is_sequence, const Tensor& x, OutputSize size, bool averages, Run&& run,
                    Loc where) {
  OpScope op(name, where);
  if (!is_sequence) check_image(x);
  const Tensor y = batched(is_sequence ? as_row(x) : x, 4, [&](const Tensor& image) {
    const int64_t h = size.h.value_or(image.size(2)), w = size.w.value_or(image.size(3));
    GRADUS_CHECK(h >= 0 && w >= 0, ValueError, "output_size must not be negative, got (", h, ", ", w, ")");
    GRADUS_CHECK((image.size(2) > 0 && image.size(3) > 0) || h * w == 0 || (averages && h == 1 && w == 1), ShapeError,
                 "no pixels to pool: shape ", x.sizes());
    ops::check_floating(image.array(), "input");
    check_axis(h);
    check_axis(w);
    return run(op, image, h, w);
  });
  return is_sequence ? y.squeeze(-2) : y;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Pair kernel_size, PoolStride stride, Pair padding, Pair dilation, bool ceil_mode,
                  Loc where) {
  OpScope op("max_pool2d", where);
  return std::get<0>(run_max_pool2d(op, x, kernel_size, stride, padding, dilation, ceil_mode));
}

TensorPair max_pool2d_with_indices(const Tensor& x, Pair kernel_size, PoolStride stride, Pair padding, Pair dilation,
                                   bool ceil_mode, Loc where) {
  OpScope op("max_pool2d_with_indices", where);
  auto [y, indices] = run_max_pool2d(op, x, kernel_size, stride, padding, dilation, ceil_mode);
  return {y, indices.to(kLong)};
}

TensorPair max_pool1d_with_indices(const Tensor& x, int64_t kernel_size, std::optional<int64_t> stride, int64_t padding,
                                   int64_t dilation, bool ceil_mode, Loc where) {
  OpScope op("max_pool1d", where);
  auto [y, indices] =
      run_max_pool2d(op, as_row(x), {1, kernel_size}, pair_of(stride), {0, padding}, {1, dilation}, ceil_mode);
  return {y.squeeze(-2), indices.squeeze(-2).to(kLong)};
}

Tensor avg_pool2d(const Tensor& x, Pair kernel_size, PoolStride stride, Pair padding, bool ceil_mode,
                  bool count_include_pad, std::optional<int64_t> divisor_override, Loc where) {
  OpScope op("avg_pool2d", where);
  check_image(x);
  return run_avg_pool2d(op, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}

Tensor avg_pool1d(const Tensor& x, int64_t kernel_size, std::optional<int64_t> stride, int64_t padding, bool ceil_mode,
                  bool count_include_pad, Loc where) {
  OpScope op("avg_pool1d", where);
  return run_avg_pool2d(op, as_row(x), {1, kernel_size}, pair_of(stride), {0, padding}, ceil_mode, count_include_pad,
                        {})
      .squeeze(-2);
}

Tensor adaptive_avg_pool2d(const Tensor& x, OutputSize output_size, Loc where) {
  return run_adaptive("adaptive_avg_pool2d", false, x, output_size, true, run_adaptive_avg_pool2d, where);
}

Tensor adaptive_avg_pool1d(const Tensor& x, int64_t output_size, Loc where) {
  return run_adaptive("adaptive_avg_pool1d", true, x, {1, output_size}, true, run_adaptive_avg_pool2d, where);
}

Tensor adaptive_max_pool2d(const Tensor& x, OutputSize output_size, Loc where) {
  return run_adaptive("adaptive_max_pool2d", false, x, output_size, false, run_adaptive_max_pool2d, where);
}

Tensor adaptive_max_pool1d(const Tensor& x, int64_t output_size, Loc where) {
  return run_adaptive("adaptive_max_pool1d", true, x, {1, output_size}, false, run_adaptive_max_pool2d, where);
}

}  // namespace gradus
