// Decides how the backend "cuda" computes normalisation and softmax. Host code without CUDA, so that decisions can be
// tested, and memory planned, on machines without a GPU.
#pragma once

#include <variant>

#include <gradus/backends/cuda/device/reduce_plan.h>
#include <gradus/backends/cuda/device/tuning.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

enum class NormAlgorithm : uint8_t {
  composite,  ///< no fused kernel: the default body of Backend
  rows,       ///< normalize_rows.cu: layer, group and instance norm; a team of threads keeps a row in registers
  channels,   ///< normalize_channels*.cu: batch norm of dense images; channels in registers, or divided into splits
};

/// Rows of `size` elements. A team of `threads` threads processes a row, and a block has `teams` teams.
struct RowTiling {
  uint32_t rows = 0, size = 0, threads = 0, teams = 1, blocks = 0;
  bool vectorized = false;  ///< 16 bytes at a time instead of single elements
  bool twice = false;       ///< a thread keeps twice as many elements as usual
  /// Element i of row r has the parameter (r mod groups, i / plane), of `size` / plane for each of the groups: (1, 1)
  /// in layer norm, (groups, height x width) in group norm.
  Divisor groups, plane;
};

/// Threads of a block of the kernels for channels.
inline constexpr uint32_t kChannelThreads = 512;

/// How blocks share images. In NCHW images, a channel has `count` vectors of `vec` elements; in NHWC images, each group
/// of four channels has `count` pixels. These vectors or pixels are divided into `splits`: as many as fill one wave of
/// blocks, and at least one.
struct ChannelTiling {
  static constexpr uint32_t kResident = 4;  ///< number of vectors that a thread can keep in registers

  bool nhwc = false;
  uint32_t vec = 4;  ///< elements of a vector: 4, or 1 if NCHW planes do not consist of aligned vectors
  uint32_t channels = 0, count = 0;
  uint32_t pitch = 0;  ///< elements from pixel to pixel if x is a slice of the channels of NHWC images, else 0
  Divisor vectors;     ///< vectors of a plane; NHWC: of a pixel
  /// log2 of the vectors of each pixel that a block processes (NHWC), and of the threads that share such a vector.
  uint32_t outputs_log2 = 0, lanes_log2 = 0;
  uint32_t splits = 1, per_split = 0;
  bool resident = false;  ///< one launch, in which the threads of a block or cluster keep its channels in registers

  /// Number of blocks along x of the grid. Along y, the grid has `splits` blocks.
  uint32_t groups() const { return nhwc ? ceil_div(vectors.divisor, 1 << outputs_log2) : channels; }
  /// Number of partial sums: one for each split of each channel.
  size_t sums() const { return size_t{splits} * channels; }
  /// The maximum number of vectors of a thread whose block has `size` vectors of a channel.
  uint32_t of_thread(uint32_t size) const { return ceil_div(size, 1 << lanes_log2); }
};

struct NormPlan {
  NormAlgorithm algorithm = NormAlgorithm::composite;
  size_t workspace_bytes = 0;
  RowTiling rows;
  ChannelTiling channels;

  /// The implementation name that observers see: "rows", "channels_resident", "channels_split", …
  const char* name() const;
};

NormPlan select(const NormalizeArgs& problem, const DeviceProperties& device);
NormPlan select(const NormalizeBackwardArgs& problem, const DeviceProperties& device);

/// Returns true if the view has these strides along all axes longer than 1.
bool has_strides(const StridedLayout& view, const Strides& expected);

/// Softmax of rows, or its gradient.
struct SoftmaxProblem {
  DType dtype = DType::f32;
  int64_t rows = 1, size = 1;
  bool backward = false;
  bool vectorized = false;  ///< the rows of all views consist of aligned vectors of 16 bytes
  bool strided = false;     ///< in some view, the elements of a row are not neighbours in memory
  DeviceProperties device = kH200;
  bool operator==(const SoftmaxProblem&) const = default;

  size_t kind() const { return (dtype == DType::f64 ? 2 : 0) + (backward ? 1 : 0); }
  size_t device_index() const { return 0; }
};

struct SoftmaxPlan;
using SoftmaxAlgorithm = KernelAlgorithm<SoftmaxProblem, SoftmaxPlan, std::monostate>;  ///< softmax.cu launches plans

/// How rows are processed. This needs no workspace.
struct SoftmaxPlan {
  const SoftmaxAlgorithm* algorithm = nullptr;
  bool vectorized = false;         ///< lanes: loads of 16 bytes, or of all values of a thread if these are fewer
  uint32_t lanes = 0, values = 0;  ///< lanes: threads that keep a row, and values of each
  uint32_t threads = 0, blocks = 0;
};

SoftmaxPlan select(const SoftmaxProblem& problem);
const KernelFamily<SoftmaxAlgorithm>& softmax_family();
extern const SoftmaxAlgorithm kSoftmaxLanes, kSoftmaxBlock;

}  // namespace gradus::cuda_detail
