// Default bodies of attention (matrix products, softmax and dropout) and its gradient, of dropout, and of linear.
#include <cmath>

#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

namespace {

// Batched matrix product.
Array product(Backend& backend, const View& a, const View& b) {
  Array y = Array::empty({a.shape[0], a.shape[1], a.shape[2], b.shape[3]}, a.dtype, a.device);
  backend.matmul(a, b, y, /*accumulate=*/false);
  return y;
}

// The causal mask (1, 1, L, S): true where the key is not later than the query.
Array earlier_keys(Backend& backend, const Array& scores) {
  const auto numbers = [&](int axis) {
    const Array count = Array::empty({scores.shape()[axis]}, DType::i64, scores.device());
    backend.arange(count, 0, 1);
    return count;
  };
  const Array queries = numbers(2), keys = numbers(3);
  return Arithmetic(backend)(ge, along(View(queries), 2, 4), along(View(keys), 3, 4));
}

}  // namespace

void Backend::attention(const AttentionArgs& args) {
  const auto& [q, k, v, mask, rule, weights, kept, y] = args;
  const Arithmetic math(*this);
  const Array scores = product(*this, math(mul, q, rule.scale), transposed(k));
  const auto keep = [&](const View& seen) {
    math.where(seen, scores, math.scalar(-INFINITY, scores.dtype(), scores.device()), scores);
  };
  if (mask && mask.dtype == DType::boolean) keep(mask);
  else if (mask) binary(add, scores, mask, scores);
  if (rule.causal) keep(earlier_keys(*this, scores));
  softmax(scores, 3, SoftmaxKind::or_zeros, weights);
  if (!kept) return matmul(weights, v, y, /*accumulate=*/false);
  dropout(weights, rule.dropout, rule.random, kept, scores);
  matmul(scores, v, y, /*accumulate=*/false);
}

void Backend::attention_backward(const AttentionBackwardArgs& args) {
  const auto& [dy, q, k, v, weights, kept, y, rule, dq, dk, dv] = args;
  Array dweights = product(*this, dy, transposed(v)), dscores = Array::empty(weights.shape, q.dtype, q.device);
  if (kept) {
    dropout_backward(weights, kept, rule.dropout, dscores);
    matmul(transposed(dscores), dy, dv, /*accumulate=*/false);
    dropout_backward(dweights, kept, rule.dropout, dscores);
    std::swap(dweights, dscores);
  } else {
    matmul(transposed(weights), dy, dv, /*accumulate=*/false);
  }
  softmax_backward(dweights, weights, 3, /*log=*/false, dscores);
  binary_scalar(mul, dscores, rule.scale, /*scalar_first=*/false, dscores);
  matmul(dscores, k, dq, /*accumulate=*/false);
  matmul(transposed(dscores), q, dk, /*accumulate=*/false);
}

void Backend::dropout(const View& x, double p, const RandomState& state, const MutableView& mask,
                      const MutableView& y) {
  bernoulli(mask, state, 1 - p);
  dropout_backward(x, mask, p, y);  // y has the same formula: x * mask / (1 - p)
}

void Backend::dropout_backward(const View& dy, const View& mask, double p, const MutableView& dx) {
  const Arithmetic math(*this);
  const Array scaled = math(mul, dy, 1 / (1 - p));
  // A selection, because scaled * mask would be infinity times 0 for p = 1.
  math.where(mask, scaled, math.scalar(0, dy.dtype, dy.device), dx);
}

void Backend::linear(const View& x, const View& w, const View& bias, const MutableView& y) {
  if (bias) copy(expanded(bias, y.shape), y);
  matmul(x, transposed(w), y, /*accumulate=*/static_cast<bool>(bias));
}

}  // namespace gradus
