// Reductions of arrays.
#pragma once

#include <tuple>

#include <gradus/core/ops/operands.h>

namespace gradus::ops {

/// Reduction over the axes in `mask` (see axis_mask) with a result of type `dtype`. mean needs a floating type; max and
/// min of an empty set are a ShapeError.
Array reduce(ReduceOp op, const Array& x, uint32_t mask, bool keepdim, DType dtype);
/// The default result type of sum and prod: int64 for integers and booleans.
inline DType sum_type(DType dtype) { return is_floating(dtype) ? dtype : DType::i64; }
/// sum over `mask` in sum_type(x).
inline Array sum(const Array& x, uint32_t mask, bool keepdim = false) {
  return reduce(ReduceOp::sum, x, mask, keepdim, sum_type(x.dtype()));
}
/// (values, int64 indices) of the extremes along `axis`.
std::tuple<Array, Array> arg_reduce(ArgReduceOp op, const Array& x, int axis, bool keepdim);
/// Variance over the axes in `mask`, computed in two passes: the sum of the squared deviations from the mean, divided
/// by max(0, count - correction). For floating types.
Array variance(const Array& x, uint32_t mask, bool keepdim, double correction);
/// Square root of the variance. On the CPU it is also correct where squares overflow or underflow (float32 beyond
/// 1e19). norm of order 2 has the same property.
Array deviation(const Array& x, uint32_t mask, bool keepdim, double correction);
/// (sum |x|^p)^(1/p) for finite p; for p = 0 the number of nonzero elements. For floating types.
Array norm(const Array& x, double p, uint32_t mask, bool keepdim);
/// log(sum(exp(x))); integers are converted to float32.
Array logsumexp(const Array& x, uint32_t mask, bool keepdim);

/// Running sums or products of x along `axis`, accumulated in `dtype`; with `reverse` they start at the end.
Array scan(ScanOp op, const Array& x, int axis, bool reverse, DType dtype);
/// y[k] = b[k] + a[k] y[k - 1]; see Backend::linear_recurrence. a and b have one shape and type.
Array linear_recurrence(const Array& a, const Array& b, int axis, bool reverse);

}  // namespace gradus::ops
