// Convolution, its fused form with bias and ReLU, and their gradients: describes the problem, asks select() for a plan
// (select.h) and launches the kernel that the plan names. Bias and ReLU are part of the kernels.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/conv2d/conv2d.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

ConvProblem problem_of(ConvPass pass, const View& x, const View& w, const View& y, const Conv2dGeometry& geometry) {
  return {pass, y.dtype, ConvOperand(x), ConvOperand(w), ConvOperand(y), geometry};
}

ConvSwitches switches() { return {.tf32 = cuda::matmul_allow_tf32()}; }

ImplicitGemm make_implicit_gemm(const ConvProblem& problem, const ConvPhase& phase, int64_t bias_step) {
  const bool backward = problem.pass == ConvPass::backward_data;
  const ConvOperand &in = problem.in(), &out = problem.out(), &w = problem.w;
  const auto &h = phase.h, &v = phase.w;
  const int64_t groups = problem.geometry.groups, channels = in.shape[1] / groups, taps = int64_t{h.count} * v.count;
  const auto step = [&](int axis) { return backward ? 1 : static_cast<int>(problem.geometry.stride[axis]); };
  // fprop and dgrad of an empty input have no taps. wgrad of an empty input still has results, which are zero.
  const bool reads = in.numel() > 0 || problem.pass == ConvPass::backward_weight;
  ImplicitGemm gemm{.rows = u32(out.shape[1] / groups),
                    .positions = u32(out.shape[0] * h.size * v.size),
                    .depth = reads ? u32(channels * taps) : 0,
                    .in_channels = u32(channels),
                    .in_height = static_cast<int>(in.shape[2]),
                    .in_width = static_cast<int>(in.shape[3]),
                    .step = {step(0), step(1)},
                    .origin = {h.origin, v.origin},
                    .tap_step = {h.step, v.step},
                    .out_height = Divisor(h.size),
                    .out_width = Divisor(v.size),
                    .taps = Divisor(taps),
                    .tap_width = Divisor(v.count),
                    .in = Strides4(in.strides),
                    .out = Strides4(out.strides),
                    .weight = Strides4(w.strides),
                    .weight_group = w.shape[0] / groups * w.strides[0],
                    .bias_step = bias_step,
                    .columns = u32(channels * taps) + (problem.bias ? 1 : 0),
                    .per_split = phase.per_split};
  if (!backward) return gemm;
  std::swap(gemm.weight.n, gemm.weight.c);
  gemm.weight.h *= h.period, gemm.weight.w *= v.period;
  gemm.out.h *= problem.geometry.stride[0], gemm.out.w *= problem.geometry.stride[1];
  return gemm;
}

// Computes y, dx, or dw with the gradient of the bias. `bias`, `mask` (which has the strides of dy) and `masked` (where
// wgmma_wgrad stores the masked dy) may be null.
void run(const char* name, const ConvProblem& problem, const View& in, const View& w, const View& bias, const View& out,
         const void* mask = nullptr, const void* masked = nullptr) {
  const bool of_weight = problem.pass == ConvPass::backward_weight;
  const int64_t filters = w.shape[0];
  if ((of_weight ? w.numel() + (problem.bias ? filters : 0) : out.numel()) == 0) return;
  for (const View* view : {&in, &w, &out})
    GRADUS_CHECK(view->numel() < int64_t{1} << 31, ShapeError,
                 "cuda convolves tensors of less than 2^31 elements, not of ", view->numel(), "; split the batch");
  const ConvPlan plan = select(problem, device_properties(out.device.index()), switches());
  const int64_t flops = filters > 0 ? 2 * problem.y.numel() * w.numel() / filters : 0;
  EventScope event(name, "cuda", plan.name(), {of_weight ? &out : &in, of_weight ? &in : &w}, flops, plan.reason());
  const Launch launch(out.device);
  const Scratch workspace(plan.workspace_bytes, out.device);
  for (const ConvPhase& phase : plan.phases) {
    const auto from = [&](const View& view, int h, int w) {
      const int64_t offset = h * view.strides[2] + w * view.strides[3];
      return Address{view.as<std::byte>() + offset * static_cast<int64_t>(size_of(view.dtype))};
    };
    const ConvCall call{problem,
                        plan,
                        phase,
                        make_implicit_gemm(problem, phase, bias ? bias.strides[0] : 0),
                        in.numel() > 0 ? in.data : out.data,  // kernels load, and discard, an element of an empty input
                        mask,
                        masked,
                        from(w, phase.h.first, phase.w.first),
                        bias.data,
                        from(out, phase.h.at, phase.w.at),
                        workspace.as<std::byte>()};
    switch (plan.algorithm) {
      case ConvAlgorithm::wgmma: (of_weight ? wgmma_wgrad : wgmma_fprop)(call, launch); break;
      case ConvAlgorithm::wgmma_im2col: wgmma_im2col(call, launch); break;
      case ConvAlgorithm::direct: (of_weight ? direct_wgrad : direct)(call, launch); break;
      case ConvAlgorithm::few_channel_mma:
        (of_weight ? few_channel_mma_wgrad : few_channel_mma_fprop)(call, launch);
        break;
      case ConvAlgorithm::implicit_gemm_async:
      case ConvAlgorithm::implicit_gemm: (of_weight ? implicit_gemm_wgrad : implicit_gemm)(call, launch); break;
      default: (of_weight ? implicit_gemm_generic_wgrad : implicit_gemm_generic)(call, launch);
    }
    if (plan.algorithm == ConvAlgorithm::wgmma_im2col
            ? phase.split_k > 1
            : (of_weight || phase.split_k > 1) && plan.algorithm != ConvAlgorithm::wgmma)
      add_parts(call, launch);
  }
}

void backward_data(const View& dy, const void* mask, const View& w, const MutableView& dx,
                   const Conv2dGeometry& geometry) {
  run("conv2d_backward_data", problem_of(ConvPass::backward_data, dx, w, dy, geometry), dy, w, {}, dx, mask);
}

void backward_weight(const View& dy, const void* mask, const View& x, const MutableView& dw, const View& dbias,
                     const Conv2dGeometry& geometry, const void* masked = nullptr) {
  ConvProblem problem = problem_of(ConvPass::backward_weight, x, dw, dy, geometry);
  problem.bias = static_cast<bool>(dbias), problem.mask_alignment = mask ? ConvOperand::alignment_of(mask) : 0;
  run("conv2d_backward_weight", problem, x, dw, dbias, dy, mask, masked);
}

}  // namespace

void CudaBackend::conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) {
  conv2d_bias_relu({.x = x, .w = w, .geometry = geometry, .y = y});
}

void CudaBackend::conv2d_bias_relu(const Conv2dArgs& args) {
  ConvProblem problem = problem_of(ConvPass::forward, args.x, args.w, args.y, args.geometry);
  problem.bias = static_cast<bool>(args.bias), problem.relu = args.relu;
  run(problem.bias || args.relu ? "conv2d_bias_relu" : "conv2d", problem, args.x, args.w, args.bias, args.y);
}

void CudaBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                       const Conv2dGeometry& geometry) {
  backward_data(dy, nullptr, w, dx, geometry);
}

void CudaBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                         const Conv2dGeometry& geometry) {
  backward_weight(dy, nullptr, x, dw, {}, geometry);
}

// Kernels that read each element of dy once apply the mask themselves; for the others, which read it many times, dy is
// masked before. wgmma_wgrad masks dy and stores it for dgrad. The wgrad kernel sums dbias, except wgmma_im2col.
void CudaBackend::conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) {
  const auto& [dy, x, w, y, geometry, dx, dw, dbias, memory] = args;
  const auto chosen = [&](ConvPass pass, const View& x, const View& w) {
    ConvProblem problem = problem_of(pass, x, w, dy, geometry);
    problem.mask_alignment = ConvOperand::alignment_of(y.data);
    return choose(problem, device_properties(dy.device.index()), switches());
  };
  if (y && dx && dw && y.strides == dy.strides &&
      chosen(ConvPass::backward_weight, x, dw).algorithm == ConvAlgorithm::wgmma) {
    Array scratch;
    MutableView masked = memory;
    if (masked.strides != dy.strides || ConvOperand::alignment_of(masked.data) < 16) {  // or `memory` is absent
      scratch = Array::empty_strided(dy.shape, dy.strides, dy.dtype, dy.device);
      masked = scratch;
    }
    backward_weight(dy, y.data, x, dw, dbias, geometry, masked.data);
    return conv2d_backward_data(masked, w, dx, geometry);
  }
  const auto takes_mask = [&](ConvPass pass, const View& x, const View& w) { return chosen(pass, x, w).takes_mask; };
  const bool masks = !y || (y.strides == dy.strides && dw && (!dx || takes_mask(ConvPass::backward_data, dx, w)) &&
                            takes_mask(ConvPass::backward_weight, x, dw));
  Array scratch;
  const View gradient = masks ? dy : masked_by_relu(dy, y, memory, scratch);
  const void* mask = masks ? y.data : nullptr;
  if (dx && mask) backward_data(dy, mask, w, dx, geometry);
  else if (dx) conv2d_backward_data(gradient, w, dx, geometry);
  const bool apart = !dw || chosen(ConvPass::backward_weight, x, dw).algorithm == ConvAlgorithm::wgmma_im2col;
  if (dw) backward_weight(gradient, mask, x, dw, apart ? View{} : dbias, geometry);
  if (apart) Backend::conv2d_bias_relu_backward({.dy = gradient, .x = x, .w = w, .geometry = geometry, .dbias = dbias});
}

}  // namespace gradus
