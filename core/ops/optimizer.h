// Optimizer steps over arrays: checks and layouts, then one backend call for all parameters of one type.
#pragma once

#include <span>

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// One parameter of a step. The state arrays, where the step needs them, have the parameter's shape, dtype, device and
/// are dense (zeros_like); the gradient may have other strides and, of a float32 parameter, a half type. `half` (of a
/// half type, with the strides of the parameter, which must be dense) holds the parameter as it is, converted, and gets
/// what the step makes of it.
struct OptimizerEntry {
  Array parameter, gradient, states[kMaxOptimizerStates], half = {};
};

/// The block of scalars that optimizer kernels read (StepBlock): step 0, this learning rate, scale 1, nothing
/// found, momentum product 1.
Array step_block(double learning_rate, Device device);
/// Writes one scalar of a block, by a kernel: the host does not wait.
void set_step_block(const Array& block, int entry, double value);
/// Counts one more step, unless an inf or NaN was found.
void advance_step(const Array& block);

/// Backend::optimizer_step on entries of any mix of dtypes, on the block's device. Bumps the versions of what it
/// writes.
void optimizer_step(std::span<const OptimizerEntry> entries, const Array& block, const OptimizerRule& rule);

/// Backend::unscale on gradients of any mix of dtypes, on found_inf's device; `factor` may be undefined. Bumps the
/// versions of what it writes.
void unscale(std::span<const Array> gradients, const Array& factor, const Array& found_inf);
/// Moves the scale in a ScaleBlock.
void update_scale(const Array& block, const ScaleRule& rule);

}  // namespace gradus::ops
