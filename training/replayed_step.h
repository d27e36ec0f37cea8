// Base of CapturedStep and StaticStep: a step that is recorded once and then replayed.
#pragma once

#include <functional>
#include <tuple>

#include <gradus/autograd/half_copy.h>
#include <gradus/optim/optimizer.h>
#include <gradus/training/step_conditions.h>

namespace gradus::training {

class ReplayedStep {
 public:
  /// The step, called with the tensors of a batch on the device. Its results are returned to the caller.
  using Function = std::function<TensorList(const TensorList& batch)>;

 protected:
  /// `name` is the name of the step in errors.
  ReplayedStep(const char* name, Device device, const std::vector<optim::Optimizer*>& optimizers, Function step);

  /// The properties of a batch for which a recording can be used: shapes, strides and types.
  using Signature = std::vector<std::tuple<Shape, Strides, DType>>;
  static Signature signature_of(const TensorList& batch);

  TensorList run_eagerly(const TensorList& batch) const;
  /// Copies the batch to the device, as inputs of the recording.
  TensorList make_inputs(const TensorList& batch) const;
  void upload_learning_rates() const;
  std::vector<Tensor> parameters() const;
  /// The addresses of the parameters' current gradients.
  std::vector<const void*> gradient_addresses() const;
  /// Drops gradients that a recording left, because nothing has computed them.
  void drop_gradients() const;
  /// All numbers except the learning rates. Recorded kernels have them as arguments.
  std::vector<double> options_of_optimizers() const;
  /// The other conditions on which a recording that uses `parts` depends, in their current state.
  StepConditions conditions(const StepParts& parts) const { return {optimizers_, parts}; }
  /// Returns false if a recording with these conditions and parts must be made again.
  bool hold(StepConditions& conditions, const StepParts& parts) const { return conditions.hold(optimizers_, parts); }

  const Device device_;
  const Function step_;

 private:
  std::vector<optim::Optimizer*> optimizers_;
};

/// Copies a batch into the inputs of the recording.
void copy_batch(const TensorList& batch, const TensorList& inputs);

}  // namespace gradus::training
