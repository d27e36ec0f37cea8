// Matrix products of the types that cuBLAS does not multiply.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// y = a b or y += a b for integers and booleans, modulo 2^64 and then as y's type holds it; views as in
/// Backend::matmul.
void integer_matmul(const View& a, const View& b, const MutableView& y, bool accumulate);

}  // namespace gradus::cuda_detail
