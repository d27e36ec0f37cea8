// Matrix products.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// torch.matmul: products of vectors, matrices and batches, with broadcasting.
Tensor matmul(const Tensor& a, const Tensor& b, Loc where = Loc::current());
Tensor mm(const Tensor& a, const Tensor& b, Loc where = Loc::current());
/// x wᵀ + bias: x (…, in), w (out, in), bias (out) or undefined.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Loc where = Loc::current());

}  // namespace gradus
