// Which algorithm computes a convolution. How its work is cut: select_tiles.cpp.
#include <gradus/backends/openmp/conv2d/select_tiles.h>
#include <gradus/backends/openmp/simd/loops.h>

namespace gradus::openmp_detail {
namespace {

// ---- Which algorithm ------------------------------------------------------------------------------------------------

bool has_channels_last(const ImageLayout& x) { return x.c_stride == 1 && x.C > 1; }

// Dense planes for which it pays to put the channels last for a while.
bool has_small_planes(const ImageLayout& x) {
  return x.C >= 16 && x.H * x.W <= 400 && (x.W == 1 || x.w_stride == 1) && (x.H == 1 || x.h_stride == x.W);
}

// One channel in a group, and lanes of channels are faster than `direct`'s lanes of pixels.
bool prefers_depthwise(const Conv2dGeometry& g, const ImageLayout& in, const ImageLayout& out) {
  return is_depthwise(g, in, out) &&
         ((has_channels_last(in) && has_channels_last(out)) || (has_small_planes(in) && has_small_planes(out)));
}

// Too few channels on both sides to fill a register tile of pixels by channels even of short vectors: both gradients
// are direct's then, which computes them at once.
bool has_few_channels(const StridedLayout& w, const Conv2dGeometry& g) {
  const int64_t channels = w.shape[1], filters = w.shape[0] / g.groups;
  return filters <= 4 && channels * filters <= 9;
}

// The algorithm of a pass between images `in` and `out` with sums for `columns` channels of one group:
// implicit_gemm_nhwc where these fill vectors well enough for it to be fast.
ConvAlgorithm algorithm_of(const ConvSettings& settings, DType dtype, const Conv2dGeometry& g, const ImageLayout& in,
                           const ImageLayout& out, const StridedLayout& w, int64_t columns) {
  if (prefers_depthwise(g, in, out)) return ConvAlgorithm::depthwise;
  const int64_t vector = registers(settings.table, dtype).vector;
  const bool fills = columns >= vector && 4 * columns >= 3 * round_up(columns, vector);
  return fills && !has_few_channels(w, g) ? ConvAlgorithm::implicit_gemm_nhwc : ConvAlgorithm::direct;
}

// The clause that led to the algorithm.
const char* reason_for(ConvAlgorithm algorithm, bool few_channels) {
  if (algorithm == ConvAlgorithm::depthwise) return "one channel in a group, in vectors of channels";
  if (algorithm == ConvAlgorithm::implicit_gemm_nhwc) return "channels fill vectors";
  return few_channels ? "few channels on both sides" : "channels do not fill vectors";
}

// Channels-last weights, which implicit_gemm_nhwc uses as they are.
bool is_channels_last(const StridedLayout& w) {
  int64_t expected = 1;
  for (int axis : {1, 3, 2, 0}) {
    if (w.shape[axis] > 1 && w.strides[axis] != expected) return false;
    expected *= w.shape[axis];
  }
  return w.shape[1] > 1;
}

// ---- Copies of operands ---------------------------------------------------------------------------------------------

// x as the kernels see it.
ImageLayout seen(const StridedLayout& x, DType dtype, bool dense) {
  ImageLayout images(x);
  if (!needs_copy(x, dtype, dense)) return images;
  const bool pixels = copy_format(x, dense) == MemoryFormat::channels_last;
  images.c_stride = pixels ? 1 : images.H * images.W, images.w_stride = pixels ? images.C : 1;
  images.h_stride = images.W * images.w_stride, images.n_stride = images.C * images.H * images.W;
  return images;
}
int64_t copy_bytes(const StridedLayout* x, DType dtype, bool dense) {
  return x && needs_copy(*x, dtype, dense) ? x->numel() * static_cast<int64_t>(size_of(dtype)) : 0;
}

// Sets the tiles and adds what the kernel takes.
template <class Tiles, class... Wanted>
void cut_into(ConvPlan& plan, Tiles tiles, const ConvProblem& p, const Wanted&... wanted) {
  plan.workspace_bytes += cut(tiles, p, wanted...);
  plan.tiles = tiles;
}

// The tiles of y from x, or of dx from dy.
void cut_images(ConvPlan& plan, const ConvProblem& p) {
  if (p.out.numel() == 0) return;
  switch (plan.algorithm) {
    case ConvAlgorithm::depthwise:
    case ConvAlgorithm::implicit_gemm_nhwc: return cut_into(plan, NhwcTiles{}, p);
    case ConvAlgorithm::direct: return cut_into(plan, DirectTiles{}, p);
  }
}

}  // namespace

MemoryFormat copy_format(const StridedLayout& x, bool dense) {
  return !dense && x.ndim() == 4 && has_channels_last(ImageLayout(x)) ? MemoryFormat::channels_last
                                                                      : MemoryFormat::contiguous;
}

bool needs_copy(const StridedLayout& x, DType dtype, bool dense) {
  return (x.dtype != dtype || (dense && !is_row_major(x))) && x.numel() > 0;
}

ConvPlan select_conv2d(const ConvSettings& settings, const StridedLayout& x, const StridedLayout& w,
                       const StridedLayout* bias, const StridedLayout& y, const Conv2dGeometry& g) {
  const DType dtype = wide(y.dtype);
  const ImageLayout in = seen(x, dtype, false), out = seen(y, dtype, false);
  ConvPlan plan;
  plan.algorithm = algorithm_of(settings, dtype, g, in, out, w, w.shape[0] / g.groups);
  plan.reason = reason_for(plan.algorithm, has_few_channels(w, g));
  plan.dense_weights = plan.algorithm != ConvAlgorithm::implicit_gemm_nhwc || !is_channels_last(w);
  plan.workspace_bytes = copy_bytes(&x, dtype, false) + copy_bytes(bias, dtype, true) + copy_bytes(&y, dtype, false) +
                         copy_bytes(&w, dtype, plan.dense_weights);
  cut_images(plan, {settings, dtype, in, seen(w, dtype, plan.dense_weights), out, g, false, false});
  return plan;
}

ConvBackwardPlan select_conv2d_backward(const ConvSettings& settings, const StridedLayout& dy, const StridedLayout& x,
                                        const StridedLayout& w, const StridedLayout* y_if_relu, const StridedLayout* dx,
                                        const StridedLayout* dw, const StridedLayout* dbias, const Conv2dGeometry& g,
                                        bool masked) {
  const DType dtype = wide(dy.dtype);
  const auto same_layout = [&](const StridedLayout& y) {
    for (int i = 0; i < 4; ++i)
      if (dy.shape[i] != 1 && dy.strides[i] != y.strides[i]) return false;
    return true;
  };
  ConvBackwardPlan plan;
  plan.masks_first = y_if_relu && (dy.dtype != dtype || !same_layout(*y_if_relu));
  const bool mask = y_if_relu && !plan.masks_first;
  ImageLayout dy_seen = seen(dy, dtype, false);
  if (plan.masks_first && !masked) {
    plan.workspace_bytes += dy.numel() * static_cast<int64_t>(size_of(dy.dtype));
    if (!StridedLoop<1>(dy.shape, {&dy.strides}).all_contiguous()) {  // the masked dy is row-major
      StridedLayout dense = dy;
      dense.strides = contiguous_strides(dy.shape);
      dy_seen = seen(dense, dtype, false);
    }
  }
  plan.workspace_bytes += copy_bytes(&dy, dtype, false);
  const ImageLayout x_seen = dw ? seen(x, dtype, false) : ImageLayout(x);
  const ImageLayout dx_seen = dx ? seen(*dx, dtype, false) : ImageLayout(x);

  const auto algorithm = [&](int64_t columns) {
    return algorithm_of(settings, dtype, g, ImageLayout(x), ImageLayout(dy), w, columns);
  };
  plan.data.algorithm = algorithm(w.shape[1]), plan.weight.algorithm = algorithm(w.shape[0] / g.groups);
  for (ConvPlan* pass : {&plan.data, &plan.weight}) pass->reason = reason_for(pass->algorithm, has_few_channels(w, g));
  plan.at_once = plan.data.algorithm == ConvAlgorithm::direct && plan.weight.algorithm == ConvAlgorithm::direct;
  const bool wants_dx = dx && dx->numel() > 0, wants_dw = dw && dw->numel() > 0;
  if (dx || plan.at_once) {
    ConvPlan& data = plan.data;
    data.dense_weights = data.algorithm != ConvAlgorithm::implicit_gemm_nhwc || !is_channels_last(w);
    data.workspace_bytes = copy_bytes(dx ? &w : nullptr, dtype, data.dense_weights) + copy_bytes(dx, dtype, false);
    const ConvProblem p{settings, dtype, dy_seen, seen(w, dtype, data.dense_weights), dx_seen, g, true, mask};
    if (plan.at_once) cut_into(data, DirectTiles{}, p, wants_dx, wants_dw);
    else cut_images(data, p);
  }
  if (dw) {
    ConvPlan& pass = plan.at_once ? plan.data : plan.weight;
    pass.dense_weights = pass.algorithm != ConvAlgorithm::implicit_gemm_nhwc || !is_channels_last(*dw);
    pass.workspace_bytes +=
        copy_bytes(&x, dtype, false) + copy_bytes(dw, dtype, pass.dense_weights) + copy_bytes(dbias, dtype, true);
    const ImageLayout dw_seen = seen(*dw, dtype, pass.dense_weights);
    if (plan.weight.algorithm != ConvAlgorithm::direct && dy.shape[1] > 0)
      cut_into(pass, NhwcWeightTiles{}, {settings, dtype, x_seen, dw_seen, dy_seen, g, true, mask});
    else if (plan.weight.algorithm == ConvAlgorithm::direct && !plan.at_once)
      cut_into(pass, DirectTiles{}, {settings, dtype, dy_seen, dw_seen, x_seen, g, true, mask}, false, wants_dw);
  }
  plan.workspace_bytes += std::max(plan.data.workspace_bytes, plan.weight.workspace_bytes);
  return plan;
}

}  // namespace gradus::openmp_detail
