// Reading and writing elements by index arrays (int64 or int32), sorting, and operators built on both.
#pragma once

#include <tuple>

#include <gradus/core/ops/operands.h>
#include <gradus/core/runtime/random.h>

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

/// (values, int64 indices) of a stable sort; see Backend::sort.
std::tuple<Array, Array> sort(const Array& x, int axis, bool descending);
Array argsort(const Array& x, int axis, bool descending);
/// The first k of sort's values and indices; k is at most the size of the axis (1 for a scalar).
std::tuple<Array, Array> topk(const Array& x, int64_t k, int axis, bool largest);
/// Returns (distinct elements, for each element of x the index of its value among them, number of occurrences of each).
/// x is flattened and, if `sorted`, sorted; otherwise only equal neighbours are merged. Waits for the device.
std::tuple<Array, Array, Array> unique(const Array& x, bool sorted);
/// num_samples int64 indices of the categories in x (C) or (N, C), drawn with probabilities proportional to x. On the
/// CPU a ValueError is thrown for negative or infinite probabilities and for too few positive ones; on other devices
/// the host does not wait to check.
Array multinomial(const Array& x, int64_t num_samples, bool replacement, Generator& generator = default_generator());

}  // namespace gradus::ops
