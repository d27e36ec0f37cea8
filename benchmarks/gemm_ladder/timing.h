// Time of the fastest of many runs: what a kernel takes when nothing disturbs it.
#pragma once

#include <algorithm>
#include <chrono>

namespace gradus::benchmarks {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Runs `work` for `seconds`, twice at least.
template <class Work>
double best_seconds(double seconds, Work&& work) {
  const double end = now_seconds() + seconds;
  double best = 1e30;
  for (int run = 0; run < 2 || now_seconds() < end; ++run) {
    const double start = now_seconds();
    work();
    best = std::min(best, now_seconds() - start);
  }
  return best;
}

}  // namespace gradus::benchmarks
