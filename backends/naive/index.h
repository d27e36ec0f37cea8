// What gather and scatter check before they touch an element.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::naive_detail {

/// `index`'s shape with size 1 at axes of stride 0: each index once.
Shape distinct_sizes(const View& index);
/// Every index is in [0, size); else an IndexError names the first that is not, its position (without the axes of
/// stride 0, which the index was broadcast over) and the size of the dimension `axis`.
void check_index(const View& index, int axis, int64_t size);
/// Adds as Backend::scatter does, of half types in float32, where each sum is rounded once; else returns false.
bool scatter_add_in_float32(Backend& backend, const View& x, int axis, const View& index, const MutableView& y);

}  // namespace gradus::naive_detail
