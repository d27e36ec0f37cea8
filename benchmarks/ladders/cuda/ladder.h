// Common parts of the ladders on CUDA. A ladder is a table {name, function} of kernels for one problem, called rungs;
// the first rung is naive. Each rung must have the same result as the first rung, and the same bits in two runs.
#pragma once

#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/core/ops/ops.h>
#include <gradus/gradus.h>

namespace gradus::ladders {

// The limits of an H200 (docs/gpu_kernels.md), in operations and bytes per second.
inline constexpr double kFloatRate = 51e12, kTf32Rate = 350e12, kHalfRate = 700e12, kBandwidth = 4.2e12;

inline double limit_us(double operations, double bytes, double rate = kFloatRate) {
  return 1e6 * std::max(operations / rate, bytes / kBandwidth);
}

struct Rung {
  std::string name;
  std::function<void()> run;
  Array result = {};  ///< where the rung writes, if not to the result of the ladder
};

struct Ladder {
  std::string kernel, shape;
  Array result;
  double limit_us;  ///< lower limit: the time for the arithmetic, or for reading operands and writing results once
  std::vector<Rung> rungs;
};

/// Returns random numbers on the GPU.
inline Array random_array(const Shape& shape, DType dtype = DType::f32, double deviation = 1,
                          MemoryFormat format = MemoryFormat::contiguous) {
  const Array values = Array::empty(shape, DType::f32, settled(Device("cuda")));
  ops::normal(values, 0, deviation);
  return ops::contiguous(ops::cast(values, dtype), format);
}

/// Returns the largest difference between two results, divided by the root mean square of the expected result. Infinity
/// if there is a NaN.
inline double difference(const Array& result, const Array& expected) {
  const NoGradGuard no_grad;
  const Tensor a = Tensor(result).to(expected.device()).to(kFloat), b = Tensor(expected).to(kFloat);
  const double largest = (a - b).abs().max().item<double>();
  const double share = largest / std::max(b.square().mean().sqrt().item<double>(), 1e-30);
  return std::isnan(share) ? INFINITY : share;
}

/// Returns the difference that another order of sums can cause: in float32, with operands rounded to TF32, or by
/// rounding the largest elements to bfloat16 twice.
inline double allowed_difference(DType dtype) {
  if (dtype == DType::f32) return cuda::matmul_allow_tf32() ? 1e-2 : 2e-4;
  return 0.06;
}

/// Returns the microseconds of a call. A long call is not repeated.
inline double time_us(const Rung& rung, Device device, double seconds) {
  DeviceRuntime& on = runtime(device.type());
  on.synchronize(device.index());
  const double start = benchmarks::now_ms();
  rung.run();
  on.synchronize(device.index());
  const double once = benchmarks::now_ms() - start;
  return 1000 * (once > 10 ? once : benchmarks::time_kernel_ms(device, seconds, rung.run));
}

/// Checks the rungs, times them if `seconds` is not 0, and prints and records a line for each. Adds the names of wrong
/// rungs to `wrong`.
inline void climb(const Ladder& ladder, double seconds, const benchmarks::Program& program,
                  std::vector<std::string>& wrong) {
  Array expected;
  for (const Rung& rung : ladder.rungs) {
    const Array& result = rung.result.defined() ? rung.result : ladder.result;
    const auto run = [&] {
      ops::fill(result, NAN);  // so that elements which a rung does not write are found
      rung.run();
      return Tensor(result).clone().array();
    };
    const Array first = run();
    if (!expected.defined()) expected = first;
    const double error = difference(first, expected);
    const bool repeats = difference(run(), first) == 0;
    const double us = seconds > 0 ? time_us(rung, result.device(), seconds) : NAN;
    const std::string dtype(name(ladder.result.dtype()));
    std::printf("%-18s %-18s %-9s %-18s %11.2f us %6.1f %% of the limit %10.2f us, difference %.1e\n",
                ladder.kernel.c_str(), ladder.shape.c_str(), dtype.c_str(), rung.name.c_str(), us,
                100 * ladder.limit_us / us, ladder.limit_us, error);
    std::fflush(stdout);
    const bool close = error <= allowed_difference(result.dtype());
    if (!close || !repeats) {
      wrong.push_back(ladder.kernel + " " + ladder.shape + " " + dtype + ", " + rung.name +
                      (close ? " gives other bits the second time" : " is wrong by " + std::to_string(error)));
      continue;
    }
    program.record({{"kernel", ladder.kernel},
                    {"shape", ladder.shape},
                    {"dtype", dtype},
                    {"rung", rung.name},
                    {"us", us},
                    {"limit_us", ladder.limit_us},
                    {"difference", error}});
  }
}

/// Throws a ValueError if there are any.
inline void check_none(const std::vector<std::string>& wrong) {
  std::string text;
  for (const std::string& one : wrong) text += (text.empty() ? "" : "; ") + one;
  GRADUS_CHECK(wrong.empty(), ValueError, text);
}

}  // namespace gradus::ladders
