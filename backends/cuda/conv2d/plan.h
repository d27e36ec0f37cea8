// The plan of a convolution: how the blocks of the chosen algorithm share the work, and how much memory they need. A
// plan is an argument of the launch, and a tiling an argument of the kernel. Host code without CUDA.
#pragma once

#include <variant>
#include <vector>

#include <gradus/backends/cuda/conv2d/problem.h>
#include <gradus/backends/cuda/device/divisor.h>

namespace gradus::cuda_detail {

/// The tile of the result that a block computes. A row is a channel of the result and a column a pixel; for wgrad, a
/// row is a filter and a column one of its C R S weights. For direct fprop and dgrad, `rows` are those of one thread.
struct ConvTile {
  int rows = 0, columns = 0;
  friend bool operator==(const ConvTile&, const ConvTile&) = default;
};

/// A part of a convolution. Only dgrad under a stride has several phases: results that are a stride apart read the same
/// taps, so they form a phase, which is a convolution without a stride.
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

// ---- direct ----

/// direct: the maximum number of rows (channels of the result in a group).
inline constexpr uint32_t kMaxDirectRows = 16;

/// direct: the number of neighbouring outputs that a thread computes in each of its rows.
inline constexpr uint32_t kStrip = 4;
/// direct: the number of quads (four neighbouring inputs) and the number of weights that a thread loads before storing
/// them in shared memory.
inline constexpr int kQuadsAtOnce = 2, kWeightsAtOnce = 4;
/// direct: bytes of shared memory for input and weights: the 48 KiB that every device has, less the space for the bias.
inline constexpr size_t kDirectBytes = (size_t{48} << 10) - kMaxDirectRows * sizeof(float);
/// direct: the numbers of rows that a thread may compute.
inline constexpr int kDirectRowChoices[] = {8, 6, 4, 2, 1};
/// direct: the number of floats that the weights of one tap for `rows` rows occupy in shared memory. For 4 rows or more
/// it is a multiple of 4.
constexpr uint32_t direct_weight_step(int rows) { return rows >= 4 ? (rows + 3) / 4 * 4 : rows; }

/// direct, fprop and dgrad. A tile is `height` lines of `strips` strips of kStrip neighbouring outputs.
struct DirectTiling {
  uint32_t image_count = 0;
  uint32_t row_tiles = 0;            // number of groups of rows; a thread computes one group for one strip
  uint32_t weight_pitch = 0;         // distance in floats between the weights of two taps in shared memory
  Divisor strips, height, images;    // strips of a line; lines of a tile; images whose tiles a block computes
  Divisor columns, bands;            // number of tiles across an image, and down an image
  Divisor quads, lines, channels;    // of the input in shared memory: quads per line, lines per channel, channels
  uint32_t blocks = 0, threads = 0;  // blocks along x of the grid; threads of a block
  bool whole_strips = false;         // true if the output consists of whole, aligned and contiguous strips
};

/// direct, wgrad: the sizes of one of its kernels. dy is copied `vec` elements at a time, along filters or along a row.
struct DirectWgradSizes {
  int side, channels, filters;  // size of the filters, R = S; number of channels and of filters of a thread
  int groups;                   // groups of filters in a block
  bool along_filters;           // true if a vector of dy consists of filters, false if of pixels of a row
  int vec, threads;             // elements of a vector of dy; threads of a block
  int blocks, ahead;            // resident blocks of a multiprocessor; steps for which dy is copied in advance

  /// The width of dy must be a multiple of this. If it is 2, a row may end in the middle of a quad of four pixels.
  constexpr int row_unit() const { return side == 5 ? 2 : 4; }
  /// Groups of filters in a warp: all if neighbouring lanes take neighbouring filters, otherwise one.
  constexpr int lane_groups() const { return along_filters ? groups : 1; }
  /// Dynamic shared memory of a block with two buffers of `buffer` floats, and elements of `element` bytes.
  constexpr size_t shared_bytes(size_t element, uint32_t buffer, bool masked) const {
    const size_t copies = element * 4 * filters * (ahead + 1) * (masked ? 2 : 1) * threads;
    const size_t sharers = 32 / lane_groups(), sums = filters * (channels * side * side + 1);
    return std::max(2 * sizeof(float) * buffer + copies,
                    sizeof(float) * (threads / 32) * lane_groups() * round_up(sums, sharers));
  }
};
inline constexpr DirectWgradSizes kDirectWgradSizes[] = {
    {5, 1, 3, 2, false, 2, 192, 2, 2}, {5, 1, 4, 4, false, 2, 128, 3, 2}, {3, 1, 1, 1, false, 4, 256, 2, 1},
    {3, 1, 4, 2, false, 4, 256, 2, 1}, {3, 3, 4, 8, true, 4, 384, 1, 2},  {3, 3, 4, 8, false, 4, 256, 1, 2},
    {3, 1, 4, 8, true, 4, 256, 2, 1},  {3, 1, 4, 8, false, 4, 256, 2, 1}, {5, 1, 2, 4, true, 2, 128, 3, 2},
    {5, 1, 4, 4, true, 4, 128, 3, 2},
};

/// direct, wgrad. A tile is a band of rows of dy of one image, or several whole images.
struct DirectWgradTiling {
  int sizes = 0;                                    // index in kDirectWgradSizes
  uint32_t images = 0, tile_images = 0, tiles = 0;  // images of the batch and of a tile; tiles of the batch
  Divisor bands;                                    // number of bands of an image
  Divisor band;                                     // number of rows of dy in a band
  Divisor quads;                                    // number of quads (four neighbouring pixels) in a row of dy
  Divisor lines;                                    // number of rows of one channel of x that a band reads
  // steps: number of steps of a thread for a tile. advance: images, rows and quads from one of its steps to the next.
  uint32_t steps = 0, advance[3] = {};
  uint32_t channel_tiles = 0;        // number of blocks among which the channels are divided
  bool interleaved = false;          // true if the channels of x are innermost and a block reads every channel
  uint32_t line = 0, line_bits = 0;  // elements of a row of x in memory; 2^line_bits threads copy a row
  int64_t line_step = 0;             // stride of the elements of a row
  uint32_t pitch = 0, size = 0;      // floats from row to row of x in shared memory, and of each of its two buffers

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

// ---- few_channel_mma ----

/// few_channel_mma: the warps of a block, the filters that the four lanes of a pixel store at once, and the resident
/// blocks of a multiprocessor.
inline constexpr int kFewChannelWarps = 4, kFewChannelFilters = 32, kFewChannelBlocks = 4;
constexpr int few_channel_wgrad_blocks(int rows, int columns) { return rows == 32 && columns <= 32 ? 5 : 3; }

/// few_channel_mma. x is read in lines of contiguous memory. If channels are innermost, a line is a row of x, otherwise
/// a row of one channel of x. In shared memory each line is surrounded by zeros for padding. Sizes, steps and positions
/// in shared memory are in bytes.
struct FewChannelTiling {
  Divisor tiles;                             // number of tiles of an image
  uint32_t tile_count = 0, tile_rows = 0;    // number of tiles of all images; number of rows of y in a tile
  Divisor planes;                            // number of lines that make up a row of x
  Divisor copies;                            // number of copy instructions for a line
  uint32_t copy_bytes = 0;                   // bytes that a copy instruction moves: 16, 8, 4 or 2
  uint32_t lines = 0, pitch = 0, front = 0;  // lines of a tile; step from line to line; size of the zeros before a line
  // The position of the first tap of a tile's first pixel, and the steps from a pixel of y to the next row and column.
  uint32_t origin = 0, row_step = 0, column_step = 0;
  uint32_t zeros = 0, size = 0;  // position of the zeros that pixels beyond the tile read; size of each of two buffers
  uint32_t blocks = 0;           // fprop: blocks along x of the grid
  uint32_t tap_channel = 0, tap_row = 0, tap_column = 0;  // steps from a tap to the next channel, row and column
};

// ---- depthwise ----

/// depthwise: the number of neighbouring pixels of a row that a thread computes (wgrad: multiplies) at a time. In NCHW,
/// it processes the same number of rows at a time.
inline constexpr int kDepthwisePixels = 4;
/// depthwise: the number of buffers of a block in shared memory for wgrad in NCHW.
inline constexpr int kDepthwiseBuffers = 3;

/// depthwise. `in` is the image that is read at the taps, and `out` is the image whose pixels read it (wgrad: dy). In
/// NHWC, a block processes a slab of channels; in NCHW, it processes some planes, or a band of rows of one plane.
struct DepthwiseTiling {
  /// Pixel i of `out` reads the pixels i stride - padding + t dilation of `in`. For dgrad it reads the pixels p with
  /// p stride = i + padding - t dilation.
  struct Axis {
    int in = 0, out = 0, taps = 0, padding = 0, dilation = 1;
    Divisor stride = {};
  };
  Axis h = {}, w = {};
  uint32_t in_channels = 0, out_channels = 0, lines = 0, planes = 0;  // lines: rows of all images; planes: of `out`
  Divisor multiplier = {}, sums = {};           // filters of a channel; for dgrad the same number, otherwise 1
  Divisor height = {}, taps = {};               // rows of an image; taps of a filter
  int side = 0;                                 // width of filters with a specialised kernel; 0 for other filters
  int vec = 1;                                  // channels (NCHW: columns of `in`) that are loaded as a vector
  bool whole_strips = false;                    // NCHW: rows of `out` consist of vectors of kDepthwisePixels
  uint32_t blocks = 0, threads = 0, split = 0;  // split: lines (NCHW wgrad: bands of all images) of a block
  // NHWC: vectors of a slab, and slabs; strips of a tile, tiles across a row, and lines of a tile. wgrad: `groups` rows
  // of taps (taps if `side` is 0) of a block, `tap_blocks` blocks for all taps, `lanes` threads that share the strips.
  // NCHW wgrad: `lanes` items of a step.
  Divisor vectors = {}, slabs = {}, strips = {}, across = {}, groups = {}, tap_blocks = {}, lanes = {};
  uint32_t tile_lines = 0;
  int shift = 0;  // dgrad: the first strip begins this far before the row, where the stride divides i + padding
  // NCHW uses `strips` of a row, and: groups of rows of a band, bands of a plane, tiles of planes (wgrad: of filters),
  // planes of a tile, and the distance between its first and last row of `in` plus 1 (dgrad: with zeros between rows).
  Divisor row_groups = {}, bands = {}, tiles = {};
  uint32_t tile_planes = 0;
  int tile_rows = 0;
  uint32_t buffer = 0, buffer_of_x = 0;  // NCHW: 16-byte vectors of a tile (wgrad: of an item, and of its part for x)
};

// ---- implicit_gemm ----

/// implicit_gemm, implicit_gemm_async: the number of blocks of `warps` warps for which a multiprocessor has registers.
constexpr int implicit_blocks(MathMode mode, int warps) { return (mode == MathMode::fma ? 12 : 8) / warps; }

/// implicit_gemm.
struct ImplicitGemmTiling {
  bool vectorized = false;  ///< 16-byte loads of channels (wgrad: adjacent threads, adjacent channels)
};

// ---- wgmma, wgmma_im2col ----

/// wgmma: the pixels that a warpgroup multiplies at a time, the maximum number of slots of a ring, and the static
/// shared memory of the kernel for fprop and dgrad and of the kernel for wgrad.
inline constexpr int kWgmmaPixels = 128, kMaxWgmmaSlots = 8;
inline constexpr int64_t kFpropStaticBytes = 1 << 10, kWgradStaticBytes = 10 << 10;

/// wgmma: the tiles of neighbouring pixels of an image, and the ring of slots into which TMA loads them. In shared
/// memory every row is followed by a pixel of zeros, which `pitch` includes.
struct WgmmaTiling {
  // rows: maximum number of rows that a tile has pixels of. pitch: pixels of a row. step: pixels from tile to tile.
  int rows = 0, pitch = 0, step = 0;
  int height = 0, width = 0;  // of an image
  int tiles = 0;              // number of tiles of all images
  Divisor image, pitches;     // number of tiles of an image; `pitch` as a divisor
  // The channels of a pixel are divided into `chunks` of line_bytes (64 or 128) bytes. The ring has `slots` slots.
  int line_bytes = 0, chunks = 1, slots = 0;
  int warpgroups = 0;                                      // fprop, dgrad: number of warpgroups that multiply
  uint32_t blocks = 0;                                     // fprop, dgrad: blocks along x of the grid
  uint32_t load_bytes = 0, slot_bytes = 0, dy_offset = 0;  // bytes loaded into a slot; wgrad: where dy begins in a slot

  struct Tile {
    int image, row, pixel;  // the row in which the tile begins, and its first pixel in that row
  };
  GRADUS_HOST_DEVICE Tile tile_at(int index) const {
    uint32_t pixel = u32(index);
    const uint32_t n = image.split(pixel);
    pixel *= step;
    const uint32_t row = pitches.split(pixel);
    return {static_cast<int>(n), static_cast<int>(row), static_cast<int>(pixel)};
  }
};

/// wgmma_im2col: the rows of a tile; the positions, channels or filters of a box, whose lines have 128 bytes; the
/// maximum number of blocks of a cluster; the bytes of a slot of the ring.
inline constexpr int kIm2colRows = 128, kIm2colBox = 64, kMaxIm2colCluster = 8;
template <int kColumns>
inline constexpr int kIm2colSlotBytes = (kIm2colRows + kColumns) * 2 * kIm2colBox;

/// wgmma_im2col: the tiles of the product, and how positions and taps are converted to coordinates of TMA. A tile has
/// 128 rows, which are positions of a phase (wgrad: filters). A step of the depth consists of 64 channels of a tap
/// (wgrad: of 64 positions). Pairs have the order (h, w).
struct Im2colTiling {
  ConvPhase::Axis h[2] = {}, w[2] = {};       // phases along each axis; origins are relative to `lower`
  int phases_w = 1;                           // phases along w
  int lower[2] = {}, stride[2] = {};          // the window of position (i, j) begins at pixel lower + (i, j) stride
  int out_stride[2] = {};                     // position (i, j) is pixel at + (i, j) out_stride of the result
  Divisor height, width;                      // rows and columns of the positions of an image
  int positions = 0, chunks = 0, taps_w = 0;  // positions of all images; chunks of 64 channels of a tap; taps of a row
  int slots = 0;                              // number of slots of the ring
  uint32_t row_tiles = 0, column_tiles = 0, z = 0, cluster = 1;  // z: phases, wgrad: parts; cluster: splits the depth
};

// ---- cuDNN ----

/// The layout of all operands, and the maximum of scratch memory that an engine may use.
struct LibraryTiling {
  bool channels_last = false;
  size_t workspace_limit = 0;
};

/// The decision of ConvAlgorithm::plan.
struct ConvPlan {
  MathMode math_mode = MathMode::fma;
  ConvTile tile = {};
  std::vector<ConvPhase> phases = {};
  uint32_t split_k = 1;        ///< the largest split_k of the phases
  uint32_t reduce_lanes = 0;   ///< wgrad: number of threads that together add the parts of one result
  size_t workspace_bytes = 0;  ///< all scratch memory of our kernels
  size_t partial_offset = 0;   ///< where the parts of split-K begin in the workspace, after packed weights
  size_t shared_bytes = 0;     ///< dynamic shared memory of a block; 0 for implicit GEMMs, which compute it themselves
  /// What this algorithm needs to know besides `tile`; empty if it needs nothing else.
  std::variant<std::monostate, DirectTiling, DirectWgradTiling, FewChannelTiling, DepthwiseTiling, ImplicitGemmTiling,
               WgmmaTiling, Im2colTiling, LibraryTiling>
      tiling = {};
};

/// Returns the phases of a convolution: one, or for dgrad under a stride one for each position modulo the stride.
std::vector<ConvPhase> phases_of(const ConvProblem& problem);
/// Returns the plan of wgrad with tiles of this size and split-K. Each of `split_k` parts has a multiple of `unit`
/// pixels.
ConvPlan wgrad_plan(const ConvProblem& problem, const ConvTile& tile, int64_t split_k, int64_t unit = 1);

}  // namespace gradus::cuda_detail
