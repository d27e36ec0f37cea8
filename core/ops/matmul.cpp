#include <gradus/core/ops/ops.h>

#include <algorithm>

namespace gradus::ops {

static bool broadcasts(const Shape& a, const Shape& b) {
  for (int i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const int64_t m = a[a.size() - i], n = b[b.size() - i];
    if (m != n && m != 1 && n != 1) return false;
  }
  return true;
}

Array matmul(const Array& a, const Array& b) {
  check_same_device({&a, &b});
  GRADUS_CHECK(b.defined(), ValueError, "the second argument is undefined; the first has shape ", a.shape());
  GRADUS_CHECK(a.ndim() > 0 && b.ndim() > 0, ShapeError, "both arguments need at least one dimension, got shapes ",
               a.shape(), " and ", b.shape());
  check_same_dtype(a, "the first argument", b, "the second");
  GRADUS_CHECK(a.dtype() != DType::boolean, DTypeError, "booleans have no matrix product; convert with .to(kFloat)");
  const Array left = a.ndim() == 1 ? a.unsqueeze(0) : a, right = b.ndim() == 1 ? b.unsqueeze(1) : b;
  const int64_t m = left.size(-2), k = left.size(-1), n = right.size(-1);
  GRADUS_CHECK(k == right.size(-2), ShapeError, "inner sizes differ: ", a.shape(), " times ", b.shape(), " would join ",
               k, " with ", right.size(-2));
  const Shape lead_a(left.shape().data(), static_cast<size_t>(left.ndim() - 2));
  const Shape lead_b(right.shape().data(), static_cast<size_t>(right.ndim() - 2));
  GRADUS_CHECK(broadcasts(lead_a, lead_b), ShapeError, "batches do not broadcast: ", lead_a, " of ", a.shape(), " and ",
               lead_b, " of ", b.shape());
  const Shape lead = broadcast_shapes(lead_a, lead_b);
  auto with_matrix = [&](int64_t rows, int64_t columns) {
    Shape shape = lead;
    shape.push_back(rows), shape.push_back(columns);
    return shape;
  };

  // (…, M, K) times a single matrix is one product with more rows.
  if (lead_b.size() == 0 && lead_a.size() > 0) {
    const Array y = matmul(reshape(left, {numel_of(lead) * m, k}), right).view(with_matrix(m, n));
    return b.ndim() == 1 ? y.squeeze(-1) : y;
  }
  Array y = Array::empty(with_matrix(m, n), a.dtype(), a.device());
  if (y.numel() > 0) {
    if (k == 0) fill(y, 0);
    else backend_of(y).matmul(left.expand(with_matrix(m, k)), right.expand(with_matrix(k, n)), y, false);
  }
  if (b.ndim() == 1) y = y.squeeze(-1);
  if (a.ndim() == 1) y = y.squeeze(b.ndim() == 1 ? -1 : -2);
  return y;
}

Array addmm(const Array& x, const Array& a, const Array& b) {
  check_same_device({&x, &a, &b});
  Shape shape = a.shape();
  shape[shape.size() - 1] = b.size(-1);
  Array y = a.new_empty(shape);
  if (y.numel() == 0) return y;
  backend_of(y).copy(x.expand(shape), y);
  backend_of(y).matmul(a, b, y, /*accumulate=*/true);
  return y;
}

Array linear(const Array& x, const Array& w, const Array& bias) {
  check_same_device({&x, &w, &bias});
  check_ndim(w, 2, "weight", "(out, in)");
  GRADUS_CHECK(x.ndim() >= 1, ShapeError, "input needs at least one dimension (…, in), got a scalar");
  check_floating(x, "input");
  check_same_dtype(x, "input", w, "weight");
  const int64_t in = w.shape()[1], out = w.shape()[0];
  GRADUS_CHECK(x.size(-1) == in, ShapeError, "weight expects ", in, " input features, got x of shape ", x.shape());
  if (bias.defined()) {
    GRADUS_CHECK(bias.shape() == Shape({out}), ShapeError, "bias must have shape (", out, ",) to go with weight ",
                 w.shape(), ", got ", bias.shape());
    check_same_dtype(x, "input", bias, "bias");
  }
  Shape shape = x.shape();
  shape[shape.size() - 1] = out;
  const int64_t rows = in > 0 ? x.numel() / in : numel_of(shape) / (out > 0 ? out : 1);
  Array y = x.new_empty({rows, out});
  if (y.numel() > 0) backend_of(x).linear(reshape(x, {rows, in}), w, bias, y);
  return y.view(shape);
}

}  // namespace gradus::ops
