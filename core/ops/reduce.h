// Reductions of arrays.
#pragma once

#include <tuple>

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// Reduction over the axes in `mask` (see axis_mask). sum and prod of integers and booleans are int64 unless `dtype`
/// says else; mean needs a floating type; max and min of an empty set are a ShapeError.
Array reduce(ReduceOp op, const Array& x, uint32_t mask, bool keepdim, DType dtype);
/// The type in which sum accumulates by default.
inline DType sum_type(DType dtype) { return is_floating(dtype) ? dtype : DType::i64; }
/// sum over `mask` in sum_type(x).
inline Array sum(const Array& x, uint32_t mask, bool keepdim = false) {
  return reduce(ReduceOp::sum, x, mask, keepdim, sum_type(x.dtype()));
}
/// (values, int64 indices) of the extremes along `axis`.
std::tuple<Array, Array> arg_reduce(ArgReduceOp op, const Array& x, int axis, bool keepdim);
/// Sum of squared deviations from the mean over max(0, count - correction), in two passes. Floating types.
Array variance(const Array& x, uint32_t mask, bool keepdim, double correction);
/// Its root; on the CPU also where the squares overflow or vanish, as those of float32 numbers beyond 1e19 do. So is
/// the norm of order 2.
Array deviation(const Array& x, uint32_t mask, bool keepdim, double correction);
/// (sum |x|^p)^(1/p) for finite p, the number of elements that are not 0 for p = 0. Floating types.
Array norm(const Array& x, double p, uint32_t mask, bool keepdim);
/// log(sum(exp(x))); integers become float32.
Array logsumexp(const Array& x, uint32_t mask, bool keepdim);
/// Undoes broadcasting: sums x down to `shape`.
Array sum_to(const Array& x, const Shape& shape);

}  // namespace gradus::ops
