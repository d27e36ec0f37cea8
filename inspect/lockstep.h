// Two backends, of any devices, run a step side by side, each call from the same inputs: which is the first that they
// disagree on?
#pragma once

#include <optional>

#include <gradus/graph/executor.h>

namespace gradus::graph {

/// How far results of one call may be apart, relative to the largest element of the second one. Whole numbers and
/// booleans have to be equal.
struct LockstepTolerance {
  double f64 = 1e-12, f32 = 1e-5, f16 = 4e-3, bf16 = 2e-2;
};

/// A call whose result two backends, or an eager and a recorded step, disagree on.
struct Mismatch {
  const Call* call;           ///< of the executor's graph
  size_t number;              ///< of the call
  double error, allowed;      ///< infinity where NaNs or infinities are not in the same places
  std::vector<Array> inputs;  ///< what the call's operands held before it, in order, as float64
  Array a, b;                 ///< what each made of the result, as float64

  /// "call 12, conv2d_bias_relu (conv2d of features.3, train.cpp:41): (2, 6, 28, 28) differs by 0.1, allowed: 1e-05",
  /// and whether the call was given NaNs or infinities.
  std::string str() const;
  /// Writes input0.npy, …, a.npy and b.npy into an existing folder.
  void save(const std::string& folder) const;
};

/// Runs the step once: each call on `a`, then once more on `b`, from the same inputs; the step goes on with a's
/// results. Stops at the first call with a result that is off by more than `tolerance`. Results that nothing reads
/// later, and of which nobody had an array when the recording ended, are not compared: kernels may leave anything in
/// memory that is lent to them. `a` is a backend of the graph's
/// device, else a DeviceError; where `b` runs on another one, operands are copied over.
std::optional<Mismatch> lockstep(Executor& executor, Backend& a, Backend& b, const LockstepTolerance& tolerance = {});

/// A step of half types, recorded under autocast say, against float32: each call on `a`, and once more with copies of
/// its half operands in float32, whose results are rounded once. What differs by more than the tolerance of its type is
/// an operation that loses more than its type must.
std::optional<Mismatch> lockstep_in_float32(Executor& executor, Backend& a, const LockstepTolerance& tolerance = {});

/// The eager step (a) against the recorded one (b), as passes and the plan of its memory have left it: the first call
/// that gives other numbers than it did in the eager step; those that passes have made are not compared. Both are run
/// by the device's current backend from the same parameters and states, which are those after one step in the end;
/// gradients are the eager step's.
std::optional<Mismatch> lockstep(Executor& executor, const std::function<void()>& step);

}  // namespace gradus::graph
