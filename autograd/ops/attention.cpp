#include <gradus/autograd/ops/attention.h>

#include <cmath>
#include <limits>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/dropout.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/matmul.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/core/ops/index.h>

namespace gradus {
namespace {

struct Embedding final : Node {  // Y[…, :] = W[indices[…], :]
  Saved indices{this, "indices"};
  Shape shape;
  int64_t padding = -1;
  Array forward(const Array& W, const Array& places, int64_t padding_idx) {
    shape = W.shape(), padding = padding_idx, indices = places;
    return ops::index_select(W, 0, places);
  }
  Grads backward(const Tensor& dy) override {  // dW = the sum of the rows of dY that each row went to, in order
    const Tensor dW = zeros(shape, dy.options());
    dW.index_add_(0, indices().reshape({-1}), dy.reshape({-1, shape[1]}));
    if (padding >= 0) dW.select(0, padding).zero_();
    return {dW};
  }
};

void check_embedding(const Tensor& weight, const Tensor& indices) {
  GRADUS_CHECK(weight.dim() == 2, ShapeError, "weight must be a matrix (V, D), got shape ", weight.sizes());
  GRADUS_CHECK(indices.dtype() == kLong || indices.dtype() == kInt, DTypeError, "indices must be int64 or int32, got ",
               indices.dtype(), "; weight comes first, then the indices");
}

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx, Loc where) {
  OpScope op("embedding", where);
  check_embedding(weight, indices);
  GRADUS_CHECK(padding_idx >= -1 && padding_idx < weight.size(0), IndexError, "padding_idx ", padding_idx,
               " is not a row of weight ", weight.sizes());
  return apply<Embedding>(op, weight, indices.array(), padding_idx);
}

const Tensor& embedding_renorm_(const Tensor& weight, const Tensor& indices, double max_norm, double norm_type,
                                Loc where) {
  OpScope op("embedding_renorm_", where);
  check_embedding(weight, indices);
  NoGradGuard no_grad;
  const Tensor flat = indices.reshape({-1}, where), rows = weight.index_select(0, flat, where);
  const Tensor norms = rows.norm(norm_type, {1}, true, where);
  const Tensor scale = gradus::where(norms > max_norm, max_norm / (norms + 1e-7), 1.0);
  return index_copy_(weight, 0, flat, rows * scale, where);
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, Loc where) {
  OpScope op("scaled_dot_product_attention", where);
  GRADUS_CHECK(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2, ShapeError,
               "query, key and value need at least two dimensions, got shapes ", query.sizes(), ", ", key.sizes(),
               " and ", value.sizes());
  GRADUS_CHECK(query.size(-1) == key.size(-1), ShapeError, "query of shape ", query.sizes(), " and key of shape ",
               key.sizes(), " differ in their last dimension");
  GRADUS_CHECK(key.size(-2) == value.size(-2), ShapeError, "key of shape ", key.sizes(), " and value of shape ",
               value.sizes(), " differ in their number of rows");
  GRADUS_CHECK(!is_causal || !attn_mask.defined(), ValueError, "is_causal is a mask of its own; give it or attn_mask");
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  constexpr double nothing = -std::numeric_limits<double>::infinity();

  Tensor scores = matmul(query * factor, key.transpose(-2, -1, where), where);  // (…, L, S)
  Tensor seen = attn_mask;
  if (is_causal) seen = ones({query.size(-2), key.size(-2)}, TensorOptions(kBool).device(query.device())).tril();
  if (seen.defined() && seen.dtype() == kBool) scores = gradus::where(seen, scores, nothing);
  else if (seen.defined()) scores = scores + seen;
  Tensor weights = scores.softmax(-1, where);
  if (dropout_p > 0) weights = dropout(weights, dropout_p, true, where);
  return matmul(weights, value, where);
}

}  // namespace gradus
