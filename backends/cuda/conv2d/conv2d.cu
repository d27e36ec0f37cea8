// Convolution, its fused form with bias and ReLU, and their gradients: describes the problem, asks select() for an
// algorithm (select.h), and launches what it plans. Bias and ReLU are part of the kernels.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/conv2d/conv2d.cuh>

namespace gradus {
namespace cuda_detail {
namespace {

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

}  // namespace

bool launch_phases(void (*kernel)(const ConvCall&, const Launch&), const ConvPlan& plan, const ConvOperands& operands,
                   std::byte* workspace) {
  const auto& [backend, name, problem, in, weight, bias, out, mask, masked, algorithm] = operands;
  const bool wgrad = problem.is_wgrad();
  EventScope event(name, "cuda", algorithm->name, {wgrad ? &out : &in, wgrad ? &in : &weight}, operands.flops(),
                   algorithm->reason);
  const Launch launch(out.device);
  const auto from = [](const View& view, int h, int w) {
    const int64_t offset = h * view.strides[2] + w * view.strides[3];
    return Address{view.as<std::byte>() + offset * static_cast<int64_t>(size_of(view.dtype))};
  };
  for (const ConvPhase& phase : plan.phases)
    kernel({problem, plan, phase, make_implicit_gemm(problem, phase, bias ? bias.strides[0] : 0),
            in.numel() > 0 ? in.data : out.data,  // kernels load, and discard, an element of an empty input
            mask, masked, from(weight, phase.h.first, phase.w.first), bias.data, from(out, phase.h.at, phase.w.at),
            workspace},
           launch);
  return true;
}

ConvProblem conv_problem(ConvPass pass, const View& x, const View& w, const View& y, const Conv2dGeometry& geometry) {
  return {.pass = pass,
          .dtype = y.dtype,
          .x = ConvOperand(x),
          .w = ConvOperand(w),
          .y = ConvOperand(y),
          .geometry = geometry,
          .switches = {.tf32 = cuda::matmul_allow_tf32(),
                       .library_tf32 = cudnn::allow_tf32(),
                       .small_convolutions = cudnn::small_convolutions(),
                       .workspace_limit = cudnn::workspace_limit()},
          .device = device_properties(y.device.index())};
}

}  // namespace cuda_detail

namespace {

using namespace cuda_detail;

// Computes y, dx, or dw with the gradient of the bias, by an algorithm of `family`, or by `chosen`.
void run(const ConvFamily& family, ConvOperands call, const ConvAlgorithm* chosen = nullptr) {
  const ConvProblem& problem = call.problem;
  if (problem.is_empty()) return;
  for (const View* view : {&call.in, &call.weight, &call.out})
    GRADUS_CHECK(view->numel() < int64_t{1} << 31, ShapeError,
                 "cuda convolves tensors of less than 2^31 elements, not of ", view->numel(), "; split the batch");
  for (uint32_t refused = 0;;) {
    const ConvChoice choice = chosen ? ConvChoice{chosen, 0, chosen->plan(problem)} : select(problem, family, refused);
    call.algorithm = choice.algorithm;
    const Scratch workspace(choice.plan.workspace_bytes, call.out.device);
    if (choice.algorithm->launch(choice.plan, call, workspace.as<std::byte>())) return;
    refused |= 1u << choice.index;  // because cuDNN has no engine for this problem
  }
}

struct BackwardCall {
  Backend& backend;
  const View& dy;
  const Conv2dGeometry& geometry;
  const void* mask = nullptr;
  const void* masked = nullptr;
};

void backward_weight(const ConvFamily& family, const BackwardCall& call, const View& x, const MutableView& dw,
                     const View& dbias, const ConvAlgorithm* chosen = nullptr) {
  ConvProblem problem = conv_problem(ConvPass::backward_weight, x, dw, call.dy, call.geometry);
  problem.bias = static_cast<bool>(dbias);
  problem.mask_alignment = call.mask ? ConvOperand::alignment_of(call.mask) : 0;
  run(family, {call.backend, "conv2d_backward_weight", problem, x, dw, dbias, call.dy, call.mask, call.masked}, chosen);
}

void backward_data(const ConvFamily& family, const BackwardCall& call, const View& w, const MutableView& dx,
                   const ConvAlgorithm* chosen = nullptr) {
  const ConvProblem problem = conv_problem(ConvPass::backward_data, dx, w, call.dy, call.geometry);
  run(family, {call.backend, "conv2d_backward_data", problem, call.dy, w, {}, dx, call.mask}, chosen);
}

}  // namespace

const cuda_detail::ConvFamily& CudaBackend::conv_family() const { return cuda_detail::conv_family(); }

void CudaBackend::conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) {
  conv2d_bias_relu({.x = x, .w = w, .geometry = geometry, .y = y});
}

void CudaBackend::conv2d_bias_relu(const Conv2dArgs& args) {
  ConvProblem problem = conv_problem(ConvPass::forward, args.x, args.w, args.y, args.geometry);
  problem.bias = static_cast<bool>(args.bias), problem.relu = args.relu;
  const char* const name = problem.bias || args.relu ? "conv2d_bias_relu" : "conv2d";
  run(conv_family(), {*this, name, problem, args.x, args.w, args.bias, args.y});
}

void CudaBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                       const Conv2dGeometry& geometry) {
  backward_data(conv_family(), {*this, dy, geometry}, w, dx);
}

void CudaBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                         const Conv2dGeometry& geometry) {
  backward_weight(conv_family(), {*this, dy, geometry}, x, dw, {});
}

// Kernels that take the mask apply it themselves; for the others, which read each element of dy many times, another
// kernel masks dy first. The wgrad kernel of an algorithm with `stores_masked` also stores the masked dy for dgrad, and
// that of an algorithm with `sums_bias` also sums dbias.
void CudaBackend::conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) {
  const auto& [dy, x, w, y, geometry, dx, dw, dbias, memory] = args;
  const ConvFamily& own = cuda_detail::conv_family();
  using Choice = std::pair<const ConvAlgorithm*, bool>;  // an algorithm, and whether it takes the mask
  const auto choose = [&](ConvPass pass, const View& x, const View& w, const View& dy, const void* mask) -> Choice {
    ConvProblem problem = conv_problem(pass, x, w, dy, geometry);
    problem.mask_alignment = mask ? ConvOperand::alignment_of(mask) : 0;
    const ConvAlgorithm* const algorithm = select(problem).algorithm;
    return {algorithm, algorithm->takes_mask && algorithm->takes_mask(problem)};
  };
  const bool can_mask = y && dw && y.strides == dy.strides;
  const auto [for_dw, dw_takes_mask] =
      can_mask ? choose(ConvPass::backward_weight, x, dw, dy, y.data) : Choice{nullptr, false};
  if (can_mask && dx && for_dw->stores_masked) {
    Array scratch;
    MutableView masked = memory;
    if (masked.strides != dy.strides || ConvOperand::alignment_of(masked.data) < 16) {  // or `memory` is absent
      scratch = Array::empty_strided(dy.shape, dy.strides, dy.dtype, dy.device);
      masked = scratch;
    }
    backward_weight(own, {*this, dy, geometry, y.data, masked.data}, x, dw, dbias, for_dw);
    return conv2d_backward_data(masked, w, dx, geometry);
  }
  const auto [for_dx, dx_takes_mask] =
      can_mask && dx ? choose(ConvPass::backward_data, dx, w, dy, y.data) : Choice{nullptr, true};
  if (can_mask && dw_takes_mask && dx_takes_mask) {
    if (dx) backward_data(own, {*this, dy, geometry, y.data}, w, dx, for_dx);
    return backward_weight(own, {*this, dy, geometry, y.data}, x, dw, dbias, for_dw);
  }
  Array scratch;
  const View gradient = y ? masked_by_relu(dy, y, memory, scratch) : dy;
  if (dx) conv2d_backward_data(gradient, w, dx, geometry);
  const ConvAlgorithm* const algorithm =
      dw ? choose(ConvPass::backward_weight, x, dw, gradient, nullptr).first : nullptr;
  const bool apart = !dw || !algorithm->sums_bias;
  if (dw) backward_weight(own, {*this, gradient, geometry}, x, dw, apart ? View{} : dbias, algorithm);
  if (apart) Backend::conv2d_bias_relu_backward({.dy = gradient, .x = x, .w = w, .geometry = geometry, .dbias = dbias});
}

}  // namespace gradus
