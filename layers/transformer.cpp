#include <gradus/layers/transformer.h>

#include <cmath>
#include <limits>
#include <ostream>

#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/nn/activation.h>
#include <gradus/autograd/ops/nn/dropout.h>
#include <gradus/autograd/ops/nn/image.h>
#include <gradus/autograd/ops/nn/loss.h>
#include <gradus/autograd/ops/nn/sequence.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>

namespace gradus::nn {

// ---- MultiheadAttention ----

void MultiheadAttentionImpl::reset() {
  const int64_t size = options.embed_dim(), heads = options.num_heads();
  GRADUS_CHECK(size > 0 && heads > 0 && size % heads == 0, ValueError, "embed_dim ", size, " cannot be divided into ",
               heads, " heads of equal size");
  GRADUS_CHECK(options.dropout() >= 0 && options.dropout() <= 1, ValueError, "dropout must be in [0, 1], got ",
               options.dropout());
  const int64_t kdim = options.kdim().value_or(size), vdim = options.vdim().value_or(size);
  const bool one_weight = kdim == size && vdim == size;
  in_proj_weight = register_parameter("in_proj_weight", one_weight ? empty({3 * size, size}) : Tensor());
  q_proj_weight = register_parameter("q_proj_weight", one_weight ? Tensor() : empty({size, size}));
  k_proj_weight = register_parameter("k_proj_weight", one_weight ? Tensor() : empty({size, kdim}));
  v_proj_weight = register_parameter("v_proj_weight", one_weight ? Tensor() : empty({size, vdim}));
  in_proj_bias = register_parameter("in_proj_bias", options.bias() ? empty({3 * size}) : Tensor());
  bias_k = register_parameter("bias_k", options.add_bias_kv() ? empty({1, 1, size}) : Tensor());
  bias_v = register_parameter("bias_v", options.add_bias_kv() ? empty({1, 1, size}) : Tensor());
  out_proj = register_module("out_proj", Linear(LinearOptions(size, size).bias(options.bias())));
  reset_parameters();
}

void MultiheadAttentionImpl::reset_parameters() {
  for (const Tensor& weight : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight})
    if (weight.defined()) init::xavier_uniform_(weight);
  if (in_proj_bias.defined()) {
    init::zeros_(in_proj_bias);
    init::zeros_(out_proj->bias);
  }
  for (const Tensor& bias : {bias_k, bias_v})
    if (bias.defined()) init::xavier_normal_(bias);
}

Tensor MultiheadAttentionImpl::combined_mask(const Tensor& attn_mask, const Tensor& key_padding_mask, int64_t batch,
                                             int64_t queries, int64_t keys, DType dtype) const {
  const double minus_infinity = -std::numeric_limits<double>::infinity();
  auto added = [&](const Tensor& mask, const char* name) {
    GRADUS_CHECK(mask.dtype() == kBool || mask.is_floating_point(), DTypeError, name,
                 " must be boolean or floating, got ", mask.dtype());
    if (mask.is_floating_point()) return mask.to(dtype);
    return masked_fill(zeros(mask.sizes(), TensorOptions(dtype).device(mask.device())), mask, minus_infinity);
  };
  Tensor combined;
  if (attn_mask.defined()) {
    const int64_t heads = options.num_heads();
    GRADUS_CHECK(
        attn_mask.sizes() == Shape({queries, keys}) || attn_mask.sizes() == Shape({batch * heads, queries, keys}),
        ShapeError, "attn_mask of shape ", attn_mask.sizes(), " is neither ", Shape({queries, keys}), " nor ",
        Shape({batch * heads, queries, keys}));
    combined = added(attn_mask, "attn_mask");
    combined = combined.view(attn_mask.dim() == 2 ? Shape{1, 1, queries, keys} : Shape{batch, heads, queries, keys});
  }
  if (key_padding_mask.defined()) {
    GRADUS_CHECK(key_padding_mask.sizes() == Shape({batch, keys}), ShapeError, "key_padding_mask of shape ",
                 key_padding_mask.sizes(), " is not ", Shape({batch, keys}));
    const Tensor padding = added(key_padding_mask, "key_padding_mask").view({batch, 1, 1, keys});
    combined = combined.defined() ? combined + padding : padding;
  }
  // Keys appended by add_bias_kv and add_zero_attn are never masked.
  const int64_t more = options.add_bias_kv() + options.add_zero_attn();
  return combined.defined() && more > 0 ? pad(combined, {0, more}) : combined;
}

TensorPair MultiheadAttentionImpl::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                           const Tensor& key_padding_mask, bool need_weights, const Tensor& attn_mask,
                                           bool average_attn_weights) {
  const auto frame = enter();
  const OpContext context("multi_head_attention");
  GRADUS_CHECK((query.dim() == 2 || query.dim() == 3) && key.dim() == query.dim() && value.dim() == query.dim(),
               ShapeError, "query, key and value need two or three dimensions each, got shapes ", query.sizes(), ", ",
               key.sizes(), " and ", value.sizes());
  const bool batched = query.dim() == 3;
  const bool steps_first = batched && !options.batch_first();  // the inputs are (L, N, features)
  auto arranged = [&](const Tensor& x) {                       // rearranges x to (N, L, features)
    return !batched ? x.unsqueeze(0) : steps_first ? x.transpose(0, 1) : x;
  };
  const Tensor q_in = arranged(query), k_in = arranged(key), v_in = arranged(value);
  const int64_t size = options.embed_dim(), heads = options.num_heads(), head = size / heads;
  const int64_t batch = q_in.size(0), queries = q_in.size(1), keys = k_in.size(1);
  GRADUS_CHECK(k_in.size(0) == batch && v_in.size(0) == batch && v_in.size(1) == keys, ShapeError,
               "query, key and value do not match: shapes ", query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  const Tensor mask = combined_mask(
      attn_mask, batched || !key_padding_mask.defined() ? key_padding_mask : key_padding_mask.unsqueeze(0), batch,
      queries, keys, query.dtype());

  // Linear layers are applied to the inputs in their original layout, so that no transposed copy is made.
  const double dropped = is_training() ? options.dropout() : 0;
  const auto output_of = [&](const Tensor& mixed) {  // mixed: (N, L, features)
    const Tensor output = out_proj(steps_first ? mixed.transpose(0, 1) : mixed);
    return batched ? output : output.squeeze(0);
  };
  const bool of_itself = query.is_same(key) && query.is_same(value) && in_proj_weight.defined();
  if (of_itself && !need_weights && !bias_k.defined() && !options.add_zero_attn()) {
    const Tensor packed = arranged(linear(query, in_proj_weight, in_proj_bias));
    return {output_of(self_attention(packed, heads, mask, dropped)), Tensor()};
  }

  auto part = [&](const Tensor& whole, int64_t i) { return whole.defined() ? whole.narrow(0, i * size, size) : whole; };
  auto weight = [&](const Tensor& own, int64_t i) { return own.defined() ? own : part(in_proj_weight, i); };
  const Tensor q = arranged(linear(query, weight(q_proj_weight, 0), part(in_proj_bias, 0)));
  Tensor k = arranged(linear(key, weight(k_proj_weight, 1), part(in_proj_bias, 1)));
  Tensor v = arranged(linear(value, weight(v_proj_weight, 2), part(in_proj_bias, 2)));
  if (bias_k.defined()) {
    k = cat({k, bias_k.expand({batch, 1, size})}, 1);
    v = cat({v, bias_v.expand({batch, 1, size})}, 1);
  }
  if (options.add_zero_attn()) {
    k = pad(k, {0, 0, 0, 1});
    v = pad(v, {0, 0, 0, 1});
  }

  auto by_heads = [&](const Tensor& x) { return x.reshape({batch, x.size(1), heads, head}).transpose(1, 2); };
  Tensor mixed, weights;  // (N, heads, L, head size), (N, heads, L, S)
  if (need_weights) {
    const Tensor scores =
        matmul(by_heads(q) * (1 / std::sqrt(static_cast<double>(head))), by_heads(k).transpose(-2, -1));
    weights = dropout(softmax(mask.defined() ? scores + mask : scores, -1), dropped, true);
    mixed = matmul(weights, by_heads(v));
    if (average_attn_weights) weights = weights.mean(1);
    if (!batched) weights = weights.squeeze(0);
  } else {
    mixed = scaled_dot_product_attention(by_heads(q), by_heads(k), by_heads(v), mask, dropped);
  }
  return {output_of(mixed.transpose(1, 2).reshape({batch, queries, size})), weights};
}

void MultiheadAttentionImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::MultiheadAttention"; }

// ---- What encoder and decoder share ----

TransformerActivation::TransformerActivation(init::Nonlinearity nonlinearity) {
  GRADUS_CHECK(nonlinearity == kReLU || nonlinearity == kGELU, ValueError,
               "the activation of a Transformer's layer is kReLU, kGELU or a function");
  function_ = [nonlinearity](const Tensor& x) { return nonlinearity == kReLU ? relu(x) : gelu(x); };
}

namespace {

/// Registers a clone of `module` under `name`, unless it is empty.
AnyModule registered_clone(Module& owner, const char* name, const AnyModule& module) {
  AnyModule clone = module.clone();
  if (!clone.is_empty()) owner.register_module(name, clone.ptr());
  return clone;
}

/// Registers the modules of an encoder or a decoder: clones of a layer, and a norm.
template <class Stack, class Layer>
void register_stack(Stack& stack, const Layer& layer, const char* name) {
  const int64_t count = stack.options.num_layers();
  GRADUS_CHECK(count > 0, ValueError, "a ", name, " of ", count, " layers");
  ModuleList layers;
  for (int64_t i = 0; i < count; ++i) layers->push_back(layer->clone());
  stack.layers = stack.register_module("layers", layers);
  stack.norm = registered_clone(stack, "norm", stack.options.norm());
}

/// Registers the modules of a layer of an encoder or a decoder. The latter also has multihead_attn, norm3 and dropout3.
template <class Layer>
void register_parts(Layer& layer) {
  constexpr bool is_decoder = std::is_same_v<Layer, TransformerDecoderLayerImpl>;
  const int64_t size = layer.options.d_model(), wide = layer.options.dim_feedforward();
  const double p = layer.options.dropout();
  const auto add = [&](const char* name, auto& member, auto made) { member = layer.register_module(name, made); };
  const auto attention = MultiheadAttentionOptions(size, layer.options.nhead()).dropout(p);
  add("self_attn", layer.self_attn, MultiheadAttention(attention));
  if constexpr (is_decoder) add("multihead_attn", layer.multihead_attn, MultiheadAttention(attention));
  add("linear1", layer.linear1, Linear(size, wide));
  add("dropout", layer.dropout, Dropout(p));
  add("linear2", layer.linear2, Linear(wide, size));
  const LayerNormOptions norm({size});
  add("norm1", layer.norm1, LayerNorm(norm));
  add("norm2", layer.norm2, LayerNorm(norm));
  if constexpr (is_decoder) add("norm3", layer.norm3, LayerNorm(norm));
  add("dropout1", layer.dropout1, Dropout(p));
  add("dropout2", layer.dropout2, Dropout(p));
  if constexpr (is_decoder) add("dropout3", layer.dropout3, Dropout(p));
}

}  // namespace

// ---- Encoder ----

void TransformerEncoderLayerImpl::reset() { register_parts(*this); }

Tensor TransformerEncoderLayerImpl::forward(const Tensor& src, const Tensor& src_mask,
                                            const Tensor& src_key_padding_mask) {
  const auto frame = enter();
  const Tensor attended = std::get<0>(self_attn(src, src, src, src_key_padding_mask, false, src_mask));
  const Tensor x = norm1(src + dropout1(attended));
  return norm2(x + dropout2(linear2(dropout(options.activation()(linear1(x))))));
}

void TransformerEncoderImpl::reset() { register_stack(*this, options.encoder_layer(), "TransformerEncoder"); }

Tensor TransformerEncoderImpl::forward(const Tensor& src, const Tensor& src_mask, const Tensor& src_key_padding_mask) {
  Tensor x = src;
  for (const auto& layer : *layers) x = call(*layer->as<TransformerEncoderLayer>(), x, src_mask, src_key_padding_mask);
  return norm.is_empty() ? x : norm(x);
}

// ---- Decoder ----

void TransformerDecoderLayerImpl::reset() { register_parts(*this); }

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

void TransformerDecoderImpl::reset() { register_stack(*this, options.decoder_layer(), "TransformerDecoder"); }

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
