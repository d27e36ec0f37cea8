// Sorting along an axis, and what stands on it.
#pragma once

#include <tuple>

#include <gradus/core/ops/common.h>
#include <gradus/core/runtime/random.h>

namespace gradus::ops {

/// (values, int64 indices) of a stable sort; see Backend::sort.
std::tuple<Array, Array> sort(const Array& x, int axis, bool descending);
Array argsort(const Array& x, int axis, bool descending);
/// The k first of sort's values and indices; k is at most the size of the axis (1 of a scalar).
std::tuple<Array, Array> topk(const Array& x, int64_t k, int axis, bool largest);
/// (different elements, for each of x's elements its place among them, how often each occurs), of the flattened and,
/// where asked for, sorted x; else only equal neighbours become one. Waits for the device.
std::tuple<Array, Array, Array> unique(const Array& x, bool sorted);
/// num_samples int64 indices of the categories in x (C) or (N, C), drawn with probabilities in proportion to x.
/// Negative or infinite numbers, or fewer categories above 0 than have to be different, are a ValueError on the cpu;
/// elsewhere the host does not wait to look.
Array multinomial(const Array& x, int64_t num_samples, bool replacement, Generator& generator = default_generator());

}  // namespace gradus::ops
