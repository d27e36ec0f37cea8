// Operators on sequences: embedding, attention and recurrent nets.
#pragma once

#include <tuple>

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Returns the rows of `weight` (V, D) at `indices`, an integer tensor of any shape (…), as a tensor (…, D). The row
/// padding_idx gets no gradient. A padding_idx of -1 means none, as in LibTorch; in nn::functional negative values
/// count from the end. scale_grad_by_freq divides the gradient of a row by the number of its occurrences in indices.
/// There are no sparse gradients: sparse = true is a ValueError.
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = -1, bool scale_grad_by_freq = false,
                 bool sparse = false, Loc where = Loc::current());
/// Scales those rows at `indices` whose norm exceeds max_norm down to it, in place and without recording
/// (nn.Embedding's max_norm).
const Tensor& embedding_renorm_(const Tensor& weight, const Tensor& indices, double max_norm, double norm_type = 2,
                                Loc where = Loc::current());

/// softmax(scale q kᵀ + mask) v, with dropout of the weights (https://arxiv.org/abs/1706.03762): q (…, L, E), k (…, S,
/// E), v (…, S, Ev), result (…, L, Ev). The leading dimensions broadcast. attn_mask broadcasts to (…, L, S): a boolean
/// mask excludes the pairs where it is false, a floating mask is added. With is_causal, query i sees only keys 0 … i,
/// and attn_mask must be undefined. scale is 1 / sqrt(E) unless given. A row in which all keys are excluded is NaN.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0, bool is_causal = false,
                                    std::optional<double> scale = {}, Loc where = Loc::current());
/// Self-attention of a sequence, from queries, keys and values packed side by side: packed (N, L, 3 H E) for H heads,
/// result (N, L, H E).
Tensor self_attention(const Tensor& packed, int64_t num_heads, const Tensor& attn_mask = {}, double dropout_p = 0,
                      Loc where = Loc::current());

/// One step of an LSTM. `from_input` (N, 4 H) is W x + b_ih; h (N, P) and c (N, H) are the previous states, where w_hh
/// is (4 H, P); P differs from H if the LSTM projects its hidden states. Returns the new h, before any projection, and
/// the new c, both (N, H). b_hh may be undefined.
std::tuple<Tensor, Tensor> lstm_step(const Tensor& from_input, const Tensor& h, const Tensor& c, const Tensor& w_hh,
                                     const Tensor& b_hh);

/// Runs an LSTM in one direction over x (L, N, I) from h0 and c0 (N, H). Returns the hidden states (L, N, H) and the
/// last cell state (N, H). w_ih (4 H, I) and w_hh (4 H, H) contain the gates in the order i, f, g, o; the biases (4 H)
/// are both defined or both undefined. `reverse` runs from the last step to the first.
std::tuple<Tensor, Tensor> lstm_sequence(const Tensor& x, const Tensor& h0, const Tensor& c0, const Tensor& w_ih,
                                         const Tensor& w_hh, const Tensor& b_ih = {}, const Tensor& b_hh = {},
                                         bool reverse = false, Loc where = Loc::current());

}  // namespace gradus
