#include <gradus/core/ops/nn/nn.h>

#include <vector>

namespace gradus::ops {

namespace {

void check_block(const Array& block, const char* what = "a step block", int size = StepBlock::size) {
  GRADUS_CHECK(block.dtype() == DType::f64 && block.shape() == Shape(size), ShapeError, what, " is float64 of shape (",
               size, ",), got ", block.dtype(), " of shape ", block.shape());
}

void check_partner(const Array& parameter, const Array& other, const char* what, bool may_be_half = false) {
  GRADUS_CHECK(other.shape() == parameter.shape(), ShapeError, what, " has shape ", other.shape(), ", its parameter ",
               parameter.shape());
  const bool is_half = other.dtype() == DType::f16 || other.dtype() == DType::bf16;
  GRADUS_CHECK(other.dtype() == parameter.dtype() || (may_be_half && is_half), DTypeError, what, " is ", other.dtype(),
               ", its parameter ", parameter.dtype());
  GRADUS_CHECK(other.device() == parameter.device(), DeviceError, what, " is on ", other.device(),
               ", its parameter on ", parameter.device(), "; move the module before the optimizer's first step");
}

/// Returns x if it has the strides of `like`, else a copy of x that has them. Strides of axes of size 1 may differ.
Array with_layout_of(const Array& like, const Array& x) {
  bool same = true;
  for (int axis = 0; axis < x.ndim(); ++axis)
    same = same && (x.shape()[axis] == 1 || x.strides()[axis] == like.strides()[axis]);
  if (same) return x;
  Array copy = Array::empty_like(like);
  copy_into(copy, x);
  return copy;
}

/// Returns the entry with all its arrays in one dense layout, which kernels expect. Arrays in other layouts are copied.
OptimizerEntry align(const OptimizerEntry& entry) {
  const Array& parameter = entry.parameter;
  check_floating(parameter, "a parameter");
  check_partner(parameter, entry.gradient, "the gradient", parameter.dtype() == DType::f32);
  OptimizerEntry aligned{parameter.is_dense() ? parameter : clone(parameter), {}, {}, entry.half};
  aligned.gradient = with_layout_of(aligned.parameter, entry.gradient);
  for (int k = 0; k < kMaxOptimizerStates; ++k) {
    if (!entry.states[k].defined()) continue;
    check_partner(parameter, entry.states[k], "the optimizer's state");
    aligned.states[k] = with_layout_of(aligned.parameter, entry.states[k]);
  }
  GRADUS_CHECK(!entry.half.defined() ||
                   (parameter.is_dense() && entry.half.shape() == parameter.shape() &&
                    entry.half.strides() == parameter.strides() && entry.half.device() == parameter.device()),
               ShapeError, "the half copy of shape ", entry.half.shape(), " and strides ", entry.half.strides(),
               " is not like its parameter, of shape ", parameter.shape(), " and strides ", parameter.strides());
  return aligned;
}

/// Copies the result of the step from `aligned` to `original` unless both are the same memory.
void write_back(const Array& original, const Array& aligned) {
  if (original.storage() == aligned.storage()) original.bump_version();
  else copy_into(original, aligned);
}

}  // namespace

Array step_block(double learning_rate, Device device) {
  Array block = full({StepBlock::size}, 0, DType::f64, device);
  set_step_block(block, StepBlock::learning_rate, learning_rate);
  set_step_block(block, StepBlock::gradient_scale, 1);
  set_step_block(block, StepBlock::momentum_product, 1);
  return block;
}

void set_step_block(const Array& block, int entry, double value) {
  check_block(block);
  fill(block.select(0, entry), value);
}

void advance_step(const Array& block) {
  check_block(block);
  backend_of(block).advance_step(block);
  block.bump_version();
}

void optimizer_step(std::span<const OptimizerEntry> entries, const Array& block, const OptimizerRule& rule) {
  check_block(block);
  // The lists keep their memory from step to step. For 100 parameters they are so large that the C library would return
  // their pages to the operating system after every step and request them again.
  static thread_local std::vector<OptimizerEntry> aligned;
  static thread_local std::vector<ParameterViews> views;
  aligned.clear(), views.clear();
  for (const OptimizerEntry& entry : entries) {
    check_same_device({&block, &entry.parameter});
    aligned.push_back(align(entry));
    const auto& [parameter, gradient, states, half] = aligned.back();
    views.push_back({parameter, gradient, {states[0], states[1], states[2]}, half});
  }
  if (!views.empty()) backend_of(block).optimizer_step(views, block, rule);
  for (size_t i = 0; i < entries.size(); ++i) {
    write_back(entries[i].parameter, aligned[i].parameter);
    for (int k = 0; k < kMaxOptimizerStates; ++k) write_back(entries[i].states[k], aligned[i].states[k]);
    if (entries[i].half.defined()) entries[i].half.bump_version();
  }
  aligned.clear();  // so that the list does not keep arrays alive between steps
}

void unscale(std::span<const Array> gradients, const Array& factor, const Array& found_inf) {
  std::vector<MutableView> views;
  for (const Array& gradient : gradients) {
    check_floating(gradient, "a gradient");
    check_same_device({&found_inf, &gradient});
    views.emplace_back(gradient);
  }
  if (views.empty()) return;
  backend_of(found_inf).unscale(views, factor, found_inf);
  found_inf.bump_version();
  if (!factor.defined()) return;
  for (const Array& gradient : gradients) gradient.bump_version();
}

void update_scale(const Array& block, const ScaleRule& rule) {
  check_block(block, "a scale block", ScaleBlock::size);
  backend_of(block).update_scale(block, rule);
  block.bump_version();
}

}  // namespace gradus::ops
