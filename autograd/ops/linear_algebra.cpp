#include <gradus/autograd/ops/linear_algebra.h>

#include <algorithm>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

// Reshapes (…, K) to a matrix. The number of rows is passed because it cannot be inferred for K = 0.
Tensor as_rows(const Tensor& x) {
  const Shape lead(x.sizes().data(), static_cast<size_t>(x.dim() - 1));
  return x.reshape({numel_of(lead), x.size(-1)});
}

struct MatMul final : Node {  // Y = A B; a vector is a row on the left and a column on the right
  Saved a{this, "a"}, b{this, "b"};
  bool row = false, column = false;

  Array forward(const Array& A, const Array& B) {
    if (needs_grad(0)) b = input(1);
    if (needs_grad(1)) a = input(0);
    row = A.ndim() == 1, column = B.ndim() == 1;
    return ops::matmul(A, B);
  }

  bool backward_in_float32() const override { return sums_batches(0) || sums_batches(1); }
  Grads backward(const Tensor& dy) override {  // dA = dY Bᵀ,  dB = Aᵀ dY; the engine sums over broadcast batches
    Tensor dY = column ? dy.unsqueeze(-1) : dy;
    if (row) dY = dY.unsqueeze(-2);
    Grads gradients(2);
    if (needs_grad(0)) {
      const Tensor B = column ? b().unsqueeze(-1) : b();
      const Tensor dA = matmul(dY, B.transpose(-2, -1));
      gradients[0] = row ? dA.squeeze(-2) : dA;
    }
    if (needs_grad(1)) {
      Tensor A = row ? a().unsqueeze(0) : a();
      const bool shared = !column && b_is_matrix() && A.dim() > 2;
      if (shared) {  // one matrix for all batches: compute one tall product instead of a sum of products
        A = as_rows(A);
        dY = as_rows(dY);
      }
      const Tensor dB = matmul(A.transpose(-2, -1), dY);
      gradients[1] = column ? dB.squeeze(-1) : dB;
    }
    return gradients;
  }

 private:
  const Shape& shape_of(size_t i) const { return edges()[i].node->outputs()[edges()[i].input].shape; }
  bool b_is_matrix() const { return shape_of(1).size() == 2; }
  // True if the gradient of operand i is a sum of products over batches instead of a single product.
  bool sums_batches(size_t i) const {
    if (!needs_grad(i)) return false;
    const Shape &shape = shape_of(i), &y = outputs()[0].shape;
    const int vectors = row + column, batches = y.size() - 2 + vectors;
    if (i == 1 && shape.size() == 2) return false;  // backward computes one tall product
    if (shape.size() - (i == 0 ? 2 - row : 2 - column) != batches) return true;
    for (int k = 0; k < batches; ++k)
      if (shape[k] != y[k]) return true;
    return false;
  }
};

struct Linear final : Node {  // Y = X Wᵀ + b
  Saved x{this, "x"}, w{this, "weight"};

  Array forward(const Array& X, const Array& W, const Array& bias) {
    if (needs_grad(0)) w = input(1);
    if (needs_grad(1)) x = input(0);
    return ops::linear(X, W, bias);
  }

  Grads backward(const Tensor& dy) override {  // dX = dY W,  dW = dYᵀ X,  db = sum of dY's rows
    const Tensor rows = as_rows(dy);
    return {needs_grad(0) ? matmul(dy, w()) : Tensor(), needs_grad(1) ? matmul(rows.t(), as_rows(x())) : Tensor(),
            needs_grad(2) ? rows.sum({0}) : Tensor()};
  }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Loc where) {
  OpScope op("matmul", where);
  return apply<MatMul>(op, a, b);
}

Tensor mm(const Tensor& a, const Tensor& b, Loc where) {
  OpScope op("mm", where);
  GRADUS_CHECK(a.dim() == 2 && b.dim() == 2, ShapeError, "mm needs two matrices, got shapes ", a.sizes(), " and ",
               b.sizes(), "; use matmul");
  return apply<MatMul>(op, a, b);
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Loc where) {
  return apply<Linear>({"linear", where}, x, w, bias);
}

namespace {

void check_dims(const Tensor& x, int64_t dims, const char* what, const char* layout) {
  GRADUS_CHECK(x.dim() == dims, ShapeError, what, " must have ", dims, dims == 1 ? " dimension " : " dimensions ",
               layout, ", got shape ", x.sizes());
}

void check_mv(const Tensor& matrix, const Tensor& vector) {
  check_dims(matrix, 2, "matrix", "(M, N)");
  check_dims(vector, 1, "vector", "(N)");
}

void check_product(const Tensor& a, const Tensor& b) {
  const int64_t k = a.size(-1), rows = b.size(b.dim() == 1 ? 0 : -2);
  GRADUS_CHECK(k == rows, ShapeError, "inner sizes differ: ", a.sizes(), " times ", b.sizes(), " would join ", k,
               " with ", rows);
}

void check_batches(const Tensor& a, const Tensor& b) {
  GRADUS_CHECK(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0), ShapeError,
               "needs two batches with the same number of matrices, (B, M, K) and (B, K, N), got shapes ", a.sizes(),
               " and ", b.sizes());
  check_product(a, b);
}

void check_broadcasts(const Tensor& x, const Shape& product) {
  GRADUS_CHECK(broadcast_shapes(x.sizes(), product) == product, ShapeError, "x of shape ", x.sizes(),
               " does not broadcast to the product's ", product);
}

struct AddMM final : Node {  // Y = X + A B, for matrices or batches
  Saved a{this, "a"}, b{this, "b"};

  Array forward(const Array& X, const Array& A, const Array& B) {
    if (needs_grad(1)) b = input(2);
    if (needs_grad(2)) a = input(1);
    return ops::addmm(X, A, B);
  }

  Grads backward(const Tensor& dy) override {  // dX = dY, summed over broadcast dimensions,  dA = dY Bᵀ,  dB = Aᵀ dY
    return {dy, needs_grad(1) ? matmul(dy, b().transpose(-2, -1)) : Tensor(),
            needs_grad(2) ? matmul(a().transpose(-2, -1), dy) : Tensor()};
  }
};

// Returns beta x + alpha a b, from separate operators. x must broadcast to the product's shape. If beta is 0, x is
// ignored, even if it contains NaN, and its gradient is 0.
Tensor blended(const OpScope& op, const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& of_x,
               const Scalar& of_product) {
  const auto blend = [&](const Tensor& x, const Tensor& a, const Tensor& b) {
    const Tensor product = matmul(a, b);
    const DType type = promote_types(x.dtype(), product.dtype());
    const Scalar beta = number_of(of_x, type), alpha = number_of(of_product, type);
    check_broadcasts(x, product.sizes());
    const Tensor scaled = alpha.to_double() == 1 ? product : product * alpha;
    if (beta.to_double() != 0) return beta.to_double() == 1 ? x + scaled : x * beta + scaled;
    if (!x.requires_grad()) return scaled;
    return gradus::where(full({}, false, x.options().dtype(kBool)), x, scaled);
  };
  return composed(op, blend, x, a, b);
}

// Returns beta x + alpha a b for matrices or batches with matching sizes. If beta and alpha are 1, one kernel starts
// its sums with x.
Tensor add_product(OpScope& op, const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta,
                   const Scalar& alpha) {
  const bool plain = beta.to_double() == 1 && alpha.to_double() == 1 && op.type_of(x) == op.type_of(a) &&
                     op.type_of(a) == op.type_of(b) && a.dtype() != kBool;
  if (!plain) return blended(op, x, a, b, beta, alpha);
  Shape product = a.sizes();
  product[product.size() - 1] = b.size(-1);
  check_broadcasts(x, product);
  return apply<AddMM>(op, x, a, b);
}

}  // namespace

Tensor bmm(const Tensor& a, const Tensor& b, Loc where) {
  OpScope op("bmm", where);
  check_batches(a, b);
  return matmul(a, b);
}

Tensor Tensor::addmm(const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Loc where) const {
  OpScope op("addmm", where);
  check_dims(a, 2, "a", "(M, K)");
  check_dims(b, 2, "b", "(K, N)");
  check_product(a, b);
  return add_product(op, *this, a, b, beta, alpha);
}

Tensor addmv(const Tensor& x, const Tensor& matrix, const Tensor& vector, const Scalar& beta, const Scalar& alpha,
             Loc where) {
  OpScope op("addmv", where);
  check_mv(matrix, vector);
  return blended(op, x, matrix, vector, beta, alpha);
}

Tensor Tensor::baddbmm(const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Loc where) const {
  OpScope op("baddbmm", where);
  check_batches(a, b);
  return add_product(op, *this, a, b, beta, alpha);
}

Tensor mv(const Tensor& matrix, const Tensor& vector, Loc where) {
  OpScope op("mv", where);
  check_mv(matrix, vector);
  return matmul(matrix, vector);
}

Tensor dot(const Tensor& a, const Tensor& b, Loc where) {
  OpScope op("dot", where);
  GRADUS_CHECK(a.dim() == 1 && b.dim() == 1 && a.numel() == b.numel(), ShapeError,
               "needs two vectors of one length, got shapes ", a.sizes(), " and ", b.sizes());
  return matmul(a, b);
}

Tensor outer(const Tensor& a, const Tensor& b, Loc where) {
  OpScope op("outer", where);
  GRADUS_CHECK(a.dim() == 1 && b.dim() == 1, ShapeError, "needs two vectors, got shapes ", a.sizes(), " and ",
               b.sizes());
  return a.unsqueeze(1) * b;
}

Tensor trace(const Tensor& x, Loc where) {
  OpScope op("trace", where);
  check_dims(x, 2, "x", "(M, N)");
  return x.diagonal(0, 0, 1).sum();
}

Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim, Loc where) {
  OpScope op("cross", where);
  GRADUS_CHECK(a.sizes() == b.sizes(), ShapeError, "the tensors must have one shape, got ", a.sizes(), " and ",
               b.sizes());
  const auto first = std::ranges::find(a.sizes(), 3) - a.sizes().begin();
  const int axis = dim ? axis_of(a, *dim) : static_cast<int>(first);
  GRADUS_CHECK(axis < a.dim() && a.sizes()[axis] == 3, ShapeError, "needs a dimension of size 3, got shape ",
               a.sizes());
  const auto ahead = [&](const Tensor& x, int64_t by) { return x.roll({-by}, {axis}); };
  const auto product = [&](const Tensor& a, const Tensor& b) {
    return ahead(a, 1) * ahead(b, 2) - ahead(a, 2) * ahead(b, 1);
  };
  return composed(op, product, a, b);
}

Tensor tensordot(const Tensor& a, const Tensor& b, IntArrayRef dims_a, IntArrayRef dims_b, Loc where) {
  OpScope op("tensordot", where);
  GRADUS_CHECK(dims_a.size() == dims_b.size(), ShapeError, "dimensions ", dims_a, " and ", dims_b, " differ in number");
  Dims last, first;  // the paired dimensions become the last ones of a and the first ones of b
  for (int i = 0; i < dims_a.size(); ++i) {
    const int from_a = axis_of(a, dims_a[i]), from_b = axis_of(b, dims_b[i]);
    GRADUS_CHECK(a.size(from_a) == b.size(from_b), ShapeError, "dimension ", from_a, " of shape ", a.sizes(),
                 " and dimension ", from_b, " of shape ", b.sizes(), " differ");
    last.push_back(i - dims_a.size());
    first.push_back(i);
  }
  const Tensor left = a.movedim(dims_a, last), right = b.movedim(dims_b, first);
  const Shape rows(left.sizes().data(), static_cast<size_t>(left.dim() - first.size()));
  const Shape columns = right.sizes().slice(static_cast<size_t>(first.size()));
  Shape shape = rows;
  for (int64_t size : columns) shape.push_back(size);
  const int64_t depth = numel_of(left.sizes().slice(static_cast<size_t>(rows.size())));
  return matmul(left.reshape({numel_of(rows), depth}), right.reshape({depth, numel_of(columns)})).reshape(shape);
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim, double eps, Loc where) {
  OpScope op("cosine_similarity", where);
  const Shape shape = broadcast_shapes(a.sizes(), b.sizes());
  const int axis = normalize_axis(dim, shape.size());
  const DType dtype = promote_types(op.type_of(a), op.type_of(b)), wide = dtype == kDouble ? kDouble : kFloat;
  GRADUS_CHECK(is_floating(dtype), DTypeError, "needs a floating type, got ", a.dtype(), " and ", b.dtype());
  // Divides each vector by its norm first, because the product of two norms could overflow. The norm is sqrt(max(x²,
  // eps²)), which has a gradient at 0.
  const auto unit = [&](const Tensor& x) {
    const Tensor full = x.to(wide).expand(shape);
    return full / (full * full).sum({axis}, true).clamp(eps * eps).sqrt();
  };
  return (unit(a) * unit(b)).sum({axis}).to(dtype);
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p, double eps, bool keepdim, Loc where) {
  OpScope op("pairwise_distance", where);
  const auto distance = [&](const Tensor& a, const Tensor& b) { return (a - b + eps).norm(p, {-1}, keepdim); };
  return composed(op, distance, a, b);
}

// ---- Methods ----

Tensor Tensor::bmm(const Tensor& other, Loc where) const { return gradus::bmm(*this, other, where); }
Tensor Tensor::mv(const Tensor& vector, Loc where) const { return gradus::mv(*this, vector, where); }
Tensor Tensor::dot(const Tensor& other, Loc where) const { return gradus::dot(*this, other, where); }
Tensor Tensor::outer(const Tensor& other, Loc where) const { return gradus::outer(*this, other, where); }

}  // namespace gradus
