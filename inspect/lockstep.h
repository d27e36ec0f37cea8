// Runs a recorded step call by call on two backends. Both get the same inputs for each call; the first call whose
// results differ is returned. The backends may be on different devices.
#pragma once

#include <optional>

#include <gradus/graph/executor.h>

namespace gradus::graph {

/// How much the two results of a call may differ, relative to the largest element of the second result. Integers and
/// booleans must be equal.
struct LockstepTolerance {
  double f64 = 1e-12, f32 = 1e-5, f16 = 4e-3, bf16 = 2e-2;
};

/// A call whose results differ between two backends, or between an eager and a recorded step.
struct Mismatch {
  const Call* call;           ///< in the executor's graph
  size_t number;              ///< position of the call in the graph
  double error, allowed;      ///< `error` is infinite if a and b have NaNs or infinities at different places
  std::vector<Array> inputs;  ///< the elements of the call's operands before the call, in order, as float64
  Array a, b;                 ///< the two results, as float64

  /// "call 12, conv2d_bias_relu (conv2d of features.3, train.cpp:41): (2, 6, 28, 28) differs by 0.1, allowed: 1e-05",
  /// and a remark if the call's inputs contain NaNs or infinities.
  std::string str() const;
  /// Writes input0.npy, …, a.npy and b.npy into an existing folder.
  void save(const std::string& folder) const;
};

/// Runs the step once. Each call runs on `a` and then, with the same inputs, on `b`; the next call gets the results of
/// `a`. Stops at the first call with a result that differs by more than `tolerance`. A result is compared only if a
/// later call reads it or an array used it when the recording ended, because kernels may leave anything in other
/// memory. `a` must be a backend of the graph's device, otherwise a DeviceError is thrown. If `b` is on another device,
/// operands are copied.
std::optional<Mismatch> lockstep(Executor& executor, Backend& a, Backend& b, const LockstepTolerance& tolerance = {});

/// Finds operations that lose more digits than the half types require, for example in a step recorded under autocast.
/// Each call runs on `a`, and again with float32 copies of its float16 and bfloat16 operands; the float32 results are
/// rounded at the end of the call. Returns the first call whose two results differ by more than the type's tolerance.
std::optional<Mismatch> lockstep_in_float32(Executor& executor, Backend& a, const LockstepTolerance& tolerance = {});

/// Compares the eager step (a) with the executor's step (b), which passes have changed and which uses planned memory.
/// Returns the first call of which a result differs in any bit. Calls that passes made are not compared. The device's
/// current backend runs both steps, beginning with the same parameters and optimizer states. Afterwards these have the
/// values after one step, and gradients are those of the eager step.
std::optional<Mismatch> lockstep(Executor& executor, const std::function<void()>& step);

}  // namespace gradus::graph
