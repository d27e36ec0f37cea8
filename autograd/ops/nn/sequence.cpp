#include <gradus/autograd/ops/nn/sequence.h>

#include <cmath>
#include <limits>

#include <gradus/autograd/engine.h>
#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/nn/dropout.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/formulas/recurrent_cell.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus {

// ---- Embedding and attention ----

namespace {

struct Embedding final : Node {  // Y[…, :] = W[indices[…], :]
  Saved indices{this, "indices"};
  Shape shape;
  int64_t padding = -1;
  bool by_freq = false;
  Array forward(const Array& W, const Array& places, int64_t padding_idx, bool scale_grad_by_freq) {
    shape = W.shape(), padding = padding_idx, by_freq = scale_grad_by_freq, indices = places;
    return ops::index_select(W, 0, places);
  }
  bool backward_in_float32() const override { return by_freq; }
  Grads backward(const Tensor& dy) override {  // dW[v] = sum (by_freq: mean) of the rows of dY with index v
    const Tensor dW = zeros(shape, dy.options()), flat = indices().reshape({-1});
    dW.index_add_(0, flat, dy.reshape({flat.numel(), shape[1]}));
    if (by_freq) {
      const TensorOptions numbers = TensorOptions(kFloat).device(dy.device());
      const Tensor count = zeros({shape[0], 1}, numbers).index_add(0, flat, ones({flat.numel(), 1}, numbers));
      dW.div_(count.clamp_min(1));
    }
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

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx, bool scale_grad_by_freq, bool sparse,
                 Loc where) {
  OpScope op("embedding", where);
  check_embedding(weight, indices);
  GRADUS_CHECK(!sparse, ValueError, "sparse gradients are not supported; sparse must be false");
  GRADUS_CHECK(padding_idx >= -1 && padding_idx < weight.size(0), IndexError, "padding_idx ", padding_idx,
               " is not a row of weight ", weight.sizes());
  return apply<Embedding>(op, weight, indices.array(), padding_idx, scale_grad_by_freq);
}

const Tensor& embedding_renorm_(const Tensor& weight, const Tensor& indices, double max_norm, double norm_type,
                                Loc where) {
  OpScope op("embedding_renorm_", where);
  check_embedding(weight, indices);
  if (indices.numel() == 0) return weight;
  NoGradGuard no_grad;
  const Tensor flat = indices.reshape({-1});
  const auto renormed = [&](const Tensor& rows) {
    const Tensor norms = rows.norm(norm_type, {1}, true);
    return rows * gradus::where(norms > max_norm, max_norm / (norms + 1e-7), 1.0);
  };
  return index_copy_(weight, 0, flat, composed(op, renormed, weight.index_select(0, flat)));
}

namespace {

// softmax(scale q kᵀ + mask), composed of differentiable operators. A boolean mask excludes keys where it is false,
// another mask is added. With `causal`, query i sees keys 0 … i.
Tensor attention_weights(const Tensor& q, const Tensor& k, const Tensor& mask, double scale, bool causal) {
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  Tensor scores = matmul(q * scale, k.transpose(-2, -1));  // (…, L, S)
  Tensor seen = mask;
  if (causal) seen = ones({q.size(-2), k.size(-2)}, q.options().dtype(kBool)).tril();
  if (seen.defined() && seen.dtype() == kBool) scores = gradus::where(seen, scores, nothing);
  else if (seen.defined()) scores = scores + seen;
  if (!mask.defined()) return scores.softmax(-1);
  const Tensor is_empty = (scores == nothing).all(-1, true);  // such rows have no key, and their weights are 0
  return scores.masked_fill(is_empty, 0).softmax(-1).masked_fill(is_empty, 0);
}

// Base of the two attention nodes. Contains everything that does not depend on whether q, k and v are separate or
// packed.
struct AttentionNode : Node {
  Saved mask{this, "mask"}, y{this, "y"}, weights{this, "weights"}, kept{this, "kept"};
  AttentionRule rule;

  ops::AttentionResult run(const Array& Q, const Array& K, const Array& V, const Array& M, const AttentionRule& given) {
    ops::AttentionResult result = ops::attention(Q, K, V, M, given);
    if (!edges().empty()) rule = given, mask = M, weights = result.weights, kept = result.kept;
    return result;
  }
  ops::AttentionResult result() const { return {y.array(), weights.array(), kept.array()}; }
  // Computes the result from differentiable operators, for second derivatives.
  Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v) const {
    Tensor chosen = attention_weights(q, k, mask(), rule.scale, rule.causal);
    if (kept.defined()) chosen = chosen * (kept().to(chosen.dtype()) * (1 / (1 - rule.dropout)));
    return matmul(chosen, v);
  }
};

// Gradients of f(inputs), computed by differentiating f, with respect to the saved inputs of `node` that need them. f
// gets views of the inputs, because then each input has its own gradient even if the user passed one tensor as several.
template <class F>
Grads differentiated(const Node& node, std::initializer_list<const Saved*> saved, const Grads& dys, const F& f) {
  TensorList inputs, wanted, outputs, gradients;
  for (const Saved* input : saved) {
    const Tensor tensor = (*input)();
    inputs.push_back(tensor.defined() ? tensor.view(tensor.sizes()) : tensor);
    if (node.needs_grad(inputs.size() - 1)) wanted.push_back(inputs.back());
  }
  const TensorList results = f(inputs);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!dys[i].defined()) continue;
    outputs.push_back(results[i]);
    gradients.push_back(dys[i]);
  }
  const TensorList found = autograd::grad(outputs, wanted, gradients, /*retain_graph=*/true, /*create_graph=*/true,
                                          /*allow_unused=*/true);
  Grads result(inputs.size());
  for (size_t i = 0, next = 0; i < inputs.size(); ++i)
    if (node.needs_grad(i)) result[i] = found[next++];
  return result;
}

struct Attention final : AttentionNode {
  Saved q{this, "q"}, k{this, "k"}, v{this, "v"};

  Array forward(const Array& Q, const Array& K, const Array& V, const Array& M, const AttentionRule& given) {
    const ops::AttentionResult result = run(Q, K, V, M, given);
    if (!edges().empty()) q = input(0), k = input(1), v = input(2), y = own(result.y);
    return result.y;
  }
  Grads backward(const Tensor& dy) override {
    if (GradMode::is_enabled()) {
      const auto result = [&](const TensorList& in) { return TensorList{composed(in[0], in[1], in[2])}; };
      return differentiated(*this, {&q, &k, &v}, {dy}, result);
    }
    const Array dq = Array::empty_like(q.array()), dk = Array::empty_like(k.array()), dv = Array::empty_like(v.array());
    ops::attention_backward(dy.array(), q.array(), k.array(), v.array(), result(), rule, dq, dk, dv);
    return {Tensor(dq), Tensor(dk), Tensor(dv)};
  }
};

// Views of q, k and v in one array or tensor (N, L, 3 H E). The gradients are packed in the same way.
template <class T>
struct Parts {
  T q, k, v;
  Parts(const T& packed, int64_t heads)
      : q(part(packed, heads, 0)), k(part(packed, heads, 1)), v(part(packed, heads, 2)) {}
  static T part(const T& packed, int64_t heads, int64_t which) {  // (N, H, L, E)
    const int64_t width = packed.size(2) / 3;
    const T columns = packed.slice(2, which * width, (which + 1) * width);
    return columns.view({packed.size(0), packed.size(1), heads, width / heads}).transpose(1, 2);
  }
};

struct PackedAttention final : AttentionNode {
  Saved packed{this, "packed"};
  int64_t heads = 0;

  Array forward(const Array& P, const Array& M, int64_t count, const AttentionRule& given) {
    const Parts<Array> parts(P, count);
    const ops::AttentionResult result = run(parts.q, parts.k, parts.v, M, given);
    const Array together = result.y.transpose(1, 2).view({P.size(0), P.size(1), P.size(2) / 3});  // (N, L, H E)
    if (!edges().empty()) packed = input(0), heads = count, y = own(together);
    return together;
  }
  Grads backward(const Tensor& dy) override {
    if (GradMode::is_enabled()) {
      const auto result = [&](const TensorList& in) {
        const Parts<Tensor> parts(in[0], heads);
        return TensorList{composed(parts.q, parts.k, parts.v).transpose(1, 2).flatten(2)};
      };
      return differentiated(*this, {&packed}, {dy}, result);
    }
    const Array gradient = Array::empty_like(packed.array());
    const Parts<Array> parts(packed.array(), heads), to(gradient, heads);
    const auto by_heads = [&](const Array& x) {
      return x.view({x.shape()[0], x.shape()[1], heads, x.shape()[2] / heads}).transpose(1, 2);
    };
    ops::AttentionResult saved = result();
    saved.y = by_heads(saved.y);
    ops::attention_backward(by_heads(dy.array()), parts.q, parts.k, parts.v, saved, rule, to.q, to.k, to.v);
    return {Tensor(gradient)};
  }
};

// Returns the mask, cast as autocast casts it, for scores of this type and shape. Nothing if the kernels do not accept
// it: it would need another conversion, or it needs a gradient.
std::optional<Array> plain_mask(const OpScope& op, const Tensor& mask, DType dtype, const Shape& scores) {
  if (!mask.defined()) return Array();
  const DType type = op.type_of(mask);
  const bool plain = type == kBool || (type == dtype && !mask.requires_grad());
  if (!plain || broadcast_shapes(mask.sizes(), scores) != scores) return std::nullopt;
  return ops::cast(mask.array(), type);
}

}  // namespace

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
  GRADUS_CHECK(!is_causal || !attn_mask.defined(), ValueError,
               "is_causal already is a mask; pass only one of is_causal and attn_mask");
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  const AttentionRule rule{.scale = factor, .dropout = dropout_p, .causal = is_causal};
  const auto leads = [](const Tensor& x) { return Shape(x.sizes().data(), static_cast<size_t>(x.dim() - 2)); };
  const DType dtype = op.type_of(query);
  const bool alike = leads(key) == leads(query) && leads(value) == leads(query) && op.type_of(key) == dtype &&
                     op.type_of(value) == dtype;
  if (alike && (query.dim() == 3 || query.dim() == 4) && is_floating(dtype) && dropout_p < 1) {
    Shape scores = query.sizes();
    scores[scores.size() - 1] = key.size(-2);
    if (const auto mask = plain_mask(op, attn_mask, dtype, scores)) {
      const auto by_heads = [&](const Tensor& x) { return x.dim() == 4 ? x : x.unsqueeze(0); };
      const Tensor y = apply<Attention>(op, by_heads(query), by_heads(key), by_heads(value), *mask, rule);
      return query.dim() == 4 ? y : y.squeeze(0);
    }
  }
  Tensor weights = attention_weights(query, key, attn_mask, rule.scale, is_causal);
  if (dropout_p > 0) weights = dropout(weights, dropout_p, true);
  return matmul(weights, value);
}

Tensor self_attention(const Tensor& packed, int64_t num_heads, const Tensor& attn_mask, double dropout_p,
                      bool is_causal, Loc where) {
  OpScope op("scaled_dot_product_attention", where);
  GRADUS_CHECK(packed.dim() == 3 && num_heads > 0 && packed.size(2) % (3 * num_heads) == 0, ShapeError,
               "packed must be (N, L, 3 H E) for H = ", num_heads, " heads, got shape ", packed.sizes());
  const DType dtype = op.type_of(packed);
  const double size = static_cast<double>(packed.size(2)) / static_cast<double>(3 * num_heads);
  const auto mask = plain_mask(op, attn_mask, dtype, {packed.size(0), num_heads, packed.size(1), packed.size(1)});
  if (is_floating(dtype) && dropout_p < 1 && mask && !(is_causal && attn_mask.defined())) {
    const AttentionRule rule{.scale = 1 / std::sqrt(size), .dropout = dropout_p, .causal = is_causal};
    return apply<PackedAttention>(op, packed, *mask, num_heads, rule);
  }
  const Parts<Tensor> parts(packed, num_heads);
  const Tensor y = scaled_dot_product_attention(parts.q, parts.k, parts.v, attn_mask, dropout_p, is_causal);
  return y.transpose(1, 2).flatten(2);
}

// ---- Recurrent layers ----

namespace {

// recurrent_sequence composed of other operators, one step after another.
Tensor sequence_by_steps(RecurrentCell cell, const Tensor& x, RecurrentState& state, const RecurrentWeights& weights,
                         bool reverse) {
  const TensorList steps = unbind(linear(x, weights.w_ih, weights.b_ih));
  TensorList hidden(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t t = reverse ? steps.size() - 1 - i : i;
    state = recurrent_step(cell, steps[t], state, weights);
    hidden[t] = state.hidden;
  }
  return stack(hidden);
}

struct Recurrent final : Node {
  Saved x{this, "x"}, h0{this, "h0"}, c0{this, "c0"}, w_ih{this, "w_ih"}, w_hh{this, "w_hh"};
  Saved b_ih{this, "b_ih"}, b_hh{this, "b_hh"}, w_hr{this, "w_hr"}, hidden{this, "hidden"};
  Saved cells{this, "cells"}, outputs{this, "outputs"}, gates{this, "gates"};
  RecurrentCell cell = RecurrentCell::lstm;
  bool reverse = false;

  // The second result is the last cell state of an LSTM. No one uses it of other cells.
  std::tuple<Array, Array> forward(const Array& X, const Array& H0, const Array& C0, const Array& W_ih,
                                   const Array& W_hh, const Array& B_ih, const Array& B_hh, const Array& W_hr,
                                   RecurrentCell kind, bool reversed) {
    const ops::RecurrentStates states = ops::recurrent(kind, X, H0, C0, {W_ih, W_hh, B_ih, B_hh, W_hr}, reversed);
    if (!edges().empty()) {
      Saved* const inputs[] = {&x, &h0, &c0, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr};
      for (size_t i = 0; i < std::size(inputs); ++i) *inputs[i] = input(i);
      hidden = own(states.hidden), gates = states.gates;
      if (kind == RecurrentCell::lstm) cells = states.cells;
      if (W_hr.defined()) outputs = states.outputs;
      cell = kind, reverse = reversed;
    }
    return {states.hidden, states.cells.select(0, reversed ? 0 : -1)};
  }

  Grads backward_all(const Grads& dys) override {
    if (GradMode::is_enabled()) {
      const auto by_steps = [&](const TensorList& in) {
        RecurrentState state{in[1], in[2]};
        const Tensor all = sequence_by_steps(cell, in[0], state, {in[3], in[4], in[5], in[6], in[7]}, reverse);
        return TensorList{all, state.cell};
      };
      return differentiated(*this, {&x, &h0, &c0, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr}, dys, by_steps);
    }
    const bool is_lstm = cell == RecurrentCell::lstm, projected = w_hr.array().defined();
    const ops::RecurrentGradients gradients = ops::recurrent_backward(
        cell, detail::unwrap(dys[0]), detail::unwrap(dys[1]), x.array(), h0.array(), c0.array(),
        {w_ih.array(), w_hh.array(), b_ih.array(), b_hh.array(), w_hr.array()},
        {hidden.array(), (is_lstm ? cells : hidden).array(), (projected ? outputs : hidden).array(), gates.array()},
        reverse, needs_grad(0));
    const Array* const results[] = {&gradients.dx,    &gradients.dh0,   &gradients.dc0,   &gradients.dw_ih,
                                    &gradients.dw_hh, &gradients.db_ih, &gradients.db_hh, &gradients.dw_hr};
    Grads wanted(std::size(results));
    for (size_t i = 0; i < wanted.size(); ++i)
      if (needs_grad(i)) wanted[i] = Tensor(*results[i]);
    return wanted;
  }
};

}  // namespace

// The sigmoid of a cell's formula.
static Tensor logistic(const Tensor& x) { return sigmoid(x); }

RecurrentState recurrent_step(RecurrentCell kind, const Tensor& from_input, const RecurrentState& state,
                              const RecurrentWeights& weights) {
  const bool is_lstm = kind == RecurrentCell::lstm, is_gru = kind == RecurrentCell::gru;
  OpScope op(is_lstm ? "lstm_step" : is_gru ? "gru_step" : "rnn_step");
  const Tensor from_state = linear(state.hidden, weights.w_hh, weights.b_hh);
  const auto step = [&](const Tensor& x, const Tensor& u, const Tensor& before) {
    TensorList sums = chunk(x + u, gates_of(kind), -1);
    if (is_gru) sums[2] = chunk(u, 3, -1)[2], sums.push_back(chunk(x, 3, -1)[2]);
    return scalar::visit_cell(kind, [&]<RecurrentCell cell>() {
      for (size_t k = 0; k < sums.size(); ++k) sums[k] = scalar::recurrent_gate<cell>(static_cast<int>(k), sums[k]);
      const auto next = scalar::recurrent_cell<cell>(sums.data(), before);
      return std::tuple{next.h, next.c};
    });
  };
  // The formula of an RNN does not use the state, whose type must not decide on that of the result.
  const Tensor& before = is_lstm ? state.cell : is_gru ? state.hidden : from_state;
  const auto [h, c] = composed(op, step, from_input, from_state, before);
  return {weights.w_hr.defined() ? linear(h, weights.w_hr) : h, is_lstm ? c : Tensor()};
}

Tensor recurrent_sequence(RecurrentCell cell, const Tensor& x, RecurrentState& state, const RecurrentWeights& weights,
                          bool reverse, Loc where, const char* name) {
  const auto& [w_ih, w_hh, b_ih, b_hh, w_hr] = weights;
  const auto& [h0, c0] = std::as_const(state);
  const bool is_lstm = cell == RecurrentCell::lstm;
  OpScope op(name ? name : is_lstm ? "lstm" : cell == RecurrentCell::gru ? "gru" : "rnn", where);
  GRADUS_CHECK(x.dim() == 3 && x.size(0) > 0, ShapeError, "x must be (L, N, I) with steps, got shape ", x.sizes());
  const int64_t count = gates_of(cell);
  GRADUS_CHECK(w_ih.dim() == 2 && w_ih.size(0) % count == 0 && w_ih.size(1) == x.size(2), ShapeError, "w_ih must be (",
               count, " H, ", x.size(2), ") for x of shape ", x.sizes(), ", got shape ", w_ih.sizes());
  const int64_t size = w_ih.size(0) / count;
  const auto check = [](const Tensor& tensor, const Shape& wanted, const char* name) {
    GRADUS_CHECK(tensor.sizes() == wanted, ShapeError, name, " must be ", wanted, ", got shape ", tensor.sizes());
  };
  const int64_t state_size = w_hr.defined() && w_hr.dim() == 2 ? w_hr.size(0) : size;
  GRADUS_CHECK(is_lstm || !w_hr.defined(), ValueError, "only an LSTM projects its outputs");
  if (w_hr.defined()) check(w_hr, {state_size, size}, "w_hr");
  check(w_hh, {count * size, state_size}, "w_hh");
  check(h0, {x.size(1), state_size}, "h0");
  if (is_lstm) check(c0, {x.size(1), size}, "c0");
  GRADUS_CHECK(b_ih.defined() == b_hh.defined(), ValueError, "give both biases or none");
  if (b_ih.defined()) check(b_ih, {count * size}, "b_ih"), check(b_hh, {count * size}, "b_hh");
  // Where autocast casts products but not this operator, each step promotes its types as PyTorch does.
  const DeviceType device = x.device().type();
  if (amp::Autocast::is_enabled(device) && amp::cast_rule(device, op.name()) == amp::CastRule::none)
    return sequence_by_steps(cell, x, state, weights, reverse);
  for (const Tensor* tensor : {&h0, &c0, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr})
    GRADUS_CHECK(!tensor->defined() || op.type_of(*tensor) == op.type_of(x), DTypeError, "x is ", x.dtype(),
                 " but another argument ", tensor->dtype());
  const auto [hidden, last_cell] =
      apply<Recurrent>(op, x, h0, is_lstm ? c0 : Tensor(), w_ih, w_hh, b_ih, b_hh, w_hr, cell, reverse);
  state = {hidden.select(0, reverse ? 0 : -1), is_lstm ? last_cell : Tensor()};
  return hidden;
}

}  // namespace gradus
