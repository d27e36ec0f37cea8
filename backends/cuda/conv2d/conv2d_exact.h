// Which convolutions of exact float32, TF32 not allowed, have kernels here that keep the FMA units busy: for the
// backend that may leave them to cuDNN instead.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// y from x, or dx from dy: `out` from `in`; `strided` where it is dx and the stride is not 1.
bool has_exact_gather(const View& in, const StridedLayout& out, int64_t groups, bool strided);
/// dw from dy and x.
bool has_exact_weight_gradient(const View& dy, const View& x, const StridedLayout& dw, const Conv2dGeometry& geometry);

}  // namespace gradus::cuda_detail
