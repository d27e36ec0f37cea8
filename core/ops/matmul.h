// Matrix products of arrays.
#pragma once

#include <gradus/core/ops/operands.h>

namespace gradus::ops {

/// torch.matmul of floating or integer arrays of one dtype: a vector is treated as a matrix, and the added dimension is
/// removed from the result; leading dimensions broadcast.
Array matmul(const Array& a, const Array& b);
/// x wᵀ + bias: x (…, in), w (out, in), bias (out) or undefined; result (…, out).
Array linear(const Array& x, const Array& w, const Array& bias);

/// x + a b: a (M, K) and b (K, N) are matrices, or batches of matrices with equal leading sizes. x has the same dtype
/// and broadcasts to the shape of the product.
Array addmm(const Array& x, const Array& a, const Array& b);

}  // namespace gradus::ops
