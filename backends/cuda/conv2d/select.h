// The one place that decides how the backends "cuda" and "cudnn" convolve: algorithm, tile, math mode, split-K and
// workspace. Host code without CUDA, so that decisions are tested and planned where there is no GPU.
#pragma once

#include <vector>

#include <gradus/backends/cuda/conv2d/tilings.h>
#include <gradus/backends/cuda/device/math_mode.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// Which of y, dx and dw is the result. Forward and backward_data are both a gather, "out from in": y from x, dx from
/// dy.
enum class ConvPass : uint8_t { forward, backward_data, backward_weight };

/// The kernels. K, C, R, S, N, P, Q are sizes per group; "exact" is float32 on the FMA units.
enum class ConvAlgorithm : uint8_t {
  stencil,   ///< gathers; conv2d_stencil.cu: K <= 16, 3x3 or 5x5, from tiles of the input in shared memory
  direct,    ///< conv2d_direct.cu, conv2d_weight_direct.cu: few K (or, of the weights' gradient, few C R S)
  thin,      ///< forward, dw; conv2d_thin.cu, conv2d_weight_thin.cu: C < 8 by half types on tensor cores
  sliding,   ///< dw; conv2d_weight_sliding.cu: C <= 6, 3x3 or 5x5, windows that slide along rows
  narrow,    ///< dw; conv2d_weight_narrow.cu: exact, 16 < C R S < 32
  fma,       ///< conv2d_fma.cu, conv2d_weight_fma.cu: implicit GEMM, exact, asynchronous loads of NCHW
  implicit,  ///< conv2d_implicit.cu, conv2d_weight_implicit.cu: implicit GEMM in any math mode
  tiled,     ///< conv2d_tiled.cu, conv2d_weight_tiled.cu: implicit GEMM that takes everything
  library,   ///< cuDNN
};

/// An operand without its elements.
struct ConvOperand {
  Shape shape;
  Strides strides;
  int64_t alignment = 16;  ///< the largest power of two up to 16 that divides the address

  ConvOperand() = default;
  ConvOperand(Shape shape, Strides strides) : shape(std::move(shape)), strides(std::move(strides)) {}
  explicit ConvOperand(const View& view)
      : shape(view.shape), strides(view.strides), alignment(alignment_of(view.data)) {}

  int64_t numel() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  /// The largest distance in elements between two elements.
  int64_t span() const;
  /// True for dense elements in NHWC, else NCHW, order; axes of size 1 may have any stride.
  bool is_dense(bool channels_last) const;

  static int64_t alignment_of(const void* data);
};

struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  DType dtype = DType::f32;
  ConvOperand x, w, y;  ///< (N, C, H, W), (K, C / groups, R, S), (N, K, P, Q), or the gradients of them
  Conv2dGeometry geometry;
  bool bias = false, relu = false;  ///< forward: part of the result; backward_weight, bias: its gradient is, too
  int64_t mask_alignment = 0;       ///< y counts only where a mask with its strides is positive; 0: there is none

  /// Of the images and of the result of a gather.
  const ConvOperand& in() const { return pass == ConvPass::forward ? x : y; }
  const ConvOperand& out() const { return pass == ConvPass::forward ? y : x; }
  bool is_strided() const { return geometry.stride[0] > 1 || geometry.stride[1] > 1; }
};

/// What users and the backend allow.
struct ConvSwitches {
  bool tf32 = false;  ///< of our kernels: cuda::matmul_allow_tf32()
  /// What cuDNN may run: nothing (the backend "cuda"), convolutions, or also what needs an engine with bias and ReLU
  /// and gradients of images as convolutions with flipped and transposed filters.
  enum class Library : uint8_t { none, plain, full } library = Library::none;
  bool library_tf32 = true, small_convolutions = false;  ///< core/cudnn.h
  size_t workspace_limit = size_t{256} << 20;            ///< core/cudnn.h
};

/// What a block computes: rows (channels of the result; stencil: of a thread) times columns (pixels of it, or C R S of
/// weights).
struct ConvTile {
  int rows = 0, columns = 0;
  friend bool operator==(const ConvTile&, const ConvTile&) = default;
};

/// ConvAlgorithm::fma: results stride apart read the same taps, and are a convolution without a stride.
struct ConvPhase {
  /// Along an axis: results at, at + stride, …, `size` of them; taps first + t period for t < count. Result i reads
  /// i + origin + t step.
  struct Axis {
    int at, size, first, period, count, origin, step;
  };
  Axis h, w;
  uint32_t split_k, per_split;
};

/// A decision. Fields that an algorithm does not use are zero.
struct ConvPlan {
  ConvAlgorithm algorithm = ConvAlgorithm::tiled;
  MathMode math_mode = MathMode::fma;
  ConvTile tile;
  uint32_t split_k = 1;        ///< parts of each sum, added in order
  uint32_t per_split = 0;      ///< steps of the depth, or pixels, in each
  size_t workspace_bytes = 0;  ///< all scratch memory; `library`: its limit
  size_t partial_offset = 0;   ///< where in it the parts begin, behind packed weights
  size_t shared_bytes = 0;     ///< stencil, thin, sliding: dynamic shared memory of a block
  uint32_t blocks = 0;         ///< thin, forward: that share the tiles
  uint32_t threads = 0;        ///< stencil: of a block
  int k_steps = 0;             ///< thin, forward: of 16 taps
  int shape = 0;               ///< sliding: in kSlidingSizes
  bool vectorized = false;     ///< implicit: 16 bytes of channels at a time (dw: neighbouring threads, channels)
  uint32_t sharers = 1;        ///< dw by `direct`: warps that share pixels; each leaves parts of its own
  uint32_t reduce_lanes = 0;   ///< dw: threads that share the sum of a result's parts; 0: blocks that transpose
  StencilTiling stencil;
  ThinTiling thin;
  SlidingWalk sliding;
  std::vector<ConvPhase> phases;  ///< fma: one, without a stride
  bool channels_last = false;     ///< library: the layout of all operands
  bool fused = false;             ///< library: with bias and ReLU
  bool flipped = false;           ///< library: runs flip_transpose(problem)

  /// For observers: "stencil", "implicit_tf32", …
  const char* name() const;
};

/// What select() decides, without the rest of the plan, which takes microseconds.
struct ConvChoice {
  ConvAlgorithm algorithm = ConvAlgorithm::tiled;
  bool takes_mask = false;  ///< a mask, if there is one, is applied on the way
};
ConvChoice choose(const ConvProblem& problem, const DeviceProperties& device, const ConvSwitches& switches);

/// How to compute the result of `problem`.
ConvPlan select(const ConvProblem& problem, const DeviceProperties& device, const ConvSwitches& switches);

/// The gradient of images without stride as the forward convolution of dy with flipped and transposed filters, which
/// are dense.
ConvProblem flip_transpose(const ConvProblem& problem);

}  // namespace gradus::cuda_detail
