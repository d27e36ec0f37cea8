// Matrix products of arrays.
#pragma once

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// torch.matmul of floating or integer arrays of one dtype: vectors are promoted to matrices and the added dimension
/// removed; leading dimensions broadcast.
Array matmul(const Array& a, const Array& b);
/// x wᵀ + bias: x (…, in), w (out, in), bias (out) or undefined; result (…, out).
Array linear(const Array& x, const Array& w, const Array& bias);

/// x + a b: matrices a (M, K) and b (K, N) or batches of them with the same leading sizes, x of one dtype with them
/// that broadcasts to the product's shape.
Array addmm(const Array& x, const Array& a, const Array& b);

}  // namespace gradus::ops
