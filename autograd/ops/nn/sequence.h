// Operators on sequences: embedding, attention and recurrent nets.
#pragma once

#include <tuple>

#include <gradus/autograd/tensor.h>
#include <gradus/core/element_ops.h>

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
/// and attn_mask must be undefined. scale is 1 / sqrt(E) unless given. A row in which all keys are excluded is 0.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0, bool is_causal = false,
                                    std::optional<double> scale = {}, Loc where = Loc::current());
/// Self-attention of a sequence, from queries, keys and values packed side by side: packed (N, L, 3 H E) for H heads,
/// result (N, L, H E). The other arguments are those of scaled_dot_product_attention.
Tensor self_attention(const Tensor& packed, int64_t num_heads, const Tensor& attn_mask = {}, double dropout_p = 0,
                      bool is_causal = false, Loc where = Loc::current());

/// The weights of a recurrent layer in one direction, whose cell has G gates: w_ih (G H, I), w_hh (G H, P), biases
/// (G H), both defined or both undefined, and for an LSTM w_hr (P, H), which projects the outputs; without it, P = H.
/// The gates are in the order i, f, g, o (LSTM) or r, z, n (GRU).
struct RecurrentWeights {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;
};
/// Hidden state (N, P), and the cell state (N, H) of an LSTM.
struct RecurrentState {
  Tensor hidden, cell;
};

/// One step, composed of other operators. `from_input` (N, G H) is W x + b_ih. Returns the next state.
RecurrentState recurrent_step(RecurrentCell cell, const Tensor& from_input, const RecurrentState& state,
                              const RecurrentWeights& weights);
/// Runs a recurrent layer in one direction over x (L, N, I), from the last step to the first if `reverse`. Returns the
/// hidden states (L, N, P), and replaces `state` by the last state. Errors and rules of autocast use `name`; without
/// one, it is that of the layer: "lstm", "gru" or "rnn".
Tensor recurrent_sequence(RecurrentCell cell, const Tensor& x, RecurrentState& state, const RecurrentWeights& weights,
                          bool reverse = false, Loc where = Loc::current(), const char* name = nullptr);

}  // namespace gradus
