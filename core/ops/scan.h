// Running sums and products along an axis.
#pragma once

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// Running sums or products of x along `axis`, accumulated in `dtype`; with `reverse` they start at the end.
Array scan(ScanOp op, const Array& x, int axis, bool reverse, DType dtype);
/// y[k] = b[k] + a[k] y[k - 1]; see Backend::linear_recurrence. a and b have one shape and type.
Array linear_recurrence(const Array& a, const Array& b, int axis, bool reverse);

}  // namespace gradus::ops
