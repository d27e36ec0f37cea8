// Sizes that select() and the kernels share, and the functions of plan_gather.cpp, plan_wgrad.cpp and plan_wgmma.cpp
// that select.cpp calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cuda_detail {

GRADUS_HOST_DEVICE constexpr uint32_t u32(int64_t size) { return static_cast<uint32_t>(size); }

/// Offsets below this limit fit in 32 bits even after the offset of any tap is added.
inline constexpr int64_t kShortSpan = int64_t{1} << 29;

/// direct: the most rows (channels of the result in a group).
inline constexpr uint32_t kMaxDirectRows = 16;

/// direct: neighbouring outputs that a thread computes in each of its rows; quads of the input and weights that a
/// thread loads before it stores them; shared memory that every device has, without the space for the bias; the
/// possible numbers of rows of a thread, and the floats that their weights for one tap take.
inline constexpr uint32_t kStrip = 4;
inline constexpr int kQuadsAtOnce = 2, kWeightsAtOnce = 4;
inline constexpr size_t kDirectBytes = (size_t{48} << 10) - kMaxDirectRows * sizeof(float);
inline constexpr int kDirectRowChoices[] = {8, 6, 4, 2, 1};
constexpr uint32_t direct_weight_step(int rows) { return rows >= 4 ? (rows + 3) / 4 * 4 : rows; }

/// few_channel_mma: warps of a block; filters that the four lanes of a pixel store at once; resident blocks of a
/// multiprocessor.
inline constexpr int kFewChannelWarps = 4, kFewChannelFilters = 32, kFewChannelBlocks = 4;
constexpr int few_channel_wgrad_blocks(int rows, int columns) { return rows == 32 && columns <= 32 ? 5 : 3; }

/// implicit_gemm, implicit_gemm_async: the tile of a block of y x x warps, its number of warps, and how many blocks of
/// that many warps a multiprocessor has registers for.
constexpr ConvTile warps_tile(int y, int x) { return {y * kWarpRows, x * kWarpColumns}; }
constexpr int warps_of(const ConvTile& tile) { return tile.rows / kWarpRows * (tile.columns / kWarpColumns); }
constexpr int implicit_blocks(MathMode mode, int warps) { return (mode == MathMode::fma ? 12 : 8) / warps; }

/// implicit_gemm_generic: the tile of a block for a result of `rows` rows.
constexpr ConvTile generic_tile(int64_t rows) { return {rows <= 16 ? 16 : rows <= 32 ? 32 : 64, 128}; }

/// direct, wgrad: the sizes of one of its kernels. dy is copied `vec` elements at a time, along filters or along a row.
struct DirectWgradSizes {
  int side, channels, filters;  // R = S; channels and filters of a thread
  int groups;                   // groups of filters in a block
  bool along_filters;
  int vec, threads;
  int blocks, ahead;  // resident blocks of a multiprocessor; steps that copies run ahead

  /// The widths of dy are multiples of this. With 2, a row may end in the middle of a quad of four pixels.
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

/// wgmma: pixels that a warpgroup multiplies at a time; the most slots of a ring; static shared memory of the kernels
/// for fprop and dgrad, and for wgrad.
inline constexpr int kWgmmaPixels = 128, kMaxWgmmaSlots = 8;
inline constexpr int64_t kFpropStaticBytes = 1 << 10, kWgradStaticBytes = 10 << 10;

/// wgmma_im2col: rows of a tile; positions, channels or filters of a box, whose lines have 128 bytes; the most blocks
/// of a cluster; bytes of a slot of the ring.
inline constexpr int kIm2colRows = 128, kIm2colBox = 64, kMaxIm2colCluster = 8;
template <int kColumns>
inline constexpr int kIm2colSlotBytes = (kIm2colRows + kColumns) * 2 * kIm2colBox;

// Which problems an algorithm can compute, and its plan.

/// How few_channel_mma divides the output into tiles; empty if it cannot compute the problem.
std::optional<FewChannelTiling> few_channel_tiling(const ConvProblem& problem, std::optional<MathMode> mode);
/// Returns true if direct_wgrad can compute the problem: few channels, 3x3 or 5x5, no stride or dilation, no float64,
/// and dy in whole aligned vectors along its rows or, where filters are innermost, along these.
bool can_direct_wgrad(const ConvProblem& problem, const DeviceProperties& device);
/// Returns true if the wgmma kernels can compute the problem: dense half types with at most 128 channels, which are
/// innermost, 3x3, padding 1, no stride, on Hopper. If TF32 is allowed (`tf32`), also fprop of float32.
bool can_wgmma(const ConvProblem& problem, const DeviceProperties& device, bool tf32 = false);
/// Returns true if wgmma_im2col can compute the problem: dense half types with channels innermost, filters up to 16x16,
/// strides up to 2, padding smaller than the filter, on Hopper. It does not compute dbias.
bool can_im2col(const ConvProblem& problem, const DeviceProperties& device);
/// Returns true if the blocks of wgmma_im2col run in at most two waves, which are at least 80 % full.
bool fills_im2col(const ConvProblem& problem, const DeviceProperties& device);
/// The tile of implicit_gemm's wgrad for `rows` filters.
ConvTile implicit_wgrad_tile(int64_t rows);

/// Into how many parts to split sums of `steps` steps that `blocks` blocks compute, on a device that runs `resident`
/// blocks at a time: the number for which the last block is done after the fewest steps, where starting and finishing a
/// block counts as a few steps. Parts beyond max_waves waves would balance little more and take memory.
int64_t balanced_splits(int64_t blocks, int64_t steps, int64_t resident);

/// Plan the tile of plan.algorithm, split-K and the workspace. plan_wgmma returns false if too few slots fit.
void plan_gather(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan);
void plan_wgrad(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan);
bool plan_wgmma(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan);
void plan_im2col(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan);

}  // namespace gradus::cuda_detail
