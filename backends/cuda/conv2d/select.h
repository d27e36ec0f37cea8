// Decides how the backends "cuda" and "cudnn" compute a convolution: algorithm, tile, math mode, split-K and workspace.
// Host code without CUDA, so that decisions can be tested, and memory planned, on machines without a GPU.
#pragma once

#include <vector>

#include <gradus/backends/cuda/device/divisor.h>
#include <gradus/backends/cuda/device/math_mode.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// The result of a convolution: y (fprop), dx (dgrad) or dw (wgrad). fprop and dgrad are the same kind of implicit
/// GEMM, which computes `out` from `in`: y from x, and dx from dy.
enum class ConvPass : uint8_t { forward, backward_data, backward_weight };

/// The kernels, and cuDNN. K, C, R, S are sizes per group.
enum class ConvAlgorithm : uint8_t {
  wgmma,                  ///< wgmma_{fprop,wgrad}.cu: 3x3, half types (fprop: also TF32), NHWC, tensor cores of Hopper
  direct,                 ///< direct{,_wgrad}.cu: 3x3 and 5x5 with few channels, on the FMA units
  few_channel_mma,        ///< few_channel_mma_{fprop,wgrad}.cu: C < 8, half types (fprop: also TF32), tensor cores
  implicit_gemm_async,    ///< implicit_gemm{,_wgrad}.cu: float32 in NCHW on the FMA units, loaded by cp.async
  implicit_gemm,          ///< implicit_gemm{,_wgrad}.cu: any math mode, loaded through registers
  implicit_gemm_generic,  ///< implicit_gemm_generic.cu: any type, sizes and strides, on the FMA units
  library,                ///< cuDNN
  wgmma_im2col,           ///< wgmma_im2col.cu: any filter size, half types, NHWC, tensor cores of Hopper
};

/// Shape, strides and alignment of an operand.
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
  /// Returns true if the elements are dense in NHWC (channels_last) or NCHW order. Axes of size 1 may have any stride.
  bool is_dense(bool channels_last) const;

  static int64_t alignment_of(const void* data);
};

struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  DType dtype = DType::f32;
  ConvOperand x, w, y;  ///< (N, C, H, W), (K, C / groups, R, S), (N, K, P, Q), or their gradients
  Conv2dGeometry geometry;
  bool bias = false, relu = false;  ///< forward: part of the result; backward_weight: `bias` asks for its gradient, too
  int64_t mask_alignment = 0;       ///< of a mask with the strides of dy, to keep dy where it is > 0; 0: no mask

  /// The image operand that is read at the taps (`in`), and the one whose positions read it (`out`). backward_weight
  /// has the operands of forward.
  const ConvOperand& in() const { return pass == ConvPass::backward_data ? y : x; }
  const ConvOperand& out() const { return pass == ConvPass::backward_data ? x : y; }
  bool is_strided() const { return geometry.stride[0] > 1 || geometry.stride[1] > 1; }
};

/// What the user and the backend allow.
struct ConvSwitches {
  bool tf32 = false;  ///< our kernels may use TF32: cuda::matmul_allow_tf32()
  /// What cuDNN may run: nothing (the backend "cuda"), plain convolutions, or in addition engines with bias and ReLU,
  /// and dgrad as a convolution with flipped and transposed filters.
  enum class Library : uint8_t { none, plain, full } library = Library::none;
  bool library_tf32 = true, small_convolutions = false;  ///< core/runtime/cudnn.h
  size_t workspace_limit = size_t{256} << 20;            ///< core/runtime/cudnn.h
};

/// The tile that a block computes. Rows are channels of the result (direct: those of one thread), columns its pixels
/// (wgrad: C R S).
struct ConvTile {
  int rows = 0, columns = 0;
  friend bool operator==(const ConvTile&, const ConvTile&) = default;
};

// How the blocks of an algorithm share the work: arguments of the kernels.

/// ConvAlgorithm::direct, fprop and dgrad. A tile is `height` lines of `strips` strips of kStrip neighbouring outputs.
struct DirectTiling {
  uint32_t image_count = 0;
  uint32_t row_tiles = 0;          // groups of rows; a thread computes one group for one strip
  uint32_t weight_pitch = 0;       // floats from the weights of one tap to the next
  Divisor strips, height, images;  // strips and lines of a tile; images whose tiles a block computes
  Divisor columns, bands;          // tiles across and down an image
  Divisor quads, lines, channels;  // input in shared memory: quads of a line, lines of a channel, channels at a time
  bool whole_strips = false;       // strips of the output are whole, aligned and dense
};

/// ConvAlgorithm::few_channel_mma. x is read in lines of contiguous memory: its rows if channels are innermost,
/// otherwise the rows of each channel. In shared memory each line is surrounded by zeros for padding. Sizes, steps and
/// positions in shared memory are in bytes.
struct FewChannelTiling {
  Divisor tiles;                                       // of an image
  uint32_t tile_count = 0, tile_rows = 0;              // tiles of all images; rows of y in a tile
  Divisor planes;                                      // lines of a row of x
  Divisor copies;                                      // copies of a line …
  uint32_t copy_bytes = 0;                             // … and the bytes of each: 16, 8, 4 or 2
  uint32_t lines = 0, pitch = 0, front = 0;            // lines of a tile; step between lines; zeros before a line
  uint32_t origin = 0, row_step = 0, column_step = 0;  // taps of a tile's first pixel; steps to the next row and column
  uint32_t zeros = 0, size = 0;                        // taps of pixels beyond the tile; size of one of two buffers
  uint32_t tap_channel = 0, tap_row = 0, tap_column = 0;  // steps from a tap to the next
};

/// ConvAlgorithm::direct, wgrad. A tile is a band of rows of dy of one image, or several whole images.
struct DirectWgradTiling {
  uint32_t images = 0, tile_images = 0, tiles = 0;  // images of the batch and of a tile; tiles of the batch
  Divisor bands;                                    // bands of an image …
  Divisor band;                                     // … and rows of dy in a band
  Divisor quads;                                    // groups of four positions in a row of dy
  Divisor lines;                                    // lines of x that a band reads, for one channel of an image
  uint32_t steps = 0, advance[3] = {};  // steps of a tile; images, rows and quads from a thread's step to its next
  uint32_t channel_tiles = 0;           // blocks that share the channels
  bool interleaved = false;             // channels of x are innermost, and a block reads all of them
  uint32_t line = 0, line_bits = 0;     // elements of a line in memory; 2^line_bits threads copy a line
  int64_t line_step = 0;                // stride of the elements of a line
  uint32_t pitch = 0, size = 0;         // floats of a line and of one of two buffers in shared memory

  struct Tile {
    uint32_t image, row;
  };
  /// The first image and row of a tile. Beyond the last tile, the image is `images`, which does not exist.
  GRADUS_HOST_DEVICE Tile tile_at(uint32_t index) const {
    if (index >= tiles) return {images, 0};
    const uint32_t image = bands.split(index);
    return {image * tile_images, index * band.divisor};
  }
};

/// ConvAlgorithm::wgmma: tiles of neighbouring pixels of an image, and the ring of slots that TMA loads them into. In
/// shared memory every row is followed by a pixel of zeros; `pitch` counts the pixels of a row with that pixel.
struct WgmmaTiling {
  int rows = 0, pitch = 0, step = 0;          // rows that contain a tile; pixels from a tile to the next
  int height = 0, width = 0;                  // of an image
  int tiles = 0;                              // of all images
  Divisor image, pitches;                     // tiles of an image; pixels of a row (`pitch`)
  int line_bytes = 0, chunks = 1, slots = 0;  // bytes of channels in a chunk (64 or 128); chunks of a pixel
  int warpgroups = 0;                         // fprop, dgrad: warpgroups that multiply
  uint32_t load_bytes = 0, slot_bytes = 0, dy_offset = 0;  // bytes loaded into a slot; wgrad: where dy begins in a slot

  struct Tile {
    int image, row, pixel;  // the first row, and the first pixel in that row
  };
  GRADUS_HOST_DEVICE Tile tile_at(int index) const {
    uint32_t pixel = static_cast<uint32_t>(index);
    const uint32_t n = image.split(pixel);
    pixel *= step;
    const uint32_t row = pitches.split(pixel);
    return {static_cast<int>(n), static_cast<int>(row), static_cast<int>(pixel)};
  }
};

/// A convolution or, for dgrad under a stride, the results that are a stride apart: all of them read the same taps, so
/// that they are a convolution without a stride.
struct ConvPhase {
  /// Along an axis, a phase has `size` results at, at + stride, …, and the taps first + t period for t < count. Its
  /// result i reads the inputs i + origin + t step (forward: i stride + origin + t step).
  struct Axis {
    int at, size, first, period, count, origin, step;
  };
  Axis h, w;
  uint32_t split_k = 1;    ///< parts of each sum, which are added in order
  uint32_t per_split = 0;  ///< steps of the depth (wgrad: pixels) in a part
};

/// ConvAlgorithm::wgmma_im2col: the tiles of the product, and how positions and taps become coordinates of TMA. A tile
/// has 128 rows (positions of a phase; wgrad: filters); a step of the depth is 64 channels of a tap (wgrad: 64
/// positions). Pairs have the order (h, w).
struct Im2colTiling {
  ConvPhase::Axis h[2], w[2];                 // phases along each axis; origins are relative to `lower`
  int phases_w = 1;                           // phases along w
  int lower[2] = {}, stride[2] = {};          // position (i, j) reads from pixel lower + (i, j) stride on …
  int out_stride[2] = {};                     // … and is pixel at + (i, j) out_stride of the result
  Divisor height, width;                      // positions of an image
  int positions = 0, chunks = 0, taps_w = 0;  // positions of all images; chunks of 64 channels of a tap; taps of a row
  int slots = 0;
  uint32_t row_tiles = 0, column_tiles = 0, z = 0, cluster = 1;  // z: phases, wgrad: parts; cluster: splits the depth
};

/// The decision of select(). Fields that an algorithm does not use are zero.
struct ConvPlan {
  ConvAlgorithm algorithm = ConvAlgorithm::implicit_gemm_generic;
  MathMode math_mode = MathMode::fma;
  ConvTile tile;
  uint32_t split_k = 1;  ///< the largest split_k of the phases
  std::vector<ConvPhase> phases;
  size_t workspace_bytes = 0;  ///< all scratch memory (library: its upper limit)
  size_t partial_offset = 0;   ///< where the parts of split-K begin in the workspace, after packed weights
  size_t shared_bytes = 0;     ///< dynamic shared memory of a block; 0 for the implicit GEMMs, which know it themselves
  uint32_t blocks = 0;         ///< fprop and dgrad of direct, few_channel_mma and wgmma: blocks along x of the grid
  uint32_t threads = 0;        ///< fprop and dgrad of direct: threads of a block
  int shape = 0;               ///< wgrad of direct: index in kDirectWgradSizes
  bool vectorized = false;    ///< implicit_gemm: 16-byte loads of channels (wgrad: adjacent threads, adjacent channels)
  uint32_t reduce_lanes = 0;  ///< wgrad: threads that share the sum of a result's parts
  DirectTiling direct;
  FewChannelTiling few_channel;
  DirectWgradTiling direct_wgrad;
  WgmmaTiling wgmma;
  bool channels_last = false;  ///< library: the layout of all operands
  bool fused = false;          ///< library: an engine with bias and ReLU
  bool flipped = false;        ///< library: computes flip_transpose(problem)
  Im2colTiling im2col;

  /// The implementation name that observers see: "direct", "implicit_gemm_tf32", …
  const char* name() const;
  const char* reason() const;  ///< why select() chose the algorithm
};

/// The algorithm that select() chooses, without the rest of the plan, which takes microseconds to compute.
struct ConvChoice {
  ConvAlgorithm algorithm = ConvAlgorithm::implicit_gemm_generic;
  bool takes_mask = false;  ///< the kernel can apply the problem's mask; otherwise dy has to be masked before
};
ConvChoice choose(const ConvProblem& problem, const DeviceProperties& device, const ConvSwitches& switches);

/// Chooses the algorithm for `problem` and plans it completely.
ConvPlan select(const ConvProblem& problem, const DeviceProperties& device, const ConvSwitches& switches);

/// Rewrites dgrad without a stride as the forward convolution of dy with dense, flipped and transposed filters.
ConvProblem flip_transpose(const ConvProblem& problem);

}  // namespace gradus::cuda_detail
