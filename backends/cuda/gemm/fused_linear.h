// Linear layers in one launch: cuBLASLt adds the bias where it writes the product.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// y (M, N) = x (M, K) wᵀ + bias, for w (N, K) and bias (N) of y's dtype; float32 without TF32 unless that is allowed,
/// half types accumulating in float32. False, and nothing done, where cuBLASLt has no kernel for these strides or
/// dtypes.
bool fused_linear(const View& x, const View& w, const View& bias, const MutableView& y);

}  // namespace gradus::cuda_detail
