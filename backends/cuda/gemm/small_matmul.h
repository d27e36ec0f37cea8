// Matrix products that are too small to fill the device.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// True for a product of two matrices (no batch) of floating types that small_matmul does faster than cuBLAS.
bool is_small_matmul(const View& a, const View& b, const View& y);

/// y = a b, plus bias (N, may be null) in every row, plus y if `accumulate`. a (M, K), b (K, N), any strides, K > 0.
void small_matmul(const View& a, const View& b, const View* bias, const MutableView& y, bool accumulate);

}  // namespace gradus::cuda_detail
