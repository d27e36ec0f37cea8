// The clock of the benchmark programs, medians and minima.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include <gradus/core/runtime.h>

namespace gradus::benchmarks {

inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Milliseconds of one call of `work`: the median over `seconds` of calls, three at least, after a fifth of that to warm
/// up. On cuda a sample is a row of calls between two waits, so that the host's launching overlaps as it does in training.
template <class Work>
double time_ms(Device device, double seconds, Work&& work) {
  const int row = device.is_cuda() ? 20 : 1;
  const auto wait = [&] { runtime(device.type).synchronize(device.index); };
  const double start = now_ms(), warm = start + seconds * 200;
  for (int i = 0; i < 2 || now_ms() < warm; ++i) work();
  wait();
  std::vector<double> samples;
  const double end = now_ms() + seconds * 1000;
  while (now_ms() < end || samples.size() < 3) {
    const double before = now_ms();
    for (int i = 0; i < row; ++i) work();
    wait();
    samples.push_back((now_ms() - before) / row);
  }
  return median(std::move(samples));
}

/// Seconds of the fastest of the calls of `work` that fit into `seconds`, three at least, after one: what it takes when
/// nothing disturbs it.
template <class Work>
double best_seconds(double seconds, Work&& work) {
  work();
  const double end = now_ms() + seconds * 1000;
  double best = 1e30;
  for (int call = 0; call < 3 || now_ms() < end; ++call) {
    const double start = now_ms();
    work();
    best = std::min(best, now_ms() - start);
  }
  return best / 1000;
}

}  // namespace gradus::benchmarks
