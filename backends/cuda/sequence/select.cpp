// Chooses the kernels for attention and LSTMs, and plans their tiles.
#include <gradus/backends/cuda/sequence/select.h>

#include <algorithm>

namespace gradus::cuda_detail {
namespace {

// The bytes of shared memory that a block needs. The block computes 16 rows of one operand (queries, or keys in a
// backward pass) against all `length` rows of the other operand. It stores these 16 rows, a tile of the other operand,
// a number for each row of the tile, and `matrices` matrices of 16 rows and `length` columns.
size_t attention_bytes(size_t element, int head, int64_t length, int matrices) {
  const int numbers = kAttentionRows * head + kAttentionTile * (head + kAttentionPad) + kAttentionTile +
                      matrices * kAttentionRows * attention_pitch(static_cast<int>(length));
  return element * static_cast<size_t>(numbers);
}

}  // namespace

AttentionPlan select_attention(const AttentionProblem& problem, bool backward, const DeviceProperties& device) {
  constexpr int64_t kLongest = 128, kMostWeights = 1 << 20;  // beyond these sizes, cuBLAS is faster
  const auto& [dtype, q, k, v, dense] = problem;
  const int64_t heads = q[0] * q[1], queries = q[2], keys = k[2], columns = std::max(q[3], v[3]);
  const bool empty = heads * queries * keys * q[3] * v[3] == 0;
  if (!dense || empty || columns > 128 || queries > kLongest || keys > kLongest) return {};
  if (heads * queries * keys > kMostWeights) return {};
  const int head = columns <= 32 ? 32 : columns <= 64 ? 64 : 128;
  const size_t element = dtype == DType::f64 ? 8 : 4;
  const size_t of_keys = attention_bytes(element, head, keys, 1);
  const size_t of_both = std::max(of_keys, attention_bytes(element, head, queries, 2));
  if (of_both > device.shared_memory) return {};  // forward and backward use the same algorithm
  const int64_t blocks = ceil_div(queries, kAttentionRows) + (backward ? ceil_div(keys, kAttentionRows) : 0);
  return {AttentionAlgorithm::tiles, head, static_cast<uint32_t>(heads * blocks), backward ? of_both : of_keys};
}

LstmPlan select_lstm(DType dtype, const Shape& states, bool contiguous, const DeviceProperties& device) {
  constexpr int64_t kMost = int64_t{1} << 24;  // grid sizes and step numbers have 32 bits
  const int64_t length = states[0], batch = states[1], size = states[2];
  const auto within = [](int64_t n, int64_t limit) { return n > 0 && n <= limit; };
  if (!contiguous || !device.has_clusters() || dtype == DType::f64) return {};
  if (!within(length, kMost - 1) || !within(batch, kMost - 1) || !within(size, kLstmSize)) return {};
  return {LstmAlgorithm::clusters, static_cast<uint32_t>(kLstmBlocks * ceil_div(batch, kLstmSequences))};
}

}  // namespace gradus::cuda_detail
