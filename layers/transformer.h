// Multi-head attention and the Transformer (Vaswani et al., "Attention is all you need", 2017): encoder, decoder, and
// the combination of both.
#pragma once

#include <functional>
#include <optional>
#include <tuple>

#include <gradus/layers/dropout.h>
#include <gradus/layers/linear.h>
#include <gradus/layers/module/containers.h>
#include <gradus/layers/module/init.h>
#include <gradus/layers/norm.h>

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
/// attention is not allowed, and floating values are added to the scores. The weights are averaged over the heads; if
/// average_attn_weights is false, they are (N, heads, L, S). If need_weights is false, they are undefined, which is
/// faster.
///
/// Parameters have PyTorch's names: in_proj_weight (3 E, E), or q_proj_weight, k_proj_weight and v_proj_weight if kdim
/// or vdim differs from E; in_proj_bias (3 E); bias_k and bias_v (1, 1, E); out_proj.weight (E, E), out_proj.bias (E).
class MultiheadAttentionImpl : public Cloneable<MultiheadAttentionImpl> {
 public:
  MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads)
      : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& options_) : options(options_) {
    MultiheadAttentionImpl::reset();
  }
  void reset() override;
  void reset_parameters();
  TensorPair forward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& key_padding_mask = {},
                     bool need_weights = true, const Tensor& attn_mask = {}, bool average_attn_weights = true);
  void pretty_print(std::ostream& stream) const override;

  MultiheadAttentionOptions options;
  Tensor in_proj_weight, in_proj_bias, q_proj_weight, k_proj_weight, v_proj_weight, bias_k, bias_v;
  Linear out_proj{nullptr};

 private:
  /// Returns the sum of both masks, which is added to the attention scores: shape (N, 1 or heads, 1 or L, S). Undefined
  /// if there is no mask.
  Tensor combined_mask(const Tensor& attn_mask, const Tensor& key_padding_mask, int64_t batch, int64_t queries,
                       int64_t keys, DType dtype) const;
};
GRADUS_MODULE(MultiheadAttention);

/// The activation between the two linear layers of a Transformer layer: kReLU, kGELU (other constants are a
/// ValueError), or a function of a tensor.
class TransformerActivation {
 public:
  TransformerActivation(init::Nonlinearity nonlinearity);  // NOLINT(google-explicit-constructor)
  template <class F>
  requires std::is_invocable_r_v<Tensor, const F&, const Tensor&> TransformerActivation(F function)
      : function_(std::move(function)) {}  // NOLINT(google-explicit-constructor)
  Tensor operator()(const Tensor& x) const { return function_(x); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

struct TransformerEncoderLayerOptions {
  TransformerEncoderLayerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}
  GRADUS_ARG(int64_t, d_model);
  GRADUS_ARG(int64_t, nhead);
  GRADUS_ARG(int64_t, dim_feedforward) = 2048;
  GRADUS_ARG(double, dropout) = 0.1;
  GRADUS_ARG(TransformerActivation, activation) = kReLU;
};

/// Self-attention, followed by a feed-forward part of two linear layers. Each of the two parts has a residual
/// connection and a LayerNorm: its result is norm(input + part(input)). Maps src (L, N, d_model) to the same shape.
/// src_mask and src_key_padding_mask are attn_mask and key_padding_mask of MultiheadAttention.
struct TransformerEncoderLayerImpl : Cloneable<TransformerEncoderLayerImpl> {
  TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerEncoderLayerImpl(TransformerEncoderLayerOptions(d_model, nhead)) {}
  explicit TransformerEncoderLayerImpl(const TransformerEncoderLayerOptions& options_) : options(options_) {
    TransformerEncoderLayerImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {});

  TransformerEncoderLayerOptions options;
  MultiheadAttention self_attn{nullptr};
  Linear linear1{nullptr}, linear2{nullptr};
  Dropout dropout{nullptr}, dropout1{nullptr}, dropout2{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr};
};
GRADUS_MODULE(TransformerEncoderLayer);

struct TransformerEncoderOptions {
  TransformerEncoderOptions(TransformerEncoderLayer layer, int64_t num_layers)
      : encoder_layer_(std::move(layer)), num_layers_(num_layers) {}
  TransformerEncoderOptions(const TransformerEncoderLayerOptions& layer, int64_t num_layers)
      : TransformerEncoderOptions(TransformerEncoderLayer(layer), num_layers) {}
  GRADUS_ARG(TransformerEncoderLayer, encoder_layer);
  GRADUS_ARG(int64_t, num_layers);
  /// If set, this module is applied to the output of the last layer.
  GRADUS_ARG(AnyModule, norm);
};

/// num_layers clones of encoder_layer in sequence, with the names layers.0, layers.1, …, then a clone of norm. As in
/// PyTorch, all clones start with the same parameters.
struct TransformerEncoderImpl : Cloneable<TransformerEncoderImpl> {
  TransformerEncoderImpl(TransformerEncoderLayer layer, int64_t num_layers)
      : TransformerEncoderImpl(TransformerEncoderOptions(std::move(layer), num_layers)) {}
  explicit TransformerEncoderImpl(const TransformerEncoderOptions& options_) : options(options_) {
    TransformerEncoderImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {});

  TransformerEncoderOptions options;
  ModuleList layers{nullptr};
  AnyModule norm;
};
GRADUS_MODULE(TransformerEncoder);

using TransformerDecoderLayerOptions = TransformerEncoderLayerOptions;

/// Like the encoder layer, but between self-attention and the linear layers it attends to `memory` (S, N, d_model), the
/// encoder's output. Maps tgt (T, N, d_model) to the same shape. Masks as in MultiheadAttention: tgt_mask (T, T),
/// memory_mask (T, S), tgt_key_padding_mask (N, T), memory_key_padding_mask (N, S).
struct TransformerDecoderLayerImpl : Cloneable<TransformerDecoderLayerImpl> {
  TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerDecoderLayerImpl(TransformerDecoderLayerOptions(d_model, nhead)) {}
  explicit TransformerDecoderLayerImpl(const TransformerDecoderLayerOptions& options_) : options(options_) {
    TransformerDecoderLayerImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {});

  TransformerDecoderLayerOptions options;
  MultiheadAttention self_attn{nullptr}, multihead_attn{nullptr};
  Linear linear1{nullptr}, linear2{nullptr};
  Dropout dropout{nullptr}, dropout1{nullptr}, dropout2{nullptr}, dropout3{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};
};
GRADUS_MODULE(TransformerDecoderLayer);

struct TransformerDecoderOptions {
  TransformerDecoderOptions(TransformerDecoderLayer layer, int64_t num_layers)
      : decoder_layer_(std::move(layer)), num_layers_(num_layers) {}
  TransformerDecoderOptions(const TransformerDecoderLayerOptions& layer, int64_t num_layers)
      : TransformerDecoderOptions(TransformerDecoderLayer(layer), num_layers) {}
  GRADUS_ARG(TransformerDecoderLayer, decoder_layer);
  GRADUS_ARG(int64_t, num_layers);
  GRADUS_ARG(AnyModule, norm);
};

/// num_layers clones of decoder_layer in sequence, then a clone of norm.
struct TransformerDecoderImpl : Cloneable<TransformerDecoderImpl> {
  TransformerDecoderImpl(TransformerDecoderLayer layer, int64_t num_layers)
      : TransformerDecoderImpl(TransformerDecoderOptions(std::move(layer), num_layers)) {}
  explicit TransformerDecoderImpl(const TransformerDecoderOptions& options_) : options(options_) {
    TransformerDecoderImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {});

  TransformerDecoderOptions options;
  ModuleList layers{nullptr};
  AnyModule norm;
};
GRADUS_MODULE(TransformerDecoder);

struct TransformerOptions {
  TransformerOptions() = default;
  TransformerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}
  TransformerOptions(int64_t d_model, int64_t nhead, int64_t num_encoder_layers, int64_t num_decoder_layers)
      : d_model_(d_model), nhead_(nhead), num_encoder_layers_(num_encoder_layers),
        num_decoder_layers_(num_decoder_layers) {}
  GRADUS_ARG(int64_t, d_model) = 512;
  GRADUS_ARG(int64_t, nhead) = 8;
  GRADUS_ARG(int64_t, num_encoder_layers) = 6;
  GRADUS_ARG(int64_t, num_decoder_layers) = 6;
  GRADUS_ARG(int64_t, dim_feedforward) = 2048;
  GRADUS_ARG(double, dropout) = 0.1;
  GRADUS_ARG(TransformerActivation, activation) = kReLU;
  /// If set, these modules are cloned in place of the encoder and decoder described by the options above.
  GRADUS_ARG(AnyModule, custom_encoder);
  GRADUS_ARG(AnyModule, custom_decoder);
};

/// Maps src (S, N, d_model) and tgt (T, N, d_model) to decoder(tgt, encoder(src)) of shape (T, N, d_model). Encoder and
/// decoder each end with a LayerNorm. Weights are initialised with xavier_uniform_.
struct TransformerImpl : Cloneable<TransformerImpl> {
  TransformerImpl() : TransformerImpl(TransformerOptions()) {}
  explicit TransformerImpl(const TransformerOptions& options_) : options(options_) { TransformerImpl::reset(); }
  void reset() override;
  /// Applies xavier_uniform_ to all parameters except vectors.
  void reset_parameters();
  Tensor forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask = {}, const Tensor& tgt_mask = {},
                 const Tensor& memory_mask = {}, const Tensor& src_key_padding_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {});
  /// (size, size): 0 on and below the diagonal, minus infinity above, so that no position attends to a later one.
  static Tensor generate_square_subsequent_mask(int64_t size);

  TransformerOptions options;
  AnyModule encoder, decoder;
};
GRADUS_MODULE(Transformer);

}  // namespace gradus::nn
