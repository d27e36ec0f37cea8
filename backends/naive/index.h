// Checks of the indices of gather and scatter, which run before any element is written, and of losses' target classes.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::naive_detail {

/// `index`'s shape with size 1 at axes of stride 0, so that each index is visited once.
Shape distinct_sizes(const View& index);
/// Throws an IndexError unless every index is in [0, size). The message names the first invalid index, its position
/// (without the axes that index was broadcast over) and the dimension `axis` with its size.
void check_index(const View& index, int axis, int64_t size);
/// Adds like Backend::scatter, but half types in float32 with a single rounding of each sum. Returns false for other
/// types, without doing anything.
bool scatter_add_in_float32(Backend& backend, const View& x, int axis, const View& index, const MutableView& y);
/// Returns target[row], or -1 if that is `ignore_index`. Throws an IndexError if it is not a valid class.
int64_t class_of(const View& target, int64_t row, int64_t ignore_index, int64_t classes);

}  // namespace gradus::naive_detail
