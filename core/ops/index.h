// Reading and writing elements by index arrays, int64 or int32.
#pragma once

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// y[…, i, …] = x[…, index[i], …]: instead of `axis` the result has the dimensions of the index.
Array index_select(const Array& x, int axis, const Array& index);
/// into[…, index[i], …] = source[…, i, …], or += it, for a vector of indices; equal ones in order. source has into's
/// shape but for `axis`.
void index_into(const Array& into, int axis, const Array& index, const Array& source, bool accumulate);
/// y[i] = x[i with index[i] at axis], of index's shape.
Array gather(const Array& x, int axis, const Array& index);
/// into[i with index[i] at axis] = source[i], or += it; equal places in row-major order. source has index's shape.
void scatter_into(const Array& into, int axis, const Array& index, const Array& source, bool accumulate);

/// index as int64 in [0, size): negative ones count from the end. One outside [-size, size) is an IndexError, for which
/// the host looks (it waits for the device). `axis` is what the message calls the dimension.
Array checked_index(const Array& index, int64_t size, int64_t axis);
/// Indices (count, x.ndim()) of the elements that are not 0, in row-major order. Waits for the device.
Array nonzero(const Array& x);

}  // namespace gradus::ops
