// The one place that decides how the backend "cuda" normalises and takes softmax. Host code without CUDA, so that
// decisions are tested and planned where there is no GPU.
#pragma once

#include <gradus/backends/cuda/device/reduce_plan.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

enum class NormAlgorithm : uint8_t {
  composite,  ///< none of ours: Backend's default body
  rows,       ///< normalize_rows.cu: contiguous rows, each kept in registers by a team of threads
  channels,   ///< normalize_channels*.cu: batch norm of dense images, channels kept in registers or cut into splits
};

/// Rows of `size` elements, each of a team of `threads`; a block has `teams` of them.
struct RowTiling {
  uint32_t rows = 0, size = 0, threads = 0, teams = 1, blocks = 0;
  bool vectorized = false;  ///< 16 bytes at a time, else single elements
};

/// Threads of a block where channels are cut.
inline constexpr uint32_t kChannelThreads = 512;

/// Images cut among blocks: of each channel `count` vectors of `vec` elements (NCHW), or of each four channels
/// `count` pixels (NHWC), in `splits`. Splits fill one wave, at least one each.
struct ChannelTiling {
  static constexpr uint32_t kResident = 4;  ///< vectors that a thread can keep in registers from pass to pass

  bool nhwc = false;
  uint32_t vec = 4;  ///< NCHW: 1 where planes are not made of aligned vectors
  uint32_t channels = 0, count = 0;
  uint32_t pitch = 0;  ///< elements from pixel to pixel where x is a slice of the channels of NHWC images, else 0
  Divisor vectors;     ///< of a plane; NHWC: of a pixel
  uint32_t outputs_log2 = 0, lanes_log2 = 0;  ///< vectors of a pixel that a block has; threads for each
  uint32_t splits = 1, per_split = 0;
  bool resident = false;  ///< a block, or all blocks of a cluster, have their channels in registers: one launch

  /// Blocks along x of the grid, which has `splits` along y.
  uint32_t groups() const { return nhwc ? ceil_div(vectors.divisor, 1 << outputs_log2) : channels; }
  /// Partial results of the splits.
  size_t sums() const { return size_t{splits} * channels; }
  /// The most vectors of `size` that a thread has.
  uint32_t of_thread(uint32_t size) const { return ceil_div(size, 1 << lanes_log2); }
};

struct NormPlan {
  NormAlgorithm algorithm = NormAlgorithm::composite;
  size_t workspace_bytes = 0;
  RowTiling rows;
  ChannelTiling channels;

  /// For observers: "rows", "channels_resident", "channels_split", …
  const char* name() const;
};

NormPlan select(const NormalizeArgs& problem, const DeviceProperties& device);
NormPlan select(const NormalizeBackwardArgs& problem, const DeviceProperties& device);

/// True for NCHW and NHWC images, and for contiguous views. Of the others, slices of NHWC's channels have kernels.
bool is_dense(const View& x);

/// How softmax, or its gradient, takes rows of `size` elements. No workspace.
struct SoftmaxPlan {
  bool in_registers = false;  ///< `lanes` threads keep a row, `values` each; else a block reads it twice
  bool vectorized = false;    ///< in registers: loads of 16 bytes, or of all values of a thread
  uint32_t lanes = 0, values = 0;
  uint32_t threads = 0, blocks = 0;

  /// For observers: "lanes" or "block".
  const char* name() const { return in_registers ? "lanes" : "block"; }
};
/// The rows are along `axis`; `vectorized`: all views' are aligned vectors of 16 bytes.
SoftmaxPlan select_softmax(const Shape& shape, int axis, bool vectorized, const DeviceProperties& device);

}  // namespace gradus::cuda_detail
