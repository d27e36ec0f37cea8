// Optimizer steps over arrays: checks and layouts, then one backend call for all parameters of a dtype.
#pragma once

#include <span>

#include <gradus/core/ops/operands.h>

namespace gradus::ops {

/// One parameter of a step. The state arrays that the rule needs have the parameter's shape, dtype and device and are
/// dense (zeros_like). The gradient may have other strides and, for a float32 parameter, a half type. `half`, if
/// defined, is a copy of the parameter in a half type with the same strides, and the step updates it too; the parameter
/// must then be dense.
struct OptimizerEntry {
  Array parameter, gradient, states[kMaxOptimizerStates], half = {};
};

/// The block of scalars that optimizer kernels read (StepBlock), with step 0, this learning rate, gradient scale 1,
/// found_inf 0 and momentum product 1.
Array step_block(double learning_rate, Device device);
/// Writes one scalar of a block with a kernel; the host does not wait.
void set_step_block(const Array& block, int entry, double value);
/// Adds 1 to the step unless an inf or NaN was found.
void advance_step(const Array& block);

/// Backend::optimizer_step on entries of any mix of dtypes, all on the block's device. Increments the version counters
/// of what it writes.
void optimizer_step(std::span<const OptimizerEntry> entries, const Array& block, const OptimizerRule& rule);

/// Backend::unscale on gradients of any mix of dtypes, all on found_inf's device; `factor` may be undefined. Increments
/// the version counters of what it writes.
void unscale(std::span<const Array> gradients, const Array& factor, const Array& found_inf);
/// Updates the scale in a ScaleBlock.
void update_scale(const Array& block, const ScaleRule& rule);

}  // namespace gradus::ops
