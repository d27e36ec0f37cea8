// Runs a step on two backends side by side, each call from the same inputs, and finds the first call whose results
// differ. The backends may be on different devices.
#pragma once

#include <optional>

#include <gradus/graph/executor.h>

namespace gradus::graph {

/// How much the results of a call may differ, relative to the largest element of the second one. Integers and booleans
/// must be equal.
struct LockstepTolerance {
  double f64 = 1e-12, f32 = 1e-5, f16 = 4e-3, bf16 = 2e-2;
};

/// A call whose results differ between two backends, or between an eager and a recorded step.
struct Mismatch {
  const Call* call;           ///< in the executor's graph
  size_t number;              ///< position of the call
  double error, allowed;      ///< error is infinite if NaNs or infinities are at different places
  std::vector<Array> inputs;  ///< what the call's operands held before it, in order, as float64
  Array a, b;                 ///< both results, as float64

  /// "call 12, conv2d_bias_relu (conv2d of features.3, train.cpp:41): (2, 6, 28, 28) differs by 0.1, allowed: 1e-05",
  /// and a remark if the call's inputs contain NaNs or infinities.
  std::string str() const;
  /// Writes input0.npy, …, a.npy and b.npy into an existing folder.
  void save(const std::string& folder) const;
};

/// Runs the step once: each call on `a`, then again on `b` from the same inputs; the step continues with a's results.
/// Stops at the first call with a result that differs by more than `tolerance`. A result is compared only if something
/// reads it later or an array used it when the recording ended, because kernels may leave anything in other memory. `a`
/// must be a backend of the graph's device, otherwise a DeviceError is thrown. If `b` is on another device, operands
/// are copied.
std::optional<Mismatch> lockstep(Executor& executor, Backend& a, Backend& b, const LockstepTolerance& tolerance = {});

/// Compares a step with half types, for example one recorded under autocast, with float32. Each call runs on `a`, and
/// again with float32 copies of its half operands, whose results are rounded once at the end. A difference above the
/// tolerance of the type means that the operation loses more digits than it must.
std::optional<Mismatch> lockstep_in_float32(Executor& executor, Backend& a, const LockstepTolerance& tolerance = {});

/// Compares the eager step (a) with the recorded one (b), after passes and with its memory plan. Returns the first call
/// with results that differ from the eager step's. Calls that passes made are not compared. The device's current
/// backend runs both from the same parameters and states, which end as after one step. Gradients are left from the
/// eager step.
std::optional<Mismatch> lockstep(Executor& executor, const std::function<void()>& step);

}  // namespace gradus::graph
