// Runs parallel_for on OpenMP's threads.
#pragma once

#include <gradus/core/parallel/parallel.h>

namespace gradus::detail {

/// Runs the chunks of a call on an OpenMP team of at most `threads` threads. Returns false, with nothing done, if the
/// pool has to serve the call.
bool run_on_openmp(int64_t chunks, int64_t count, int64_t grain, int threads, const RangeFunction& body);

}  // namespace gradus::detail
