// The default bodies of Backend::attention and its gradient, made of the products, softmax and dropout.
#include <gradus/core/backend.h>

#include <limits>
#include <utility>

namespace gradus {
namespace {

View transposed(View view) {
  std::swap(view.shape[2], view.shape[3]), std::swap(view.strides[2], view.strides[3]);
  return view;
}

// Of a batch of matrices.
class Matrices {
 public:
  explicit Matrices(Backend& backend) : backend_(backend) {}

  Array product(const View& a, const View& b) const {
    Array y = Array::empty({a.shape[0], a.shape[1], a.shape[2], b.shape[3]}, a.dtype, a.device);
    backend_.matmul(a, b, y, /*accumulate=*/false);
    return y;
  }
  Array scaled(const View& x, double factor) const {
    Array y = Array::empty(x.shape, x.dtype, x.device);
    backend_.binary_scalar(BinaryOp::mul, x, factor, /*scalar_first=*/false, y);
    return y;
  }
  // Minus infinity where a boolean mask is false.
  void mask(const View& seen, const Array& scores) const {
    const Array nothing = Array::empty({}, scores.dtype(), scores.device());
    backend_.fill(nothing, -std::numeric_limits<double>::infinity());
    View everywhere(nothing);
    everywhere.shape = scores.shape(), everywhere.strides = Dims::filled(4, 0);
    backend_.where(seen, scores, everywhere, scores);
  }
  void mask_later_keys(const Array& scores) const {
    const Shape& shape = scores.shape();
    const auto numbers = [&](int axis) {
      const Array count = Array::empty({shape[axis]}, DType::i64, scores.device());
      backend_.arange(count, 0, 1);
      return count;
    };
    const Array queries = numbers(2), keys = numbers(3);
    const auto broadcast = [&](const Array& count, int axis) {
      View view(count);
      view.shape = shape, view.strides = Dims::filled(4, 0), view.strides[axis] = 1;
      return view;
    };
    const Array seen = Array::empty(shape, DType::boolean, scores.device());
    backend_.binary(BinaryOp::ge, broadcast(queries, 2), broadcast(keys, 3), seen);
    mask(seen, scores);
  }

 private:
  Backend& backend_;
};

}  // namespace

void Backend::attention(const View& q, const View& k, const View& v, const View* mask, const AttentionRule& rule,
                        const MutableView& weights, const MutableView* kept, const MutableView& y) {
  const Matrices matrices(*this);
  const Array scores = matrices.product(matrices.scaled(q, rule.scale), transposed(k));
  if (mask && mask->dtype == DType::boolean) matrices.mask(*mask, scores);
  else if (mask) binary(BinaryOp::add, scores, *mask, scores);
  if (rule.causal) matrices.mask_later_keys(scores);
  softmax(scores, 3, /*log=*/false, weights);
  if (!kept) return matmul(weights, v, y, /*accumulate=*/false);
  dropout(weights, rule.dropout, rule.random, *kept, scores);
  matmul(scores, v, y, /*accumulate=*/false);
}

void Backend::attention_backward(const View& dy, const View& q, const View& k, const View& v, const View& weights,
                                 const View* kept, const View&, const AttentionRule& rule, const MutableView& dq,
                                 const MutableView& dk, const MutableView& dv) {
  const Matrices matrices(*this);
  Array dweights = matrices.product(dy, transposed(v)), dscores = Array::empty(weights.shape, q.dtype, q.device);
  if (kept) {
    dropout_backward(weights, *kept, rule.dropout, dscores);
    matmul(transposed(dscores), dy, dv, /*accumulate=*/false);
    dropout_backward(dweights, *kept, rule.dropout, dscores);
    std::swap(dweights, dscores);
  } else {
    matmul(transposed(weights), dy, dv, /*accumulate=*/false);
  }
  softmax_backward(dweights, weights, 3, /*log=*/false, dscores);
  binary_scalar(BinaryOp::mul, dscores, rule.scale, /*scalar_first=*/false, dscores);
  matmul(dscores, k, dq, /*accumulate=*/false);
  matmul(transposed(dscores), q, dk, /*accumulate=*/false);
}

}  // namespace gradus
