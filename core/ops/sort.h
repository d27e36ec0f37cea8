// Sorting along an axis, and operators built on it.
#pragma once

#include <tuple>

#include <gradus/core/ops/common.h>
#include <gradus/core/runtime/random.h>

namespace gradus::ops {

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
