// Decides how the backend "cuda" computes attention, and recurrent layers over whole sequences. Host code without CUDA,
// so that decisions can be tested on machines without a GPU. The fused kernels of both need no scratch memory.
#pragma once

#include <algorithm>
#include <variant>

#include <gradus/backends/cuda/device/divisor.h>
#include <gradus/backends/cuda/device/tuning.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/array/dtype.h>
#include <gradus/core/array/shape.h>
#include <gradus/core/element_ops.h>

namespace gradus::cuda_detail {

/// Attention or its gradient: q (N, H, L, E), k (N, H, S, E), v (N, H, S, V).
struct AttentionProblem {
  DType dtype = DType::f32;
  Shape q = {}, k = {}, v = {};
  bool dense = true;  ///< unit strides along E and V; weights, and the mask of kept weights, are contiguous
  bool backward = false;
  bool even = true;  ///< the matrices of all heads are equally far apart, so that a batched product needs no copies
  bool masked = false, dropout = false;
  bool tf32 = false;  ///< cuda::matmul_allow_tf32()
  DeviceProperties device = kH200;
  bool operator==(const AttentionProblem&) const = default;

  int64_t heads() const { return q[0] * q[1]; }
  int64_t queries() const { return q[2]; }
  int64_t keys() const { return k[2]; }
  int64_t columns() const { return std::max(q[3], v[3]); }
  bool is_empty() const { return heads() * queries() * keys() * q[3] * v[3] == 0; }
  /// How matrix products multiply.
  MathMode mode() const { return library_mode(dtype, tf32, device); }
  size_t kind() const { return 2 * kind_of(dtype, mode()) + (backward ? 1 : 0); }
  size_t device_index() const { return 0; }
};

struct AttentionPlan;
using AttentionAlgorithm = KernelAlgorithm<AttentionProblem, AttentionPlan, std::monostate>;  ///< attention.cu launches

/// The plan of the algorithm `tiles`. For `products` the numbers are 0, because each of its operators has its own plan.
struct AttentionPlan {
  const AttentionAlgorithm* algorithm = nullptr;
  int head = 0;             ///< columns of q, k and v in shared memory: 32, 64 or 128
  uint32_t blocks = 0;      ///< blocks of the grid
  size_t shared_bytes = 0;  ///< shared memory of a block
};

/// The number of rows of the attention weights that a block computes, the number of rows of the other operand in a tile
/// in shared memory, and the padding between rows of a tile, in elements.
inline constexpr int kAttentionRows = 16, kAttentionTile = 64, kAttentionPad = 4;
/// The distance between rows of weights in shared memory, in elements: `length`, the number of columns, rounded up to a
/// multiple of kAttentionTile.
GRADUS_HOST_DEVICE constexpr int attention_pitch(int length) {
  return ceil_div(length, kAttentionTile) * kAttentionTile;
}

AttentionPlan select(const AttentionProblem& problem);
const KernelFamily<AttentionAlgorithm>& attention_family();
extern const AttentionAlgorithm kAttentionTiles;     ///< attention.cu: one launch, rows of weights in shared memory
extern const AttentionAlgorithm kAttentionProducts;  ///< matrix products, softmax and dropout (core/composites)

/// The number of sequences that a cluster of recurrent.cu processes, of the hidden units of each of its blocks, and the
/// maximum number of hidden units.
inline constexpr int kClusterSequences = 2, kClusterUnits = 32, kMostRecurrentUnits = 256;
inline constexpr int kClusterPitch = kClusterUnits + 1;  ///< of rows of weights in shared memory, in elements
/// The number of blocks of a cluster for states with `size` hidden units.
constexpr int recurrent_cluster(int64_t size) { return (size <= 128 ? 128 : kMostRecurrentUnits) / kClusterUnits; }

/// A recurrent layer over a sequence, or its gradient.
struct RecurrentProblem {
  RecurrentCell cell = RecurrentCell::lstm;
  DType dtype = DType::f32;
  int64_t length = 0, batch = 0, size = 0;  ///< sizes L, N and H of the hidden states (L, N, H)
  bool contiguous = true;                   ///< whether all tensors are contiguous
  bool projected = false;                   ///< whether there is a w_hr
  bool backward = false;
  bool tf32 = false;  ///< cuda::matmul_allow_tf32()
  DeviceProperties device = kH200;
  bool operator==(const RecurrentProblem&) const = default;

  MathMode mode() const { return library_mode(dtype, tf32, device); }
  size_t kind() const { return 2 * kind_of(dtype, mode()) + (backward ? 1 : 0); }
  size_t device_index() const { return 0; }
};

struct RecurrentPlan;
using RecurrentAlgorithm = KernelAlgorithm<RecurrentProblem, RecurrentPlan, std::monostate>;  ///< recurrent.cu launches

struct RecurrentPlan {
  const RecurrentAlgorithm* algorithm = nullptr;
  uint32_t cluster = 0, blocks = 0;  ///< blocks of a cluster, and of all clusters; 0 for the algorithm `steps`
  size_t shared_bytes = 0;           ///< of a block, for columns of w_hh in a backward pass
};

RecurrentPlan select(const RecurrentProblem& problem);
const KernelFamily<RecurrentAlgorithm>& recurrent_family();
extern const RecurrentAlgorithm kRecurrentClusters;  ///< recurrent.cu: all steps in one launch
extern const RecurrentAlgorithm kRecurrentSteps;     ///< a matrix product and a cell for each step (core/composites)

}  // namespace gradus::cuda_detail
