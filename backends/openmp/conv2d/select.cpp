// Chooses the algorithms of convolutions, and plans the calls of the backend: the copies of operands and the passes.
#include <cstring>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/conv2d/nhwc.h>
#include <gradus/backends/openmp/simd/loops.h>

namespace gradus::openmp_detail {
namespace {

// Channels-last weights.
bool is_channels_last(const StridedLayout& w) {
  int64_t expected = 1;
  for (int axis : {1, 3, 2, 0}) {
    if (w.shape[axis] > 1 && w.strides[axis] != expected) return false;
    expected *= w.shape[axis];
  }
  return w.shape[1] > 1;
}

// The layout of x after the copy that the kernels need, if any.
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

}  // namespace

TapRange::TapRange(const std::vector<WindowAxis>& axes) {
  for (const WindowAxis& axis : axes)
    for (const WindowAxis::Tap& tap : axis.taps) {
      least = total ? std::min(least, tap.at) : tap.at;
      most = total ? std::max(most, tap.at) : tap.at;
      ++total;
    }
}

bool ConvProblem::operator==(const ConvProblem& other) const {
  return table == other.table && threads == other.threads && pass == other.pass && dtype == other.dtype &&
         in == other.in && w == other.w && out == other.out && std::memcmp(&g, &other.g, sizeof g) == 0 &&
         mask == other.mask && filters_last == other.filters_last;
}

int64_t ConvProblem::pairs_along(int axis) const {
  const ImageLayout &x = backward() ? out : in, &y = backward() ? in : out;
  int64_t pairs = 0;
  for (int64_t r = 0; r < w.size(axis); ++r) {
    const int64_t at = r * g.dilation[axis] - g.padding[axis];
    const int64_t begin = std::max<int64_t>(0, ceil_div(-at, g.stride[axis]));
    const int64_t end = at < x.size(axis) ? ceil_div(x.size(axis) - at, g.stride[axis]) : 0;
    pairs += std::max<int64_t>(0, std::min(end, y.size(axis)) - begin);
  }
  return pairs;
}

const KernelFamily<ConvAlgorithm>& conv2d_family() {
  static const KernelFamily<ConvAlgorithm> family(
      "conv2d", {"images", "weights", "gradients", "images_f64", "weights_f64", "gradients_f64"},
      {&kImplicitGemm, &kImplicitGemmWeight, &kDepthwise, &kDepthwiseWeight, &kDirect}, tuned_devices(),
      tuning_table());
  return family;
}

ConvPlan select(const ConvProblem& problem) {
  thread_local RecentPlans<ConvProblem, ConvPlan> recent;
  const auto size = [](const ImageLayout& image) { return static_cast<uint64_t>(image.numel()); };
  const uint64_t sizes = (size(problem.in) * 8191 + size(problem.out)) * 8191 + size(problem.w);
  return recent.get(problem, 4 * sizes + static_cast<uint64_t>(problem.pass), [&] {
    ConvProblem compared = problem;
    compared.threads = conv2d_family().threads(problem.device_index());
    const ConvCandidate best = conv2d_family().select(compared);
    if (!best.algorithm) return ConvPlan();
    ConvPlan plan = best.algorithm->plan(problem);
    plan.algorithm = best.algorithm;
    plan.estimated_us = best.estimated_us;
    plan.implementation = conv2d_family().implementation(problem.device_index(), best.index);
    return plan;
  });
}

ConvProblem problem_of(const KernelTable& table, int threads, ConvPass pass, const StridedLayout& in,
                       const StridedLayout& w, const StridedLayout& out, const Conv2dGeometry& g, bool mask) {
  const DType dtype = wide(in.dtype);
  const bool filters_last = is_channels_last(w);
  return {.table = &table,
          .threads = threads,
          .pass = pass,
          .dtype = dtype,
          .in = seen(in, dtype, false),
          .w = seen(w, dtype, !filters_last),
          .out = seen(out, dtype, false),
          .g = g,
          .mask = mask,
          .filters_last = filters_last};
}

MemoryFormat copy_format(const StridedLayout& x, bool dense) {
  return !dense && x.ndim() == 4 && has_channels_last(x) ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

bool needs_copy(const StridedLayout& x, DType dtype, bool dense) {
  const bool no_neighbours = x.ndim() == 4 && x.shape[1] > 1 && x.strides[1] != 1 && x.strides[3] != 1;
  return (x.dtype != dtype || (dense && !is_row_major(x)) || no_neighbours) && x.numel() > 0;
}

ConvPlan select_conv2d(const KernelTable& table, int threads, const StridedLayout& x, const StridedLayout& w,
                       const StridedLayout* bias, const StridedLayout& y, const Conv2dGeometry& g) {
  const DType dtype = wide(y.dtype);
  ConvPlan plan = select(problem_of(table, threads, ConvPass::fprop, x, w, y, g, false));
  plan.workspace_bytes += copy_bytes(&x, dtype, false) + copy_bytes(bias, dtype, true) + copy_bytes(&y, dtype, false) +
                          copy_bytes(&w, dtype, plan.dense_weights);
  return plan;
}

ConvBackwardPlan select_conv2d_backward(const KernelTable& table, int threads, const StridedLayout& dy,
                                        const StridedLayout& x, const StridedLayout& w, const StridedLayout* y_if_relu,
                                        const StridedLayout* dx, const StridedLayout* dw, const StridedLayout* dbias,
                                        const Conv2dGeometry& g, bool masked) {
  const DType dtype = wide(dy.dtype);
  const auto same_layout = [&](const StridedLayout& y) {
    for (int i = 0; i < 4; ++i)
      if (dy.shape[i] != 1 && dy.strides[i] != y.strides[i]) return false;
    return true;
  };
  ConvBackwardPlan plan;
  plan.masks_first = y_if_relu && (needs_copy(dy, dtype, false) || !same_layout(*y_if_relu));
  StridedLayout gradient = dy;
  if (plan.masks_first && !masked) {
    plan.workspace_bytes += dy.numel() * static_cast<int64_t>(size_of(dy.dtype));
    if (!StridedLoop<1>(dy.shape, {&dy.strides}).all_contiguous())
      gradient.strides = contiguous_strides(dy.shape);  // the masked dy is row-major
  }
  plan.workspace_bytes += copy_bytes(&gradient, dtype, false);

  const auto problem = [&](ConvPass pass, const StridedLayout& image, const StridedLayout& weights) {
    return problem_of(table, threads, pass, gradient, weights, image, g, y_if_relu && !plan.masks_first);
  };
  if (dx) plan.data = select(problem(ConvPass::dgrad, *dx, w));
  if (dw) plan.weight = select(problem(ConvPass::wgrad, x, *dw));
  if (dx && dw) {
    const ConvPlan both = select(problem(ConvPass::gradients, *dx, w));
    const char* const forced = ForcedAlgorithm::current();
    plan.at_once = both.algorithm && (forced ? std::strcmp(forced, both.algorithm->name) == 0
                                             : both.estimated_us < plan.data.estimated_us + plan.weight.estimated_us);
    if (plan.at_once) plan.data = both, plan.weight = {};
  }
  if (dx) plan.data.workspace_bytes += copy_bytes(&w, dtype, plan.data.dense_weights) + copy_bytes(dx, dtype, false);
  if (dw) {
    ConvPlan& pass = plan.at_once ? plan.data : plan.weight;
    pass.workspace_bytes +=
        copy_bytes(&x, dtype, false) + copy_bytes(dw, dtype, pass.dense_weights) + copy_bytes(dbias, dtype, true);
  }
  plan.workspace_bytes += std::max(plan.data.workspace_bytes, plan.weight.workspace_bytes);
  return plan;
}

}  // namespace gradus::openmp_detail
