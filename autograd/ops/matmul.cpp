#include <gradus/autograd/ops/matmul.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/core/ops/matmul.h>

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
      const bool shared = edges()[1].node && !column && b_is_matrix() && A.dim() > 2;
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
    if (i == 1 && !column && shape.size() == 2) return false;  // one tall product
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
    Grads gradients(3);
    if (needs_grad(0)) gradients[0] = matmul(dy, w());
    if (needs_grad(1)) gradients[1] = matmul(rows.t(), as_rows(x()));
    if (needs_grad(2)) gradients[2] = rows.sum({0});
    return gradients;
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
  OpScope op("linear", where);
  return apply<Linear>(op, x, w, bias);
}

}  // namespace gradus
