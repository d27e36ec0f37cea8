// Decides which convolutions cuDNN can compute, and which of them it computes faster than the kernels of the backend
// "cuda".
#include <gradus/backends/cudnn/select.h>

#include <algorithm>
#include <vector>

namespace gradus::cudnn_detail {

using cuda_detail::ConvAlgorithm;
using cuda_detail::ConvCandidate;
using cuda_detail::ConvOperand;
using cuda_detail::ConvPass;
using cuda_detail::ConvPlan;
using cuda_detail::ConvProblem;
using cuda_detail::DeviceProperties;
using cuda_detail::LibraryTiling;
using cuda_detail::MathMode;

namespace {

MathMode math_mode(const ConvProblem& p, const DeviceProperties& device) {
  if (p.dtype == DType::f32 && !p.is_library_exact(device)) return MathMode::tf32;
  return p.is_half() ? MathMode::half : MathMode::fma;
}

template <bool kTf32>
bool can_run(const ConvProblem& p, const DeviceProperties& device) {
  if (p.dtype == DType::bf16 && !device.has_tensor_cores()) return false;  // cuDNN has no engines for this case
  return p.has_ordinary_sizes() && (math_mode(p, device) == MathMode::tf32) == kTf32;
}

template <bool kTf32>
bool can_fuse(const ConvProblem& p, const DeviceProperties& device) {
  return p.pass == ConvPass::forward && (p.bias || p.relu) && can_run<kTf32>(p, device);
}

bool can_flip(const ConvProblem& p, const DeviceProperties& device) {
  if (p.pass != ConvPass::backward_data || p.is_strided() || p.geometry.groups != 1 || !can_run<false>(p, device))
    return false;
  for (int i = 0; i < 2; ++i)
    if (p.geometry.padding[i] > p.geometry.dilation[i] * (p.w.shape[2 + i] - 1)) return false;
  return true;
}

bool is_better(const ConvProblem& p, const DeviceProperties& device) { return !is_better_than_library(p, device); }

/// Returns true if dgrad is faster as fprop with flipped filters: in exact float32, cuDNN's fprop reaches almost twice
/// the throughput of its dgrad, except for few channels.
bool is_better_flipped(const ConvProblem& p, const DeviceProperties& device) {
  constexpr int64_t few_channels = 32;
  return p.is_library_exact(device) && p.channels() > few_channels && is_better(p, device);
}

ConvPlan plan_engine(const ConvProblem& p, const DeviceProperties& device) {
  return {.math_mode = math_mode(p, device), .tiling = LibraryTiling{is_channels_last(p), p.switches.workspace_limit}};
}

ConvPlan plan_flipped(const ConvProblem& p, const DeviceProperties& device) {
  // The workspace is limited to the size of the images, because memory is scarce during backward and engines that
  // compute by FFT would need a multiple of it.
  const int64_t images = (p.x.numel() + p.y.numel()) * static_cast<int64_t>(size_of(p.dtype));
  return {.math_mode = math_mode(p, device),
          .tiling = LibraryTiling{is_channels_last(flip_transpose(p)),
                                  std::min(p.switches.workspace_limit, static_cast<size_t>(images))}};
}

constexpr ConvAlgorithm engine(const char* name, decltype(ConvAlgorithm::can_run) can_run,
                               cuda_detail::ConvLaunch* launch) {
  return {.name = name,
          .reason = "our kernels are not ahead of cuDNN's",
          .can_run = can_run,
          .plan = plan_engine,
          .launch = launch};
}

constexpr ConvCandidate kEngines[] = {
    {&kFused, is_better},  {&kFusedTf32, is_better},  {&kFlipped, is_better_flipped},
    {&kEngine, is_better}, {&kEngineTf32, is_better},
};

constexpr auto kLaunchFused = cuda_detail::kHasKernels ? launch_fused : nullptr;
constexpr auto kLaunchEngine = cuda_detail::kHasKernels ? launch_engine : nullptr;

}  // namespace

constinit const ConvAlgorithm kFused = engine("fused", can_fuse<false>, kLaunchFused);
constinit const ConvAlgorithm kFusedTf32 = engine("fused_tf32", can_fuse<true>, kLaunchFused);
constinit const ConvAlgorithm kEngine = engine("engine", can_run<false>, kLaunchEngine);
constinit const ConvAlgorithm kEngineTf32 = engine("engine_tf32", can_run<true>, kLaunchEngine);
constinit const ConvAlgorithm kFlipped = {
    .name = "engine_flipped",
    .reason = "our kernels are not ahead of cuDNN's",
    .can_run = can_flip,
    .plan = plan_flipped,
    .launch = cuda_detail::kHasKernels ? launch_flipped : nullptr,
};

bool is_for_library(const ConvProblem& p, const DeviceProperties& device) {
  return std::ranges::any_of(kEngines, [&](const ConvCandidate& each) {
    return each.algorithm->can_run(p, device) && each.is_preferred(p, device);
  });
}

cuda_detail::ConvCandidates conv_candidates() {
  static const std::vector<ConvCandidate> candidates = [] {
    std::vector<ConvCandidate> list(std::begin(kEngines), std::end(kEngines));
    const cuda_detail::ConvCandidates own = cuda_detail::conv_candidates();
    list.insert(list.end(), own.begin(), own.end());
    return list;
  }();
  return candidates;
}

ConvProblem flip_transpose(const ConvProblem& problem) {
  ConvProblem flipped = problem;
  flipped.pass = ConvPass::forward;
  std::swap(flipped.x, flipped.y);
  Shape& shape = flipped.w.shape;
  std::swap(shape[0], shape[1]);
  const bool last = problem.w.is_dense(true) && !problem.w.is_dense(false);
  flipped.w = ConvOperand(shape, last ? channels_last_strides(shape) : contiguous_strides(shape));
  Conv2dGeometry& geometry = flipped.geometry;
  for (int i = 0; i < 2; ++i) geometry.padding[i] = geometry.dilation[i] * (shape[2 + i] - 1) - geometry.padding[i];
  return flipped;
}

}  // namespace gradus::cudnn_detail
