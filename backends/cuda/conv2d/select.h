// How the backends "cuda" and "cudnn" compute a convolution. Each algorithm is one ConvAlgorithm in a .cpp file beside
// its kernels (implicit_gemm.cpp has all whose names begin with "implicit_gemm"), and select() takes one of them. Host
// code without CUDA, so that decisions can be tested, and memory planned, on machines without a GPU.
#pragma once

#include <span>

#include <gradus/backends/cuda/conv2d/plan.h>

namespace gradus::cuda_detail {

struct ConvAlgorithm;

/// A call and its operands. For wgrad, `out` is dy, `in` is x, and `weight` and `bias` are results.
struct ConvOperands {
  Backend& backend;  ///< for copies of operands, and for bias and ReLU after an engine of cuDNN
  const char* name;  ///< of the operator, for observers
  const ConvProblem& problem;
  const View &in, &weight, &bias, &out;
  const void* mask = nullptr;                ///< of dy, with the strides of dy
  const void* masked = nullptr;              ///< where an algorithm that stores_masked stores the masked dy
  const ConvAlgorithm* algorithm = nullptr;  ///< that was chosen, for observers

  const View& x() const { return problem.pass == ConvPass::backward_data ? out : in; }
  const View& y() const { return problem.pass == ConvPass::backward_data ? in : out; }
  int64_t flops() const {
    const int64_t filters = problem.w.shape[0];
    return filters > 0 ? 2 * problem.y.numel() * problem.w.numel() / filters : 0;
  }
};

/// Queues the kernels of a plan. Returns false if cuDNN has no engine for the problem; then nothing was queued.
using ConvLaunch = bool(const ConvPlan& plan, const ConvOperands& operands, std::byte* workspace);

struct ConvAlgorithm {
  const char* name;    ///< in events, tests, explain and the README
  const char* reason;  ///< one clause: when it is the right one
  /// What the kernel is written for: shapes, strides, types, capability. The problem is not empty.
  bool (*can_run)(const ConvProblem&, const DeviceProperties&);
  ConvPlan (*plan)(const ConvProblem&, const DeviceProperties&);
  ConvLaunch* launch;  ///< null in builds without CUDA, which have this code for tests
  /// Whether the kernel applies the problem's mask itself, because it reads each element of dy once or a few times.
  /// Null: never.
  bool (*takes_mask)(const ConvProblem&) = nullptr;
  bool stores_masked = false;  ///< wgrad: also stores the masked dy, for dgrad
  bool sums_bias = true;       ///< wgrad: can compute dbias
};

#ifdef GRADUS_WITHOUT_KERNELS
constexpr bool kHasKernels = false;
#else
constexpr bool kHasKernels = true;
#endif

// The algorithms of the backend "cuda". NAME.cpp has the algorithm NAME; NAME.cu, NAME_fprop.cu and NAME_wgrad.cu have its
// kernels.
extern const ConvAlgorithm kDirect, kFewChannelMma, kWgmma, kWgmmaIm2col, kImplicitGemmAsync, kImplicitGemmGeneric;
extern const ConvAlgorithm kImplicitGemmFma, kImplicitGemmTf32, kImplicitGemmHalf;  // implicit_gemm in a math mode
ConvLaunch launch_direct, launch_few_channel_mma, launch_wgmma, launch_wgmma_im2col;
ConvLaunch launch_implicit_gemm_async, launch_implicit_gemm_generic, launch_implicit_gemm;

/// An algorithm, and whether it is faster than those after it in a list (null: wherever it can run).
struct ConvCandidate {
  const ConvAlgorithm* algorithm;
  bool (*is_preferred)(const ConvProblem&, const DeviceProperties&) = nullptr;
};
using ConvCandidates = std::span<const ConvCandidate>;

/// The algorithms of the backend "cuda" in the order of preference. The last one can run every problem.
ConvCandidates conv_candidates();

/// Chooses the first of `candidates` that can run and is preferred; for an empty problem, the last.
const ConvAlgorithm& select(const ConvProblem& problem, const DeviceProperties& device,
                            ConvCandidates candidates = conv_candidates());

/// Returns true if one of our kernels is faster than cuDNN.
bool is_better_than_library(const ConvProblem& problem, const DeviceProperties& device);

/// Returns true for dense images of half types (with `tf32` also float32) with channels innermost, on Hopper. If
/// `of_weight_too`, the weights or their gradient must have the same layout.
bool suits_tma(const ConvProblem& problem, const DeviceProperties& device, bool of_weight_too, bool tf32);
/// Returns true if the blocks of wgmma_im2col run in at most two waves, which are at least 80 % full.
bool fills_im2col(const ConvProblem& problem, const DeviceProperties& device);
/// The tile of implicit_gemm's wgrad.
ConvTile implicit_wgrad_tile(int64_t filters);

/// The layout in which cuDNN computes: the layout of the first operand that is dense in only one of the two layouts.
/// The result of fprop and dgrad is asked first, then the other image, then the weights.
bool is_channels_last(const ConvProblem& problem);

}  // namespace gradus::cuda_detail
