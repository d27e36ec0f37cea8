// Checks of gather and scatter that run before any element is written.
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

}  // namespace gradus::naive_detail
