// Decides how the backend "cuda" computes attention and LSTMs over whole sequences. Host code without CUDA, so that
// decisions can be tested on machines without a GPU. The fused kernels of both need no scratch memory.
#pragma once

#include <gradus/backends/cuda/device/divisor.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/array/dtype.h>
#include <gradus/core/array/shape.h>

namespace gradus::cuda_detail {

enum class AttentionAlgorithm : uint8_t {
  tiles,     ///< attention.cu: one launch, rows of weights in shared memory
  products,  ///< matrix products, softmax and dropout (core/composites), each with its own plan
};

/// q (N, H, L, E), k (N, H, S, E), v (N, H, S, V).
struct AttentionProblem {
  DType dtype;
  Shape q, k, v;
  bool dense;  ///< unit strides along E and V; weights, and the mask of kept weights, are contiguous
};

struct AttentionPlan {
  AttentionAlgorithm algorithm = AttentionAlgorithm::products;
  int head = 0;             ///< tiles: columns of q, k and v in shared memory: 32, 64 or 128
  uint32_t blocks = 0;      ///< tiles: blocks of the grid
  size_t shared_bytes = 0;  ///< tiles: shared memory of a block

  const char* name() const { return algorithm == AttentionAlgorithm::tiles ? "tiles" : "products"; }
};

/// The number of rows of the attention weights that a block computes, the number of rows of the other operand in a tile
/// in shared memory, and the padding between rows of a tile, in elements.
inline constexpr int kAttentionRows = 16, kAttentionTile = 64, kAttentionPad = 4;
/// The distance between rows of weights in shared memory, in elements: `length`, the number of columns, rounded up to a
/// multiple of kAttentionTile.
GRADUS_HOST_DEVICE constexpr int attention_pitch(int length) {
  return ceil_div(length, kAttentionTile) * kAttentionTile;
}

AttentionPlan select_attention(const AttentionProblem& problem, bool backward, const DeviceProperties& device);

enum class LstmAlgorithm : uint8_t {
  clusters,  ///< recurrent.cu: all steps in one launch
  steps,     ///< one step after the other (core/composites)
};

/// A cluster of recurrent.cu: its number of blocks, its number of sequences, and the maximum number of hidden units.
inline constexpr int kLstmBlocks = 4, kLstmSequences = 2, kLstmSize = 128;

struct LstmPlan {
  LstmAlgorithm algorithm = LstmAlgorithm::steps;
  uint32_t blocks = 0;  ///< clusters: blocks of all clusters

  const char* name() const { return algorithm == LstmAlgorithm::clusters ? "clusters" : "steps"; }
};

/// Plans an LSTM with hidden states of shape `states` (L, N, H). `contiguous`: all its tensors are contiguous.
LstmPlan select_lstm(DType dtype, const Shape& states, bool contiguous, const DeviceProperties& device);

}  // namespace gradus::cuda_detail
