#include <gradus/core/ops/attention.h>

#include <algorithm>

namespace gradus::ops {
namespace {

// An array of the given shape without gaps, whose axes have the same order in memory as x's.
Array empty_in_order_of(const Array& x, const Shape& shape) {
  const Dims order = axes_by_stride(x.strides());
  Strides strides = Dims::filled(x.ndim(), 1);
  int64_t step = 1;
  for (int i = order.size() - 1; i >= 0; --i) strides[order[i]] = step, step *= std::max<int64_t>(shape[order[i]], 1);
  return Array::empty_strided(shape, strides, x.dtype(), x.device());
}

}  // namespace

AttentionResult attention(const Array& q, const Array& k, const Array& v, const Array& mask, AttentionRule rule,
                          Generator& generator) {
  const Shape shape = {q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]};
  AttentionResult result;
  result.y = empty_in_order_of(q, {shape[0], shape[1], shape[2], v.shape()[3]});
  result.weights = Array::empty(shape, q.dtype(), q.device());
  if (rule.dropout > 0) {
    result.kept = Array::empty(shape, DType::boolean, q.device());
    rule.random = generator.next();
  }
  backend_of(q).attention({.q = q,
                           .k = k,
                           .v = v,
                           .mask = mask.defined() ? mask.expand(shape) : mask,
                           .rule = rule,
                           .weights = result.weights,
                           .kept = result.kept,
                           .y = result.y});
  return result;
}

void attention_backward(const Array& dy, const Array& q, const Array& k, const Array& v, const AttentionResult& result,
                        const AttentionRule& rule, const Array& dq, const Array& dk, const Array& dv) {
  backend_of(q).attention_backward({.dy = dy,
                                    .q = q,
                                    .k = k,
                                    .v = v,
                                    .weights = result.weights,
                                    .kept = result.kept,
                                    .y = result.y,
                                    .rule = rule,
                                    .dq = dq,
                                    .dk = dk,
                                    .dv = dv});
}

}  // namespace gradus::ops
