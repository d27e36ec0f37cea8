// The one place that decides how the backend "cuda" computes attention and LSTMs over whole sequences. Host code
// without CUDA, so that decisions are tested and planned where there is no GPU. Neither needs scratch memory of its
// own.
#pragma once

#include <gradus/backends/cuda/device/divisor.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/array/dtype.h>
#include <gradus/core/array/shape.h>

namespace gradus::cuda_detail {

enum class AttentionAlgorithm : uint8_t {
  tiles,     ///< attention.cu: one launch, rows of weights in shared memory
  products,  ///< matrix products, softmax and dropout (core/composites), which have plans of their own
};

/// q (N, H, L, E), k (N, H, S, E), v (N, H, S, V).
struct AttentionProblem {
  DType dtype;
  Shape q, k, v;
  bool dense;  ///< unit steps along E and V, and weights (and which of them dropout kept) without gaps
};

struct AttentionPlan {
  AttentionAlgorithm algorithm = AttentionAlgorithm::products;
  int head = 0;             ///< tiles: columns of q, k and v in shared memory: 32, 64 or 128
  uint32_t blocks = 0;      ///< tiles
  size_t shared_bytes = 0;  ///< tiles: of a block

  const char* name() const { return algorithm == AttentionAlgorithm::tiles ? "tiles" : "products"; }
};

/// A block's rows of weights, rows of a tile of the other side, and elements between tile rows beyond a head's.
inline constexpr int kAttentionRows = 16, kAttentionTile = 64, kAttentionPad = 4;
/// Elements between rows of weights for so many columns: whole tiles.
GRADUS_HOST_DEVICE constexpr int attention_pitch(int length) {
  return ceil_div(length, kAttentionTile) * kAttentionTile;
}

AttentionPlan select_attention(const AttentionProblem& problem, bool backward, const DeviceProperties& device);

enum class LstmAlgorithm : uint8_t {
  clusters,  ///< lstm_sequence.cu: all steps in one launch
  steps,     ///< step by step (core/composites)
};

/// A cluster of the kernels: its blocks, its sequences, and their hidden units at most.
inline constexpr int kLstmBlocks = 4, kLstmSequences = 2, kLstmSize = 128;

struct LstmPlan {
  LstmAlgorithm algorithm = LstmAlgorithm::steps;
  uint32_t blocks = 0;  ///< clusters: of all

  const char* name() const { return algorithm == LstmAlgorithm::clusters ? "clusters" : "steps"; }
};

/// Of hidden states (L, N, H).
LstmPlan select_lstm(DType dtype, const Shape& states, bool contiguous, const DeviceProperties& device);

}  // namespace gradus::cuda_detail
