// Convolution, its fused form with bias and ReLU, and their gradients: describes the problem, asks select() for an
// algorithm (select.h), launches what it plans, and adds the parts of split-K. Bias and ReLU are part of the kernels.
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

// split-K: adds the partial sums that the convolution kernels store in the workspace.
//   fprop, dgrad: out[i] = sum over splits of partial[split, i], then bias and ReLU;  partial: (splits, groups,
//   rows, positions).
//   wgrad: dw[i] = sum over splits of partial[split, i];  partial: (splits, groups, K, C R S), with one more column if
//   dbias is asked for. The columns have the order (c, r, s); those of implicit_gemm_wgrad and wgmma_im2col (r, s, c).
// Grid: x = blocks of 256 / kLanes results.  Block: 256 threads; kLanes threads (1, 8 or 32) compute a result: each
// adds every kLanes-th part, with eight loads in flight, and a tree in shared memory adds the threads.
// Deterministic: parts are added in a fixed order.
//
// `to` is the output or, for wgrad, dw (K, C / groups, R, S). `bias` (K) is added to the output; for wgrad, dbias is
// stored there. If one thread computes a result, neighbouring threads compute neighbours in dw, and the cache holds
// whole lines of the parts for the block; otherwise neighbouring threads read neighbours in the parts.
template <class T, uint32_t kLanes, bool kOfWeight>
__global__ void __launch_bounds__(kThreads)
    split_k_reduce_kernel(ImplicitGemm g, const compute_t<T>* partial, uint32_t splits, uint32_t results,
                          Divisor columns, Divisor channels, bool channels_innermost, bool relu, T* to, T* bias) {
  using C = compute_t<T>;
  constexpr uint32_t kOutputs = kThreads / kLanes, kBatch = 8;
  __shared__ C shared[kLanes][kOutputs];
  const uint32_t slot = threadIdx.x % kOutputs, lane = threadIdx.x / kOutputs;
  const uint32_t result = blockIdx.x * kOutputs + slot;
  uint32_t column = result, place = result;  // place: index in the parts of a split
  const uint32_t k = columns.split(column);
  const bool follows_dw = kOfWeight && kLanes == 1 && channels_innermost && g.weight.c != 1;
  if (follows_dw && column < g.depth) {
    uint32_t tap = column;
    const uint32_t channel = g.taps.split(tap);
    place += tap * channels.divisor + channel - column;
  }
  C sum = 0;
  for (uint32_t first = lane; first < splits; first += kBatch * kLanes) {
    C parts[kBatch];  // all loads are in flight at once
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      const uint32_t split = first + i * kLanes;
      parts[i] = split < splits && result < results ? partial[static_cast<int64_t>(split) * results + place] : C(0);
    }
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) sum += parts[i];
  }
  shared[lane][slot] = sum;
  for (uint32_t width = kLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (lane < width) shared[lane][slot] += shared[lane + width][slot];
  }
  if (lane != 0 || result >= results) return;
  sum = shared[0][slot];
  if constexpr (!kOfWeight) {
    g.store(to, bias, relu, 0, k, column, sum);
  } else if (column == g.depth) {
    bias[k * g.bias_step] = static_cast<T>(sum);
  } else {
    if (channels_innermost && !follows_dw) {
      const uint32_t tap = channels.split(column);
      column = column * g.taps.divisor + tap;
    }
    to[g.weight_offset(k, g.place_of_tap(column))] = static_cast<T>(sum);
  }
}

}  // namespace

bool launch_phases(void (*kernel)(const ConvCall&, const Launch&), const ConvOperands& call) {
  const auto& [backend, name, problem, in, weight, bias, out, mask, masked, algorithm, plan, workspace] = call;
  const bool wgrad = problem.is_wgrad();
  EventScope event(name, "cuda", algorithm->name, {wgrad ? &out : &in, wgrad ? &in : &weight}, call.flops(),
                   algorithm->reason);
  const Launch launch(out.device);
  const auto from = [](const View& view, int h, int w) {
    const int64_t offset = h * view.strides[2] + w * view.strides[3];
    return Address{view.as<std::byte>() + offset * static_cast<int64_t>(size_of(view.dtype))};
  };
  for (const ConvPhase& phase : plan->phases)
    kernel({problem, *plan, phase, make_implicit_gemm(problem, phase, bias ? bias.strides[0] : 0),
            in.numel() > 0 ? in.data : out.data,  // kernels load, and discard, an element of an empty input
            mask, masked, from(weight, phase.h.first, phase.w.first), bias.data, from(out, phase.h.at, phase.w.at),
            workspace},
           launch);
  return true;
}

void add_parts(const ConvCall& call, const Launch& launch, bool channels_innermost) {
  const ImplicitGemm& g = call.gemm;
  const ConvPlan& plan = call.plan;
  const bool of_weight = call.problem.pass == ConvPass::backward_weight;
  const uint32_t columns = of_weight ? g.columns : g.positions, lines = call.groups() * g.rows;
  const uint32_t parts = call.phase.split_k, results = lines * columns;
  const Address partial{call.workspace + plan.partial_offset};
  visit_floating(call.problem.dtype, [&]<class T>() {
    const auto sum = [&]<int kLanes, bool kOfWeight>() {
      launch(split_k_reduce_kernel<T, kLanes, kOfWeight>, ceil_div(results, kThreads / kLanes), kThreads, g, partial,
             parts, results, Divisor(columns), Divisor(g.in_channels), channels_innermost, call.problem.relu,
             kOfWeight ? call.weight : call.out, call.bias);
    };
    if (!of_weight) return sum.template operator()<1, false>();
    visit_constant<1, 8, 32>(static_cast<int>(plan.reduce_lanes),
                             [&]<int kLanes>() { sum.template operator()<kLanes, true>(); });
  });
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
                       .workspace_limit = cudnn::workspace_limit(),
                       .timed = cudnn::benchmark()},
          .device = device_properties(y.device.index())};
}

namespace {

// Queues the kernels of an algorithm. Returns false if it is one of cuDNN, which has no engine for the problem.
bool launch(const ConvChoice& choice, ConvOperands call) {
  const Scratch workspace(choice.plan.workspace_bytes, call.out.device);
  call.algorithm = choice.algorithm, call.plan = &choice.plan, call.workspace = workspace.as<std::byte>();
  return choice.algorithm->launch(call);
}

}  // namespace

ConvChoice choice_for(const ConvOperands& call, const ConvFamily& family) {
  if (!is_untimed(call.problem, family) || this_thread_captures()) return select(call.problem, family);
  return select_by_time(call.problem, family, [&](const ConvChoice& choice) {
    return fastest_ms(call.out.device.index(), [&] { return launch(choice, call); });
  });
}

}  // namespace cuda_detail

namespace {

using namespace cuda_detail;

// Computes y, dx, or dw with the gradient of the bias, by an algorithm of `family`, or by `chosen`.
void run(const ConvFamily& family, const ConvOperands& call, const ConvAlgorithm* chosen = nullptr) {
  const ConvProblem& problem = call.problem;
  if (problem.is_empty()) return;
  for (const View* view : {&call.in, &call.weight, &call.out})
    GRADUS_CHECK(view->numel() < int64_t{1} << 31, ShapeError,
                 "cuda convolves tensors of less than 2^31 elements, not of ", view->numel(), "; split the batch");
  ConvChoice choice = chosen ? ConvChoice{chosen, 0, chosen->plan(problem)} : choice_for(call, family);
  for (uint32_t refused = 0; !launch(choice, call);) {
    refused |= 1u << choice.index;  // because cuDNN has no engine for this problem
    choice = select(problem, family, refused);
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
  problem.mask_alignment = call.mask ? alignment_of(call.mask, 16) : 0;
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
    problem.mask_alignment = mask ? alignment_of(mask, 16) : 0;
    const ConvAlgorithm* const algorithm =
        mask ? select(problem).algorithm
             : choice_for({*this, "conv2d_backward_weight", problem, x, w, {}, dy}, own).algorithm;
    return {algorithm, algorithm->takes_mask && algorithm->takes_mask(problem)};
  };
  const bool can_mask = y && dw && y.strides == dy.strides;
  const auto [for_dw, dw_takes_mask] =
      can_mask ? choose(ConvPass::backward_weight, x, dw, dy, y.data) : Choice{nullptr, false};
  if (can_mask && dx && for_dw->stores_masked) {
    Array scratch;
    MutableView masked = memory;
    if (masked.strides != dy.strides || alignment_of(masked.data) < 16) {  // or `memory` is absent
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
