#include <gradus/layers/transformer.h>

#include <limits>

#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/nn/activation.h>
#include <gradus/autograd/ops/shape.h>

namespace gradus::nn {

TransformerActivation::TransformerActivation(init::Nonlinearity nonlinearity) {
  GRADUS_CHECK(nonlinearity == kReLU || nonlinearity == kGELU, ValueError,
               "the activation of a Transformer's layer is kReLU, kGELU or a function");
  if (nonlinearity == kReLU) function_ = [](const Tensor& x) { return relu(x); };
  else function_ = [](const Tensor& x) { return gelu(x); };
}

namespace {

/// Makes `count` clones of a layer.
template <class Layer>
ModuleList clones_of(const Layer& layer, int64_t count, const char* owner) {
  GRADUS_CHECK(count > 0, ValueError, "a ", owner, " of ", count, " layers");
  ModuleList layers;
  for (int64_t i = 0; i < count; ++i) layers->push_back(layer->clone());
  return layers;
}

/// Registers a clone of `module` under `name`, unless it is empty.
AnyModule registered_clone(Module& owner, const char* name, const AnyModule& module) {
  AnyModule clone = module.clone();
  if (!clone.is_empty()) owner.register_module(name, clone.ptr());
  return clone;
}

}  // namespace

// ---- Encoder ----

TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(const TransformerEncoderLayerOptions& options)
    : options(options) {
  TransformerEncoderLayerImpl::reset();
}

void TransformerEncoderLayerImpl::reset() {
  const int64_t size = options.d_model(), wide = options.dim_feedforward();
  const double p = options.dropout();
  self_attn =
      register_module("self_attn", MultiheadAttention(MultiheadAttentionOptions(size, options.nhead()).dropout(p)));
  linear1 = register_module("linear1", Linear(size, wide));
  dropout = register_module("dropout", Dropout(p));
  linear2 = register_module("linear2", Linear(wide, size));
  norm1 = register_module("norm1", LayerNorm(LayerNormOptions({size})));
  norm2 = register_module("norm2", LayerNorm(LayerNormOptions({size})));
  dropout1 = register_module("dropout1", Dropout(p));
  dropout2 = register_module("dropout2", Dropout(p));
}

Tensor TransformerEncoderLayerImpl::forward(const Tensor& src, const Tensor& src_mask,
                                            const Tensor& src_key_padding_mask) {
  const auto frame = enter();
  const Tensor attended = std::get<0>(self_attn(src, src, src, src_key_padding_mask, false, src_mask));
  const Tensor x = norm1(src + dropout1(attended));
  return norm2(x + dropout2(linear2(dropout(options.activation()(linear1(x))))));
}

TransformerEncoderImpl::TransformerEncoderImpl(const TransformerEncoderOptions& options) : options(options) {
  TransformerEncoderImpl::reset();
}

void TransformerEncoderImpl::reset() {
  layers = register_module("layers", clones_of(options.encoder_layer(), options.num_layers(), "TransformerEncoder"));
  norm = registered_clone(*this, "norm", options.norm());
}

Tensor TransformerEncoderImpl::forward(const Tensor& src, const Tensor& src_mask, const Tensor& src_key_padding_mask) {
  Tensor x = src;
  for (const auto& layer : *layers) x = call(*layer->as<TransformerEncoderLayer>(), x, src_mask, src_key_padding_mask);
  return norm.is_empty() ? x : norm(x);
}

// ---- Decoder ----

TransformerDecoderLayerImpl::TransformerDecoderLayerImpl(const TransformerDecoderLayerOptions& options)
    : options(options) {
  TransformerDecoderLayerImpl::reset();
}

void TransformerDecoderLayerImpl::reset() {
  const int64_t size = options.d_model(), wide = options.dim_feedforward();
  const double p = options.dropout();
  const auto attention = MultiheadAttentionOptions(size, options.nhead()).dropout(p);
  self_attn = register_module("self_attn", MultiheadAttention(attention));
  multihead_attn = register_module("multihead_attn", MultiheadAttention(attention));
  linear1 = register_module("linear1", Linear(size, wide));
  dropout = register_module("dropout", Dropout(p));
  linear2 = register_module("linear2", Linear(wide, size));
  norm1 = register_module("norm1", LayerNorm(LayerNormOptions({size})));
  norm2 = register_module("norm2", LayerNorm(LayerNormOptions({size})));
  norm3 = register_module("norm3", LayerNorm(LayerNormOptions({size})));
  dropout1 = register_module("dropout1", Dropout(p));
  dropout2 = register_module("dropout2", Dropout(p));
  dropout3 = register_module("dropout3", Dropout(p));
}

Tensor TransformerDecoderLayerImpl::forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask,
                                            const Tensor& memory_mask, const Tensor& tgt_key_padding_mask,
                                            const Tensor& memory_key_padding_mask) {
  const auto frame = enter();
  const auto own = self_attn(tgt, tgt, tgt, tgt_key_padding_mask, false, tgt_mask);
  const Tensor x = norm1(tgt + dropout1(std::get<0>(own)));
  const auto of_memory = multihead_attn(x, memory, memory, memory_key_padding_mask, false, memory_mask);
  const Tensor y = norm2(x + dropout2(std::get<0>(of_memory)));
  return norm3(y + dropout3(linear2(dropout(options.activation()(linear1(y))))));
}

TransformerDecoderImpl::TransformerDecoderImpl(const TransformerDecoderOptions& options) : options(options) {
  TransformerDecoderImpl::reset();
}

void TransformerDecoderImpl::reset() {
  layers = register_module("layers", clones_of(options.decoder_layer(), options.num_layers(), "TransformerDecoder"));
  norm = registered_clone(*this, "norm", options.norm());
}

Tensor TransformerDecoderImpl::forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask,
                                       const Tensor& memory_mask, const Tensor& tgt_key_padding_mask,
                                       const Tensor& memory_key_padding_mask) {
  Tensor x = tgt;
  for (const auto& layer : *layers)
    x = call(*layer->as<TransformerDecoderLayer>(), x, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
             memory_key_padding_mask);
  return norm.is_empty() ? x : norm(x);
}

// ---- Both ----

TransformerImpl::TransformerImpl(const TransformerOptions& options) : options(options) { TransformerImpl::reset(); }

void TransformerImpl::reset() {
  const int64_t size = options.d_model();
  const auto layer = TransformerEncoderLayerOptions(size, options.nhead())
                         .dim_feedforward(options.dim_feedforward())
                         .dropout(options.dropout())
                         .activation(options.activation());
  const AnyModule norm{LayerNorm(LayerNormOptions({size}))};
  encoder = registered_clone(
      *this, "encoder",
      !options.custom_encoder().is_empty()
          ? options.custom_encoder()
          : AnyModule(TransformerEncoder(TransformerEncoderOptions(layer, options.num_encoder_layers()).norm(norm))));
  decoder = registered_clone(
      *this, "decoder",
      !options.custom_decoder().is_empty()
          ? options.custom_decoder()
          : AnyModule(TransformerDecoder(TransformerDecoderOptions(layer, options.num_decoder_layers()).norm(norm))));
  reset_parameters();
}

void TransformerImpl::reset_parameters() {
  for (const Tensor& parameter : parameters())
    if (parameter.dim() > 1) init::xavier_uniform_(parameter);
}

Tensor TransformerImpl::forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask, const Tensor& tgt_mask,
                                const Tensor& memory_mask, const Tensor& src_key_padding_mask,
                                const Tensor& tgt_key_padding_mask, const Tensor& memory_key_padding_mask) {
  const auto frame = enter();
  GRADUS_CHECK(src.dim() == 3 && tgt.dim() == 3 && src.size(1) == tgt.size(1) && src.size(2) == options.d_model() &&
                   tgt.size(2) == options.d_model(),
               ShapeError, "a Transformer takes src (S, N, ", options.d_model(), ") and tgt (T, N, ", options.d_model(),
               "), got shapes ", src.sizes(), " and ", tgt.sizes());
  const Tensor memory = encoder.forward(src, src_mask, src_key_padding_mask);
  return decoder.forward(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask);
}

Tensor TransformerImpl::generate_square_subsequent_mask(int64_t size) {
  GRADUS_CHECK(size >= 0, ValueError, "a mask of size ", size);
  return triu(full({size, size}, -std::numeric_limits<double>::infinity()), 1);
}

}  // namespace gradus::nn
