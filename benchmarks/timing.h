// Functions of the benchmark programs that time calls and compute medians and minima.
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

/// Returns the milliseconds per call of `work`, in samples for `seconds` seconds (at least three samples), after
/// warming up for a fifth of this time. On cuda, a sample consists of 20 calls, or as many as fit into a tenth of
/// `seconds`, between two waits for the device, so that launching overlaps with computing as in training.
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

/// Returns the milliseconds of a call of `work`: the median of samples_ms().
template <class Work>
double time_ms(Device device, double seconds, Work&& work) {
  return median(samples_ms(device, seconds, work));
}

/// The same for a kernel. On cuda, several calls are captured in a CUDA graph, so that the time of launching does not
/// count.
template <class Work>
double time_kernel_ms(Device device, double seconds, Work&& work) {
  if (device.is_cpu()) return time_ms(device, seconds, work);
  constexpr int kCaptured = 5;
  work();  // outside of the capture, because cuDNN may time its engines in the first call
  cuda::Graph graph;
  graph.capture([&] {
    for (int i = 0; i < kCaptured; ++i) work();
  });
  return time_ms(device, seconds, [&] { graph.replay(); }) / kCaptured;
}

/// Returns the seconds of the fastest call of `work` among the calls that fit into `seconds` (at least three), after a
/// call to warm up. This is the time without disturbances by other processes.
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
