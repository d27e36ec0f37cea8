// The common base of CapturedStep and StaticStep: a step that is recorded once and then replayed.
#pragma once

#include <functional>
#include <tuple>

#include <gradus/autograd/mixed_precision/half_copy.h>
#include <gradus/optim/optimizer.h>
#include <gradus/training/step_conditions.h>

namespace gradus::training {

class ReplayedStep {
 public:
  /// A training step on the tensors of a batch, which are already on the device. Returns the results for the caller.
  using Function = std::function<TensorList(const TensorList& batch)>;

 protected:
  /// `name` is the step's name in errors.
  ReplayedStep(const char* name, Device device, const std::vector<optim::Optimizer*>& optimizers, Function step);

  /// The shapes, strides and types of the batches that a recording accepts.
  using Signature = std::vector<std::tuple<Shape, Strides, DType>>;
  static Signature signature_of(const TensorList& batch);

  TensorList run_eagerly(const TensorList& batch) const;
  /// A copy of the batch on the device, which recorded work reads.
  TensorList make_inputs(const TensorList& batch) const;
  void upload_learning_rates() const;
  std::vector<Tensor> parameters() const;
  /// The addresses of the parameters' current gradients.
  std::vector<const void*> gradient_addresses() const;
  /// Drops the gradients that a recording leaves, because nothing has computed them.
  void drop_gradients() const;
  /// All numeric options except the learning rates. Recorded kernels have them as arguments.
  std::vector<double> options_of_optimizers() const;
  /// The current values of everything else that a recording with these parts depends on.
  StepConditions conditions(const StepParts& parts) const { return {optimizers_, parts}; }
  /// False if a recording with these conditions and parts must be made again.
  bool hold(StepConditions& conditions, const StepParts& parts) const { return conditions.hold(optimizers_, parts); }

  const Device device_;
  const Function step_;

 private:
  std::vector<optim::Optimizer*> optimizers_;
};

/// Copies a batch into the tensors that recorded work reads.
void copy_batch(const TensorList& batch, const TensorList& inputs);

}  // namespace gradus::training
