// The one place that decides how the backends "cuda" and "cudnn" convolve: algorithm, tile, math mode, split-K and
// workspace. Host code without CUDA, so that decisions are tested and planned where there is no GPU.
#pragma once

#include <vector>

#include <gradus/backends/cuda/device/divisor.h>
#include <gradus/backends/cuda/device/math_mode.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// Which of y, dx and dw is the result. Forward and backward_data are both a gather, "out from in": y from x, dx from
/// dy.
enum class ConvPass : uint8_t { forward, backward_data, backward_weight };

/// The kernels: four families, and cuDNN. "wgrad" computes dw. K, C, R, S are sizes per group.
enum class ConvAlgorithm : uint8_t {
  wgmma,                  ///< wgmma_{gather,wgrad}.cu: 3x3 of half types on tensor cores of Hopper, channels innermost
  direct,                 ///< few channels, FMA: direct.cu, K <= 16; direct_wgrad.cu, C <= 6; 3x3 and 5x5
  few_channel_mma,        ///< few_channel_mma_{fprop,wgrad}.cu: C < 8 by half types (y: TF32, too) on tensor cores
  implicit_gemm_async,    ///< implicit_gemm{,_wgrad}.cu: float32 on the FMA units, cp.async loads of NCHW
  implicit_gemm,          ///< implicit_gemm{,_wgrad}.cu: any math mode, loads of vectors or of elements
  implicit_gemm_generic,  ///< implicit_gemm_generic.cu: on the FMA units, takes everything
  library,                ///< cuDNN
  wgmma_im2col,           ///< wgmma_im2col.cu: the same for any filter size, stride and number of channels
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

  /// What is read under the taps, and what their products are added to; backward_weight has those of forward.
  const ConvOperand& in() const { return pass == ConvPass::backward_data ? y : x; }
  const ConvOperand& out() const { return pass == ConvPass::backward_data ? x : y; }
  bool is_strided() const { return geometry.stride[0] > 1 || geometry.stride[1] > 1; }
};

/// What users and the backend allow.
struct ConvSwitches {
  bool tf32 = false;  ///< of our kernels: cuda::matmul_allow_tf32()
  /// What cuDNN may run: nothing (the backend "cuda"), convolutions, or also what needs an engine with bias and ReLU
  /// and gradients of images as convolutions with flipped and transposed filters.
  enum class Library : uint8_t { none, plain, full } library = Library::none;
  bool library_tf32 = true, small_convolutions = false;  ///< core/runtime/cudnn.h
  size_t workspace_limit = size_t{256} << 20;            ///< core/runtime/cudnn.h
};

/// What a block computes: rows (channels of the result; direct: of a thread) times columns (pixels of it, or C R S of
/// weights).
struct ConvTile {
  int rows = 0, columns = 0;
  friend bool operator==(const ConvTile&, const ConvTile&) = default;
};

// Arguments of the kernels direct, few_channel_mma and direct_wgrad: how their blocks share the work.

/// ConvAlgorithm::direct. A tile is `height` lines of `strips` strips, kStrip neighbouring outputs each.
struct DirectTiling {
  uint32_t image_count = 0;
  uint32_t row_tiles = 0;          // of a thread's rows; one thread for a strip of each
  uint32_t weight_pitch = 0;       // floats between the weights of one tap and the next
  Divisor strips, height, images;  // of a tile, and images whose tiles a block makes
  Divisor columns, bands;          // of tiles in an image
  Divisor quads, lines, channels;  // staged: four inputs at a time, quads a line, lines a channel; at a time
  bool whole_strips = false;       // of the output: strips are whole, aligned and dense
};

/// ConvAlgorithm::few_channel_mma: how blocks share the output. x is read in lines of contiguous memory: its
/// rows where channels are innermost, else the rows of each channel. In shared memory zeros are before and behind each
/// line, for padding. Sizes and steps there are in bytes.
struct FewChannelTiling {
  Divisor tiles;                                       // of an image
  uint32_t tile_count = 0, tile_rows = 0;              // of all images; rows of y in a tile
  Divisor planes;                                      // lines of a row
  Divisor copies;                                      // that a line is copied in …
  uint32_t copy_bytes = 0;                             // … of so many bytes: 16, 8, 4 or 2
  uint32_t lines = 0, pitch = 0, front = 0;            // lines of a tile, from line to line, zeros before a line
  uint32_t origin = 0, row_step = 0, column_step = 0;  // where the taps of pixel (0, 0) begin, to the next row, column
  uint32_t zeros = 0, size = 0;                        // where the taps of no pixel begin; of one of two buffers
  uint32_t tap_channel = 0, tap_row = 0, tap_column = 0;
};

/// ConvAlgorithm::direct: how blocks share dy. A tile is some rows of one image, or some whole images.
struct DirectWgradTiling {
  uint32_t images = 0, tile_images = 0, tiles = 0;  // of a tile; tiles of all images
  Divisor bands;                                    // of an image …
  Divisor band;                                     // … and rows of dy in one
  Divisor quads;                                    // four positions each, of a row
  Divisor lines;                                    // of x that the taps of a band read, of an image's channel
  uint32_t steps = 0, advance[3] = {};  // of a tile; images, rows and quads from a thread's step to its next
  uint32_t channel_tiles = 0;           // blocks that share the channels
  bool interleaved = false;             // channels of x are innermost, and a block takes all of them
  uint32_t line = 0, line_bits = 0;     // elements of a line in memory; 2^line_bits threads copy one
  int64_t line_step = 0;                // from one of its elements to the next
  uint32_t pitch = 0, size = 0;         // of a line and of one of two buffers in shared memory, in floats

  struct Tile {
    uint32_t image, row;
  };
  /// No image for a tile beyond the last.
  GRADUS_HOST_DEVICE Tile tile_at(uint32_t index) const {
    if (index >= tiles) return {images, 0};
    const uint32_t image = bands.split(index);
    return {image * tile_images, index * band.divisor};
  }
};

/// ConvAlgorithm::wgmma: tiles of neighbouring pixels of an image, and the ring of slots that TMA loads them into. Rows
/// have a pixel of zeros behind them, `pitch` pixels together.
struct WgmmaTiling {
  int rows = 0, pitch = 0, step = 0;  // that hold a tile; pixels from a tile to the next
  int height = 0, width = 0;          // of an image
  int tiles = 0;
  Divisor image, pitches;                                  // tiles of an image; pixels of a row
  int line_bytes = 0, chunks = 1, slots = 0;               // 64 or 128 bytes of a pixel's channels; of all of them
  int warpgroups = 0;                                      // of a gather, that multiply
  uint32_t load_bytes = 0, slot_bytes = 0, dy_offset = 0;  // that a slot waits for; dw: of dy in a slot

  struct Tile {
    int image, row, pixel;  // its first row, and its first pixel there
  };
  GRADUS_HOST_DEVICE Tile tile_at(int index) const {
    uint32_t pixel = static_cast<uint32_t>(index);
    const uint32_t n = image.split(pixel);
    pixel *= step;
    const uint32_t row = pitches.split(pixel);
    return {static_cast<int>(n), static_cast<int>(row), static_cast<int>(pixel)};
  }
};

/// A convolution, or, of the gradient of images under a stride, the results that are the stride apart: they read the
/// same taps, and are a convolution without a stride.
struct ConvPhase {
  /// Along an axis: results at, at + stride, …, `size` of them; taps first + t period for t < count. Result i reads
  /// i + origin + t step; forward: i stride + origin + t step.
  struct Axis {
    int at, size, first, period, count, origin, step;
  };
  Axis h, w;
  uint32_t split_k = 1;    ///< parts of each sum, added in order
  uint32_t per_split = 0;  ///< steps of the depth, or pixels, in each
};

/// ConvAlgorithm::wgmma_im2col: what a tile of the product is, and how positions and taps become coordinates of TMA's.
/// A tile has 128 rows (positions of a phase; dw: filters), a step of the depth 64 channels of a tap (dw: positions).
/// Of pairs the first is of h.
struct Im2colTiling {
  ConvPhase::Axis h[2], w[2];                 // of phases; origins are distances from `lower`
  int phases_w = 1;                           // of the phases, h first
  int lower[2] = {}, stride[2] = {};          // position (i, j) reads pixel lower + (i, j) stride and right of it …
  int out_stride[2] = {};                     // … and is pixel at + (i, j) out_stride of the result
  Divisor height, width;                      // of the positions of an image
  int positions = 0, chunks = 0, taps_w = 0;  // of all images; 64 channels each of a tap; taps of a row
  int slots = 0;
  uint32_t row_tiles = 0, column_tiles = 0, z = 0, cluster = 1;  // z: phases, dw: parts; blocks that split the depth
};

/// A decision. Fields that an algorithm does not use are zero.
struct ConvPlan {
  ConvAlgorithm algorithm = ConvAlgorithm::implicit_gemm_generic;
  MathMode math_mode = MathMode::fma;
  ConvTile tile;
  uint32_t split_k = 1;  ///< the most of any phase
  std::vector<ConvPhase> phases;
  size_t workspace_bytes = 0;  ///< all scratch memory; `library`: its limit
  size_t partial_offset = 0;   ///< where in it the parts begin, behind packed weights
  size_t shared_bytes = 0;     ///< direct, few_channel_mma, wgmma: dynamic shared memory of a block
  uint32_t blocks = 0;         ///< few_channel_mma, wgmma, gather: that share the tiles
  uint32_t threads = 0;        ///< direct: of a block
  int shape = 0;               ///< direct, dw: in kDirectWgradSizes
  bool vectorized = false;     ///< implicit_gemm: 16 bytes of channels at a time (dw: neighbouring threads, channels)
  uint32_t reduce_lanes = 0;   ///< dw: threads that share the sum of a result's parts
  DirectTiling direct;
  FewChannelTiling few_channel;
  DirectWgradTiling direct_wgrad;
  WgmmaTiling wgmma;
  bool channels_last = false;  ///< library: the layout of all operands
  bool fused = false;          ///< library: with bias and ReLU
  bool flipped = false;        ///< library: runs flip_transpose(problem)
  Im2colTiling im2col;

  /// For observers: "direct", "implicit_gemm_tf32", …
  const char* name() const;
  const char* reason() const;  ///< which clause of select() led to the algorithm
};

/// What select() decides, without the rest of the plan, which takes microseconds.
struct ConvChoice {
  ConvAlgorithm algorithm = ConvAlgorithm::implicit_gemm_generic;
  bool takes_mask = false;  ///< the problem's mask can be applied on the way, else before
};
ConvChoice choose(const ConvProblem& problem, const DeviceProperties& device, const ConvSwitches& switches);

/// How to compute the result of `problem`.
ConvPlan select(const ConvProblem& problem, const DeviceProperties& device, const ConvSwitches& switches);

/// The gradient of images without stride as the forward convolution of dy with flipped and transposed filters, which
/// are dense.
ConvProblem flip_transpose(const ConvProblem& problem);

}  // namespace gradus::cuda_detail
