// Sizes that select() and the kernels share, and what select.cpp asks of plan_gather.cpp and plan_wgrad.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cuda_detail {

GRADUS_HOST_DEVICE constexpr uint32_t u32(int64_t size) { return static_cast<uint32_t>(size); }

/// Offsets below it, with all taps added, fit in 32 bits.
inline constexpr int64_t kShortSpan = int64_t{1} << 29;

/// direct: rows, at most.
inline constexpr uint32_t kMaxDirectRows = 16;

/// direct: outputs of a thread for a row, along a line; loads of a thread that are under way together; shared memory
/// that every device has, less the bias; the choices of a thread's rows, and floats of their weights for one tap.
inline constexpr uint32_t kStrip = 4;
inline constexpr int kQuadsAtOnce = 2, kWeightsAtOnce = 4;
inline constexpr size_t kDirectBytes = (size_t{48} << 10) - kMaxDirectRows * sizeof(float);
inline constexpr int kDirectRowChoices[] = {8, 6, 4, 2, 1};
constexpr uint32_t direct_weight_step(int rows) { return rows >= 4 ? (rows + 3) / 4 * 4 : rows; }

/// few_channel_mma: filters that the four lanes of a pixel write at once; blocks of a multiprocessor.
inline constexpr int kFewChannelWarps = 4, kFewChannelFilters = 32, kFewChannelBlocks = 4;
constexpr int few_channel_wgrad_blocks(int rows, int columns) { return rows == 32 && columns <= 32 ? 5 : 3; }

/// implicit_gemm, implicit_gemm_async: a block of y times x warps, and how many blocks of so many warps a
/// multiprocessor has registers for.
constexpr ConvTile warps_tile(int y, int x) { return {y * kWarpRows, x * kWarpColumns}; }
constexpr int warps_of(const ConvTile& tile) { return tile.rows / kWarpRows * (tile.columns / kWarpColumns); }
constexpr int implicit_blocks(MathMode mode, int warps) { return (mode == MathMode::fma ? 12 : 8) / warps; }

/// implicit_gemm_generic: what a block computes.
constexpr ConvTile generic_tile(int64_t rows) { return {rows <= 16 ? 16 : rows <= 32 ? 32 : 64, 128}; }

/// direct, dw: what a block computes and how. dy is copied `vec` elements at a time, along filters or along a row.
struct DirectWgradSizes {
  int side, channels, filters;  // of the taps' square; of a thread
  int groups;                   // of filters in a block
  bool along_filters;
  int vec, threads;
  int blocks, ahead;  // of a multiprocessor; steps that copies are ahead

  /// Rows of dy are multiples of so many pixels; a quad may be cut amid.
  constexpr int row_unit() const { return side == 5 ? 2 : 4; }
  /// Where neighbouring lanes take neighbouring filters.
  constexpr int lane_groups() const { return along_filters ? groups : 1; }
  /// Dynamic shared memory of a block with two buffers of so many floats and elements of so many bytes.
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

/// wgmma: pixels that a warpgroup multiplies at a time; slots of a ring, at most; static shared memory beside them.
inline constexpr int kWgmmaPixels = 128, kMaxWgmmaSlots = 8;
inline constexpr int64_t kGatherStaticBytes = 1 << 10, kWgradStaticBytes = 10 << 10;

/// wgmma_im2col: rows of a tile; positions, channels or filters of a box, of lines of 128 bytes; blocks of a cluster.
inline constexpr int kIm2colRows = 128, kIm2colBox = 64, kMaxIm2colCluster = 8;
template <int kColumns>
inline constexpr int kIm2colSlotBytes = (kIm2colRows + kColumns) * 2 * kIm2colBox;

// What select() asks of an algorithm.

/// How few_channel_mma cuts the output; nothing where it does not apply.
std::optional<FewChannelTiling> few_channel_tiling(const ConvProblem& problem, std::optional<MathMode> mode);
/// True for what direct_wgrad computes: few channels, no stride or dilation, no doubles, and rows of dy, or filters
/// where these are innermost, that are whole aligned vectors.
bool can_direct_wgrad(const ConvProblem& problem, const DeviceProperties& device);
/// True for what the wgmma kernels compute: dense half types with channels innermost, 3x3, padding 1, on Hopper; where
/// TF32 may be used also forward of float32.
bool can_wgmma(const ConvProblem& problem, const DeviceProperties& device, bool tf32 = false);
/// True for what wgmma_im2col computes: the same of any filter size, stride and padding. dbias is not among it.
bool can_im2col(const ConvProblem& problem, const DeviceProperties& device);
/// Is a device busy with wgmma_im2col's blocks, of which a multiprocessor has two at most?
bool fills_im2col(const ConvProblem& problem, const DeviceProperties& device);
/// The columns of dw that the tiles of `implicit` compute.
ConvTile implicit_wgrad_tile(int64_t rows);

/// Into how many parts to cut sums of so many steps, which `blocks` blocks make, for a device that runs `resident` of
/// them at a time: the whole is done after the fewest steps, where beginning and end of a block cost some, too. Parts
/// beyond max_waves waves even out little and take memory.
int64_t balanced_splits(int64_t blocks, int64_t steps, int64_t resident);

/// The tile of plan.algorithm, how sums are split, and the workspace. plan_wgmma: false where too few slots fit.
void plan_gather(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan);
void plan_wgrad(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan);
bool plan_wgmma(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan);
void plan_im2col(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan);

}  // namespace gradus::cuda_detail
