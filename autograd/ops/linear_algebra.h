// Products of matrices and vectors, and distances between vectors.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// torch.matmul: products of vectors, matrices and batches, with broadcasting.
Tensor matmul(const Tensor& a, const Tensor& b, Loc where = Loc::current());
Tensor mm(const Tensor& a, const Tensor& b, Loc where = Loc::current());
/// x wᵀ + bias: x (…, in), w (out, in), bias (out) or undefined.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Loc where = Loc::current());

/// (B, M, K) (B, K, N) -> (B, M, N): one product for each batch element.
Tensor bmm(const Tensor& a, const Tensor& b, Loc where = Loc::current());
/// beta * x + alpha * a b, with x broadcast to the product's shape. addmm multiplies matrices, addmv a matrix and a
/// vector, baddbmm batches of matrices. If beta is 0, NaN and infinities in x have no effect, and the gradient of x is
/// 0.
inline Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1,
                    Loc where = Loc::current()) {
  return x.addmm(a, b, beta, alpha, where);
}
Tensor addmv(const Tensor& x, const Tensor& matrix, const Tensor& vector, const Scalar& beta = 1,
             const Scalar& alpha = 1, Loc where = Loc::current());
inline Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta = 1,
                      const Scalar& alpha = 1, Loc where = Loc::current()) {
  return x.baddbmm(a, b, beta, alpha, where);
}
Tensor mv(const Tensor& matrix, const Tensor& vector, Loc where = Loc::current());
Tensor dot(const Tensor& a, const Tensor& b, Loc where = Loc::current());
/// y[i, j] = a[i] b[j]
Tensor outer(const Tensor& a, const Tensor& b, Loc where = Loc::current());
/// Sum of the diagonal of a matrix.
Tensor trace(const Tensor& x, Loc where = Loc::current());
/// The vector product of a and b along a dimension of size 3, by default the first such dimension.
Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim = {}, Loc where = Loc::current());

/// torch.einsum: "bij,bjk->bik", "...ij->...ji", "ii", "i , i". Each letter names a dimension. Operands are multiplied,
/// and letters missing from the result are summed over. A letter that occurs twice in one operand selects the diagonal.
/// Without "->" the result has the dimensions of "...", which broadcast, and then the letters that occur once, in
/// alphabetical order. Operands are contracted from left to right with matmul.
Tensor einsum(std::string_view equation, const TensorList& operands, Loc where = Loc::current());
/// Sum of products over the dimensions dims_a of a, paired with dims_b of b. The result has the remaining dimensions of
/// a, followed by those of b.
Tensor tensordot(const Tensor& a, const Tensor& b, IntArrayRef dims_a, IntArrayRef dims_b, Loc where = Loc::current());

/// a·b / (max(|a|, eps) max(|b|, eps)) along `dim`.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim = 1, double eps = 1e-8,
                         Loc where = Loc::current());
/// The p-norm of a - b + eps along the last dimension.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6, bool keepdim = false,
                         Loc where = Loc::current());

}  // namespace gradus
