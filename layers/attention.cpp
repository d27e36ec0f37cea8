#include <gradus/layers/attention.h>

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

MultiheadAttentionImpl::MultiheadAttentionImpl(const MultiheadAttentionOptions& options) : options(options) {
  MultiheadAttentionImpl::reset();
}

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

std::tuple<Tensor, Tensor> MultiheadAttentionImpl::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                           const Tensor& key_padding_mask, bool need_weights,
                                                           const Tensor& attn_mask, bool average_attn_weights) {
  const auto frame = enter();
  const OpContext context("multi_head_attention");
  GRADUS_CHECK((query.dim() == 2 || query.dim() == 3) && key.dim() == query.dim() && value.dim() == query.dim(),
               ShapeError, "query, key and value need two or three dimensions each, got shapes ", query.sizes(), ", ",
               key.sizes(), " and ", value.sizes());
  const bool batched = query.dim() == 3;
  const bool steps_first = batched && !options.batch_first();  // the inputs are (L, N, features)
  auto arranged = [&](const Tensor& x) {                       // to (N, L, features)
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

  // Linear layers get the arguments in their original layout, without a transposed copy.
  const double dropped = is_training() ? options.dropout() : 0;
  const auto output_of = [&](const Tensor& mixed) {  // (N, L, features)
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

}  // namespace gradus::nn
