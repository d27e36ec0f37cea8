// Convolution, its fused form with bias and ReLU, and their gradients: from views to plans (select.h), and to the
// kernels that they name. Bias and ReLU are part of the kernels.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/cuda.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/conv2d/conv2d.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

ConvProblem problem_of(ConvPass pass, const View& x, const View& w, const View& y, const Conv2dGeometry& geometry) {
  return {pass, y.dtype, ConvOperand(x), ConvOperand(w), ConvOperand(y), geometry};
}

ConvSwitches switches() { return {.tf32 = cuda::matmul_allow_tf32()}; }

int64_t flops(const View& w, const View& y) { return w.shape[0] ? 2 * y.numel() * w.numel() / w.shape[0] : 0; }

Gather make_gather(const ConvProblem& problem) {
  const bool backward = problem.pass == ConvPass::backward_data;
  const ConvOperand &in = problem.in(), &out = problem.out(), &w = problem.w;
  const Conv2dGeometry& geometry = problem.geometry;
  const int64_t groups = geometry.groups, channels = in.shape[1] / groups, taps = w.shape[2] * w.shape[3];
  Gather gather{.rows = static_cast<uint32_t>(out.shape[1] / groups),
                .positions = static_cast<uint32_t>(out.shape[0] * out.shape[2] * out.shape[3]),
                .depth = in.numel() > 0 ? static_cast<uint32_t>(channels * taps) : 0,
                .in_channels = static_cast<uint32_t>(channels),
                .in_height = static_cast<int>(in.shape[2]),
                .in_width = static_cast<int>(in.shape[3]),
                .stride_h = Divisor(backward ? geometry.stride[0] : 1),
                .stride_w = Divisor(backward ? geometry.stride[1] : 1),
                .out_height = Divisor(out.shape[2]),
                .out_width = Divisor(out.shape[3]),
                .taps = Divisor(taps),
                .tap_width = Divisor(w.shape[3]),
                .in = Strides4(in.strides),
                .out = Strides4(out.strides),
                .weight_row = w.strides[backward ? 1 : 0],
                .weight_channel = w.strides[backward ? 0 : 1],
                .weight_r = w.strides[2],
                .weight_s = w.strides[3],
                .weight_group = w.shape[0] / groups * w.strides[0]};
  for (int i = 0; i < 2; ++i) {
    const int stride = static_cast<int>(geometry.stride[i]), padding = static_cast<int>(geometry.padding[i]);
    const int dilation = static_cast<int>(geometry.dilation[i]);
    gather.step[i] = backward ? 1 : stride, gather.origin[i] = backward ? padding : -padding;
    gather.tap_step[i] = backward ? -dilation : dilation, gather.stride[i] = backward ? stride : 1;
  }
  return gather;
}

// `out` is the result (y or dx), `in` what is gathered (x or dy), where `mask` (strides of `in`, or null) is positive.
void run_gather(const char* name, const ConvProblem& problem, const View& in, const void* mask, const View& w,
                const void* bias, const MutableView& out) {
  if (out.numel() == 0) return;
  const bool forward = problem.pass == ConvPass::forward;
  check_countable(in.numel(), forward ? "x" : "dy");
  check_countable(out.numel(), forward ? "y" : "dx");
  const ConvPlan plan = select(problem, device_properties(out.device.index), switches());
  EventScope event(name, "cuda", plan.name(), {&in, &w}, flops(w, forward ? View(out) : in));
  const Launch launch(out.device);
  const Scratch workspace(plan.workspace_bytes, out.device);
  const GatherCall call{problem, plan,     make_gather(problem),     in.data, mask, w.data,
                        bias,    out.data, workspace.as<std::byte>()};
  switch (plan.algorithm) {
    case ConvAlgorithm::direct: return direct(call, launch);
    case ConvAlgorithm::few_channel_mma: return few_channel_mma_fprop(call, launch);
    case ConvAlgorithm::implicit_gemm_async: return implicit_gemm_async(call, launch);
    case ConvAlgorithm::implicit_gemm: return implicit_gemm(call, launch);
    default: return implicit_gemm_generic(call, launch);
  }
}

void backward_data(const View& dy, const void* mask, const View& w, const MutableView& dx,
                   const Conv2dGeometry& geometry) {
  run_gather("conv2d_backward_data", problem_of(ConvPass::backward_data, dx, w, dy, geometry), dy, mask, w, nullptr,
             dx);
}

void backward_weight(const View& dy, const void* mask, const View& x, const MutableView& dw, const MutableView* dbias,
                     const Conv2dGeometry& geometry) {
  const int64_t results = dw.numel() + (dbias ? dw.shape[0] : 0);
  if (results == 0) return;
  check_countable(dy.numel(), "dy");
  check_countable(x.numel(), "x");
  check_countable(results, "dw");
  ConvProblem problem = problem_of(ConvPass::backward_weight, x, dw, dy, geometry);
  problem.bias = dbias, problem.mask_alignment = mask ? ConvOperand::alignment_of(mask) : 0;
  const ConvPlan plan = select(problem, device_properties(dy.device.index), switches());
  EventScope event("conv2d_backward_weight", "cuda", plan.name(), {&dy, &x}, flops(dw, dy));
  const Launch launch(dy.device);
  const Scratch workspace(plan.workspace_bytes, dy.device);
  run_weight(problem, plan, {dy, x, mask, dw, dbias}, workspace.as<std::byte>(), launch);
}

}  // namespace

void CudaBackend::conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) {
  conv2d_bias_relu({.x = x, .w = w, .geometry = geometry, .y = y});
}

void CudaBackend::conv2d_bias_relu(const Conv2dArgs& args) {
  const View& bias = args.bias;
  Array packed_bias;
  if (bias && bias.strides[0] != 1) {
    packed_bias = Array::empty(bias.shape, bias.dtype, bias.device);
    copy(bias, packed_bias);
  }
  ConvProblem problem = problem_of(ConvPass::forward, args.x, args.w, args.y, args.geometry);
  problem.bias = static_cast<bool>(bias), problem.relu = args.relu;
  run_gather(bias || args.relu ? "conv2d_bias_relu" : "conv2d", problem, args.x, nullptr, args.w,
             packed_bias.defined() ? packed_bias.data() : bias.data, args.y);
}

void CudaBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                       const Conv2dGeometry& geometry) {
  backward_data(dy, nullptr, w, dx, geometry);
}

void CudaBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                         const Conv2dGeometry& geometry) {
  backward_weight(dy, nullptr, x, dw, nullptr, geometry);
}

// Kernels that read each dy once mask it on the way; others read each many times, so that it pays to mask them first.
// dbias is summed by the kernel of the weights' gradient.
void CudaBackend::conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) {
  const View &dy = args.dy, &x = args.x, &w = args.w, &y = args.y;
  const MutableView &dx = args.dx, &dw = args.dw;
  const Conv2dGeometry& geometry = args.geometry;
  const auto takes_mask = [&](ConvPass pass, const View& x, const View& w) {
    return choose(problem_of(pass, x, w, dy, geometry), device_properties(dy.device.index), switches()).takes_mask;
  };
  const bool masks = !y || (y.strides == dy.strides && dw && (!dx || takes_mask(ConvPass::backward_data, dx, w)) &&
                            takes_mask(ConvPass::backward_weight, x, dw));
  Array scratch;
  const View gradient = masks ? dy : masked_by_relu(dy, y, args.masked, scratch);
  const void* mask = masks ? y.data : nullptr;
  if (dx && mask) backward_data(dy, mask, w, dx, geometry);
  else if (dx) conv2d_backward_data(gradient, w, dx, geometry);
  if (dw) backward_weight(gradient, mask, x, dw, if_present(args.dbias), geometry);
  else Backend::conv2d_bias_relu_backward({.dy = gradient, .x = x, .w = w, .geometry = geometry, .dbias = args.dbias});
}

}  // namespace gradus
