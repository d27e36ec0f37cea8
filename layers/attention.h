// Multi-head attention (Vaswani et al., "Attention is all you need", 2017).
#pragma once

#include <optional>
#include <tuple>

#include <gradus/layers/linear.h>
#include <gradus/layers/module/init.h>

namespace gradus::nn {

struct MultiheadAttentionOptions {
  MultiheadAttentionOptions(int64_t embed_dim, int64_t num_heads) : embed_dim_(embed_dim), num_heads_(num_heads) {}
  GRADUS_ARG(int64_t, embed_dim);
  GRADUS_ARG(int64_t, num_heads);
  /// Probability with which attention weights are dropped in training.
  GRADUS_ARG(double, dropout) = 0;
  GRADUS_ARG(bool, bias) = true;
  /// add_bias_kv appends one learned key and value, add_zero_attn a key and value of zeros.
  GRADUS_ARG(bool, add_bias_kv) = false;
  GRADUS_ARG(bool, add_zero_attn) = false;
  /// Number of features of keys and values; embed_dim by default.
  GRADUS_ARG(std::optional<int64_t>, kdim) = absent<int64_t>();
  GRADUS_ARG(std::optional<int64_t>, vdim) = absent<int64_t>();
  /// True if inputs are (N, L, E) instead of (L, N, E). LibTorch has this option only in Python.
  GRADUS_ARG(bool, batch_first) = false;
};

/// Inputs: query (L, N, E), key (S, N, kdim), value (S, N, vdim), or all without N. Results: output (L, N, E) and
/// weights (N, L, S). In key_padding_mask (N, S) and attn_mask (L, S) or (N * heads, L, S), booleans are true where
/// attention is not allowed, and floating values are added to the scores. Weights are averaged over the heads, or (N,
/// heads, L, S) without average_attn_weights. Without need_weights they are undefined, which is faster.
///
/// Parameters have PyTorch's names: in_proj_weight (3 E, E), or q_proj_weight, k_proj_weight and v_proj_weight if kdim
/// or vdim differs from E; in_proj_bias (3 E); bias_k and bias_v (1, 1, E); out_proj.weight (E, E), out_proj.bias (E).
class MultiheadAttentionImpl : public Cloneable<MultiheadAttentionImpl> {
 public:
  MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads)
      : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& options);
  void reset() override;
  void reset_parameters();
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& key_padding_mask = {}, bool need_weights = true,
                                     const Tensor& attn_mask = {}, bool average_attn_weights = true);
  void pretty_print(std::ostream& stream) const override;

  MultiheadAttentionOptions options;
  Tensor in_proj_weight, in_proj_bias, q_proj_weight, k_proj_weight, v_proj_weight, bias_k, bias_v;
  Linear out_proj{nullptr};

 private:
  /// The sum of both masks for the scores, (N, 1 or heads, 1 or L, S), or undefined.
  Tensor combined_mask(const Tensor& attn_mask, const Tensor& key_padding_mask, int64_t batch, int64_t queries,
                       int64_t keys, DType dtype) const;
};
GRADUS_MODULE(MultiheadAttention);

}  // namespace gradus::nn
