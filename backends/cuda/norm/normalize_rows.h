// Layer norm and whatever else normalises contiguous rows: a team of threads keeps its row in registers, so that every
// array is read once.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// Backend::normalize with statistics of its own, without ReLU, where rows serve it: x and y contiguous, `axes` the
/// last ones, weight and bias alike for all rows. False, and nothing done, where they do not.
bool normalize_rows(const NormalizeArgs& args);
/// Backend::normalize_backward likewise; dx is wanted and statistics are not fixed.
bool normalize_rows_backward(const NormalizeBackwardArgs& args);

}  // namespace gradus::cuda_detail
