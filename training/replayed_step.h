// What CapturedStep and StaticStep have in common: a step that is written down once and then replayed.
#pragma once

#include <functional>
#include <tuple>

#include <gradus/autograd/half_copy.h>
#include <gradus/optim/kernel_optimizer.h>
#include <gradus/training/step_conditions.h>

namespace gradus::training {

class ReplayedStep {
 public:
  /// What a step does with the tensors of a batch, which are on the device by then. Returns what the caller wants to
  /// see.
  using Function = std::function<TensorList(const TensorList& batch)>;

 protected:
  /// `name` is what errors call the step.
  ReplayedStep(const char* name, Device device, const std::vector<optim::Optimizer*>& optimizers, Function step);

  /// What a recording is good for: shapes, orders in memory and types.
  using Signature = std::vector<std::tuple<Shape, Strides, DType>>;
  static Signature signature_of(const TensorList& batch);

  TensorList run_eagerly(const TensorList& batch) const;
  /// A copy of the batch on the device, for recorded work to read.
  TensorList make_inputs(const TensorList& batch) const;
  void upload_learning_rates() const;
  std::vector<Tensor> parameters() const;
  /// Where the gradients are that parameters have now.
  std::vector<const void*> gradient_addresses() const;
  /// Nothing has computed gradients that a recording left.
  void drop_gradients() const;
  /// All numbers but the learning rates: what recorded kernels have as arguments.
  std::vector<double> options_of_optimizers() const;
  /// What else a recording that uses `parts` depends on, as it is now.
  StepConditions conditions(const StepParts& parts) const { return {optimizers_, parts}; }
  /// False if a recording with these conditions and parts must be made again.
  bool hold(StepConditions& conditions, const StepParts& parts) const { return conditions.hold(optimizers_, parts); }

  const Device device_;
  const Function step_;

 private:
  std::vector<optim::KernelOptimizer*> optimizers_;
};

/// Copies a batch into the tensors that recorded work reads.
void copy_batch(const TensorList& batch, const TensorList& inputs);

}  // namespace gradus::training
