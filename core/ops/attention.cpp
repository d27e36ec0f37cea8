#include <gradus/core/ops/attention.h>

#include <algorithm>
#include <optional>

namespace gradus::ops {
namespace {

// An array whose axes lie in memory in the order of x's, without gaps.
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
  std::optional<View> added;
  if (mask.defined()) added = View(mask.expand(shape));
  std::optional<MutableView> kept;
  if (result.kept.defined()) kept = MutableView(result.kept);
  backend_of(q).attention(q, k, v, added ? &*added : nullptr, rule, result.weights, kept ? &*kept : nullptr, result.y);
  return result;
}

void attention_backward(const Array& dy, const Array& q, const Array& k, const Array& v, const AttentionResult& result,
                        const AttentionRule& rule, const Array& dq, const Array& dk, const Array& dv) {
  std::optional<View> kept;
  if (result.kept.defined()) kept = View(result.kept);
  backend_of(q).attention_backward(dy, q, k, v, result.weights, kept ? &*kept : nullptr, result.y, rule, dq, dk, dv);
}

}  // namespace gradus::ops
