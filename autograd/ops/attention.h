// Embedding and attention.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Rows of `weight` (V, D) at `indices` (…), an integer tensor: (…, D). The row padding_idx gets no gradient; -1 is
/// none, as in LibTorch, where nn::functional counts negative ones from the end. scale_grad_by_freq divides a row's
/// gradient by how often indices has it. sparse: there are no sparse gradients; true is a ValueError.
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = -1, bool scale_grad_by_freq = false,
                 bool sparse = false, Loc where = Loc::current());
/// Scales the rows at `indices` that have a larger norm down to max_norm, in place and outside of autograd
/// (nn.Embedding's max_norm).
const Tensor& embedding_renorm_(const Tensor& weight, const Tensor& indices, double max_norm, double norm_type = 2,
                                Loc where = Loc::current());

/// softmax(scale q kᵀ + mask) v, with dropout of the weights (https://arxiv.org/abs/1706.03762): q (…, L, E), k (…, S,
/// E), v (…, S, Ev), result (…, L, Ev); leading sizes broadcast. attn_mask, broadcast to (…, L, S): where a boolean one
/// is false there is no attention, a floating one is added. is_causal: query i sees keys 0 … i (no mask besides). scale
/// is 1 / sqrt(E) unless given. A row that sees nothing is NaN.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0, bool is_causal = false,
                                    std::optional<double> scale = {}, Loc where = Loc::current());
/// The same of a sequence with itself, from its queries, keys and values side by side: packed (N, L, 3 H E) for H
/// heads, result (N, L, H E).
Tensor self_attention(const Tensor& packed, int64_t num_heads, const Tensor& attn_mask = {}, double dropout_p = 0,
                      Loc where = Loc::current());

}  // namespace gradus
