// The arithmetic of collectives: combines the elements of several ranks, always in the order of the ranks.
#pragma once

#include <cstddef>
#include <span>

#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

/// Elements [begin, end) of a vector.
struct Range {
  size_t begin, end;
  size_t size() const { return end - begin; }
};
/// Part `index` of `count` elements divided into `parts`. Lengths are multiples of 16 as far as possible, so that each
/// part begins at a cache line if the vector does.
Range part_of(size_t count, int parts, int index);

/// Address of element `index` of a vector.
inline std::byte* at(void* data, size_t index, DType dtype) {
  return static_cast<std::byte*>(data) + index * size_of(dtype);
}
inline const std::byte* at(const void* data, size_t index, DType dtype) {
  return static_cast<const std::byte*>(data) + index * size_of(dtype);
}

/// y[j][i] = the sum, maximum, … (`kind`) of x[0][i], x[1][i], …, combined in this order, for all j and
/// for i in [0, count). Each y may be one of the x. Half types are computed in float and rounded once.
void reduce_in_order(DType dtype, ReduceKind kind, std::span<const void* const> x, std::span<void* const> y,
                     size_t count);
inline void reduce_in_order(DType dtype, ReduceKind kind, std::span<const void* const> x, void* y, size_t count) {
  reduce_in_order(dtype, kind, x, std::span<void* const>(&y, 1), count);
}

/// y[i] = x[i] and y[i] combined by `kind`, in this order. This is one step of a ring, whose order is that of its hops.
/// For avg it only adds.
void reduce_step(DType dtype, ReduceKind kind, const void* x, void* y, size_t count);
/// y[i] /= ranks: the last step of avg after reduce_step().
void divide(DType dtype, void* y, size_t count, int ranks);

/// Throws a DTypeError for a reduction that is undefined: the average of booleans.
void check_reduction(DType dtype, ReduceKind kind);

}  // namespace gradus::dist
