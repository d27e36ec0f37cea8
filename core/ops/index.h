// Reading and writing elements by index arrays (int64 or int32).
#pragma once

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// y[…, i, …] = x[…, index[i], …]; index's dimensions replace `axis` in the result.
Array index_select(const Array& x, int axis, const Array& index);
/// into[…, index[i], …] = source[…, i, …], or += if `accumulate`, for a vector of indices. Equal indices are applied in
/// order. source has into's shape except along `axis`.
void index_into(const Array& into, int axis, const Array& index, const Array& source, bool accumulate);
/// y[i] = x[i with index[i] at axis]; y has index's shape.
Array gather(const Array& x, int axis, const Array& index);
/// into[i with index[i] at axis] = source[i], or += if `accumulate`, in row-major order. source has index's shape.
void scatter_into(const Array& into, int axis, const Array& index, const Array& source, bool accumulate);

/// index as int64 in [0, size); negative indices count from the end. Throws an IndexError if one is outside [-size,
/// size), which makes the host wait for the device. `axis` is the dimension's number in the message.
Array checked_index(const Array& index, int64_t size, int64_t axis);
/// Indices (count, x.ndim()) of the nonzero elements in row-major order. Waits for the device.
Array nonzero(const Array& x);

}  // namespace gradus::ops
