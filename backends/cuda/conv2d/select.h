// How the backends "cuda" and "cudnn" compute a convolution. Each algorithm is one ConvAlgorithm in a .cpp file beside
// its kernels (implicit_gemm.cpp has all whose names begin with "implicit_gemm"), and select() takes one of them. Host
// code without CUDA, so that decisions can be tested, and memory planned, on machines without a GPU.
#pragma once

#include <functional>
#include <span>

#include <gradus/backends/cuda/conv2d/plan.h>
#include <gradus/backends/cuda/device/tuning.h>
#include <gradus/core/kernel_choice.h>

namespace gradus::cuda_detail {

struct ConvAlgorithm;

/// A call and its operands. For wgrad, `out` is dy, `in` is x, and `weight` and `bias` are results.
struct ConvOperands {
  Backend& backend;  ///< copies operands, and computes bias and ReLU after an engine of cuDNN
  const char* name;  ///< name of the operator, for observers
  const ConvProblem& problem;
  const View &in, &weight, &bias, &out;
  const void* mask = nullptr;    ///< dy counts where this is > 0; has the strides of dy
  const void* masked = nullptr;  ///< memory for the masked dy, if the algorithm has the property stores_masked
  const ConvAlgorithm* algorithm = nullptr;  ///< the chosen algorithm, for observers
  const ConvPlan* plan = nullptr;            ///< its plan
  std::byte* workspace = nullptr;            ///< memory for plan->workspace_bytes

  const View& x() const { return problem.pass == ConvPass::backward_data ? out : in; }
  const View& y() const { return problem.pass == ConvPass::backward_data ? in : out; }
  int64_t flops() const {
    const int64_t filters = problem.w.shape[0];
    return filters > 0 ? 2 * problem.y.numel() * problem.w.numel() / filters : 0;
  }
};

/// Queues the kernels of call.plan. Returns false if cuDNN has no engine for the problem; then nothing was queued.
using ConvLaunch = bool(const ConvOperands& call);

struct ConvAlgorithm {
  const char* name;    ///< the name in events, tests, explain and the README
  const char* reason;  ///< a clause that says when this algorithm is the right choice
  WorkParts parts;     ///< what `work` counts
  /// Returns true if the kernel supports the problem's shapes, strides, types and device. The problem is not empty.
  bool (*can_run)(const ConvProblem&);
  KernelWork (*work)(const ConvProblem&);
  ConvPlan (*plan)(const ConvProblem&);
  ConvLaunch* launch;  ///< null in builds without CUDA, which contain this code only for tests
  /// Returns true if the kernel applies the problem's mask itself, because it reads each element of dy only once or a
  /// few times. Null if it never does.
  bool (*takes_mask)(const ConvProblem&) = nullptr;
  bool stores_masked = false;  ///< wgrad: also stores the masked dy, for dgrad
  bool sums_bias = true;       ///< wgrad: can compute dbias
  bool is_library = false;     ///< an algorithm of cuDNN
};

// The algorithms of the backend "cuda". NAME.cpp has the algorithm NAME; NAME.cu, NAME_fprop.cu and NAME_wgrad.cu have
// its kernels.
extern const ConvAlgorithm kDepthwise, kDirect, kFewChannelMma, kWgmma, kWgmmaIm2col;
extern const ConvAlgorithm kImplicitGemmAsync, kImplicitGemmGeneric;
extern const ConvAlgorithm kImplicitGemmFma, kImplicitGemmTf32, kImplicitGemmHalf;  // implicit_gemm in a math mode
ConvLaunch launch_depthwise, launch_direct, launch_few_channel_mma, launch_wgmma, launch_wgmma_im2col;
ConvLaunch launch_implicit_gemm_async, launch_implicit_gemm_generic, launch_implicit_gemm;

using ConvFamily = KernelFamily<ConvAlgorithm>;
/// The algorithms of the backend "cuda".
const ConvFamily& conv_family();
/// The kinds of problems that differ in factors, in the order of ConvProblem::kind().
std::vector<std::string> conv_kinds();

struct ConvChoice {
  const ConvAlgorithm* algorithm = nullptr;
  size_t index = 0;  ///< index in the family
  ConvPlan plan = {};
};
/// Chooses the algorithm with the lowest estimate among those that can run, except those whose bit in `without` is set.
/// With small_convolutions, cuDNN's algorithms come first.
ConvChoice select(const ConvProblem& problem, const ConvFamily& family = conv_family(), uint32_t without = 0);
/// Returns true if the problem asks for a choice by time (ConvSwitches::timed), and select_by_time() has not made it.
bool is_untimed(const ConvProblem& problem, const ConvFamily& family);
/// The fastest of the few algorithms with the lowest estimates. `time_of` measures one; infinity: it cannot run. From
/// now on, select() makes the same choice for this problem.
ConvChoice select_by_time(const ConvProblem& problem, const ConvFamily& family,
                          const std::function<double(const ConvChoice&)>& time_of);

/// select() or, if the user asks for it and this thread captures no graph, select_by_time(), for which the algorithms
/// write the call's results (conv2d.cu).
ConvChoice choice_for(const ConvOperands& call, const ConvFamily& family);

/// Returns true for dense images of half types (with `tf32` also float32) with channels innermost, on Hopper. If
/// `of_weight_too`, the weights or their gradient must have the same layout.
bool suits_tma(const ConvProblem& problem, bool of_weight_too, bool tf32);
/// The layout in which cuDNN computes: the layout of the first operand that is dense in only one of the two layouts.
/// The order of the operands is: the result of fprop or dgrad, the other image, the weights.
bool is_channels_last(const ConvProblem& problem);

// ---- work ----

/// Bytes of x, w and y.
double operand_bytes(const ConvProblem& p);
inline WorkCounter work_counter(const ConvProblem& p, MathMode mode) {
  return {p.device, p.dtype, mode, operand_bytes(p)};
}

}  // namespace gradus::cuda_detail
