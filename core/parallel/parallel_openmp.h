// OpenMP's threads behind parallel_for.
#pragma once

#include <gradus/core/parallel/parallel.h>

namespace gradus::detail {

/// The chunks of a call on a team of OpenMP's of at most `threads`. False, with nothing done, where the pool is to
/// serve the call.
bool run_on_openmp(int64_t chunks, int64_t count, int64_t grain, int threads, const RangeFunction& body);

}  // namespace gradus::detail
