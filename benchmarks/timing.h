// The clock of the benchmark programs, medians and minima.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus::benchmarks {

inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Milliseconds of calls of `work`: `seconds` of samples, three at least, after a fifth of that to warm up. On cuda a
/// sample is a row of calls, 20 or as many as fit into a tenth of `seconds`, between two waits: so the host's launching
/// overlaps as it does in training.
template <class Work>
std::vector<double> samples_ms(Device device, double seconds, Work&& work) {
  const auto time_row = [&](int calls) {
    const double start = now_ms();
    for (int i = 0; i < calls; ++i) work();
    runtime(device.type()).synchronize(device.index());
    return (now_ms() - start) / calls;
  };
  double call = time_row(1);
  const double warm = now_ms() + seconds * 200;
  do call = time_row(1);
  while (now_ms() < warm);
  const int row = device.is_cuda() ? std::clamp(static_cast<int>(seconds * 100 / call), 1, 20) : 1;
  std::vector<double> samples;
  const double end = now_ms() + seconds * 1000;
  while (now_ms() < end || samples.size() < 3) samples.push_back(time_row(row));
  return samples;
}

/// Milliseconds of one call of `work`: the median of samples_ms().
template <class Work>
double time_ms(Device device, double seconds, Work&& work) {
  return median(samples_ms(device, seconds, work));
}

/// The same of a kernel's call. On cuda a few are captured at a time: the kernels count and not their launching.
template <class Work>
double time_kernel_ms(Device device, double seconds, Work&& work) {
  if (device.is_cpu()) return time_ms(device, seconds, work);
  constexpr int kCaptured = 5;
  work();  // outside of the capture, where cuDNN may time its engines
  cuda::Graph graph;
  graph.capture([&] {
    for (int i = 0; i < kCaptured; ++i) work();
  });
  return time_ms(device, seconds, [&] { graph.replay(); }) / kCaptured;
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
