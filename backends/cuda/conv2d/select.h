// How the backends "cuda" and "cudnn" compute a convolution. Each algorithm is one ConvAlgorithm in a .cpp file beside
// its kernels (implicit_gemm.cpp has all whose names begin with "implicit_gemm"), and select() takes one of them. Host
// code without CUDA, so that decisions can be tested, and memory planned, on machines without a GPU.
#pragma once

#include <span>

#include <gradus/backends/cuda/conv2d/plan.h>
#include <gradus/core/kernel_choice.h>

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
  WorkParts parts;     ///< what `work` counts
  /// What the kernel is written for: shapes, strides, types, capability. The problem is not empty.
  bool (*can_run)(const ConvProblem&);
  KernelWork (*work)(const ConvProblem&);
  ConvPlan (*plan)(const ConvProblem&);
  ConvLaunch* launch;  ///< null in builds without CUDA, which have this code for tests
  /// Whether the kernel applies the problem's mask itself, because it reads each element of dy once or a few times.
  /// Null: never.
  bool (*takes_mask)(const ConvProblem&) = nullptr;
  bool stores_masked = false;  ///< wgrad: also stores the masked dy, for dgrad
  bool sums_bias = true;       ///< wgrad: can compute dbias
  bool is_library = false;     ///< an algorithm of cuDNN
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

using ConvFamily = KernelFamily<ConvAlgorithm>;
/// The algorithms of the backend "cuda".
const ConvFamily& conv_family();
/// backends/cuda/tuning_table.txt, and the file that GRADUS_TUNING names.
const TuningTable& tuning_table();
/// The kinds of problems that differ in factors, in the order of ConvProblem::kind().
std::vector<std::string> conv_kinds();

struct ConvChoice {
  const ConvAlgorithm* algorithm = nullptr;
  size_t index = 0;  ///< in the family
  ConvPlan plan = {};
};
/// Chooses the algorithm with the lowest estimate among those that can run, except those whose bit in `without` is set.
/// With small_convolutions, cuDNN's algorithms come first.
ConvChoice select(const ConvProblem& problem, const ConvFamily& family = conv_family(), uint32_t without = 0);

/// Returns true for dense images of half types (with `tf32` also float32) with channels innermost, on Hopper. If
/// `of_weight_too`, the weights or their gradient must have the same layout.
bool suits_tma(const ConvProblem& problem, bool of_weight_too, bool tf32);
/// The layout in which cuDNN computes: the layout of the first operand that is dense in only one of the two layouts.
/// The result of fprop and dgrad is asked first, then the other image, then the weights.
bool is_channels_last(const ConvProblem& problem);

// ---- work ----
// All of our kernels consist of blocks, each of which computes a tile in steps, so they count the same parts.

/// The parts of the work of our kernels, in this order.
enum TilePart {
  kMultiplyAdds,  // of the busiest multiprocessor, times the number of multiprocessors; the empty part of tiles counts
  kSteps,         // that run one after the other: those of a block times the waves
  kTileBytes,     // that all blocks load for their tiles
  kTileElements,  // that threads load one by one
  kBytes,         // of the operands and the result, once
  kPartBytes,     // of the parts of sums, which are stored and added
  kWaves,         // of blocks
  kBlocks,        // of the busiest multiprocessor
  kLaunches,
  kClusterBlocks,  // that exchange their sums
};
inline constexpr WorkParts kTileParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                                          {"steps", WorkLimit::calls},
                                          {"tile_bytes", WorkLimit::bytes},
                                          {"tile_elements", WorkLimit::bytes},
                                          {"bytes", WorkLimit::bytes},
                                          {"part_bytes", WorkLimit::bytes},
                                          {"waves", WorkLimit::calls},
                                          {"blocks", WorkLimit::calls},
                                          {"launches", WorkLimit::calls},
                                          {"cluster_blocks", WorkLimit::calls}}};

/// Multiply-adds of this mode in the time of one float32 multiply-add on the FMA units.
constexpr double multiply_adds_at_once(MathMode mode) {
  return mode == MathMode::fma ? 1 : mode == MathMode::tf32 ? 8 : 16;
}

/// Blocks of a launch that compute tiles of the same size.
struct TileWork {
  int64_t blocks = 1, resident = 1;                    ///< all blocks; those that a multiprocessor runs at a time
  int64_t steps = 1;                                   ///< of a block
  int64_t multiply_adds = 0, bytes = 0, elements = 0;  ///< of a step; elements: loaded one by one
};

/// Sums up the work of the launches of a convolution.
class WorkCounter {
 public:
  /// Counts the operands and the result.
  WorkCounter(const ConvProblem& p, MathMode mode);

  void add_tiles(const TileWork& tiles);
  /// `splits` parts of `results` sums, which a second kernel adds.
  void add_parts(int64_t splits, int64_t results);
  void add(TilePart part, int64_t amount) { work_[part] += static_cast<double>(amount); }
  /// The work as a multiple of what an H200 does in the same time.
  KernelWork work() const;

 private:
  const ConvProblem& p_;
  const double at_once_;
  KernelWork work_ = {};
};

/// Bytes of x, w and y.
double operand_bytes(const ConvProblem& p);

}  // namespace gradus::cuda_detail
