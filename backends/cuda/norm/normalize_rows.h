// Layer norm and whatever else normalises contiguous rows: a team of threads keeps its row in registers, so that every
// array is read once.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// Backend::normalize with statistics of its own, where rows serve it: x and y contiguous, `axes` the last ones, weight
/// and bias alike for all rows. False, and nothing done, where they do not.
bool normalize_rows(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                    const MutableView& y, const MutableView& mean, const MutableView& variance);
/// Backend::normalize_backward likewise; dx is wanted and statistics are not fixed.
bool normalize_rows_backward(const View& dy, const View& x, const View& mean, const View& variance, uint32_t axes,
                             const View* weight, double eps, const MutableView& dx, const MutableView* dweight,
                             const MutableView* dbias);

}  // namespace gradus::cuda_detail
