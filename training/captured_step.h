// CapturedStep: a training step that is captured as a CUDA graph and replayed, so that the device does not wait for the
// host between kernels.
//
//   training::CapturedStep step(kCUDA, {&optimizer}, [&](const TensorList& batch) -> TensorList {
//     optimizer.zero_grad();
//     const Tensor loss = cross_entropy(net->forward(batch[0]), batch[1]);
//     loss.backward();
//     optimizer.step();
//     return {loss};
//   });
//   for (auto& batch : *loader) {
//     const Tensor loss = step({batch.data, batch.target})[0];
//     schedule.step();
//   }
//
// Dropout, clip_grad_norm_on_device_, amp::Autocast and amp::GradScaler may be part of the step. Replayed steps equal
// eager ones bit for bit.
#pragma once

#include <gradus/core/options.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/training/replayed_step.h>

namespace gradus::training {

struct CapturedStepOptions {
  /// Eager steps before the capture, at least 1. They load kernels and create the state of optimizer and gradient
  /// scaler.
  GRADUS_ARG(int, warm_up) = 3;
  /// If false, every step is eager.
  GRADUS_ARG(bool, enabled) = true;
};

class CapturedStep : public ReplayedStep {
 public:
  /// `optimizers` are those that the step uses; they must live as long as this. An optimizer without a rule
  /// (has_rule()) is a ValueError, since it does not read its scalars from device memory. On the cpu every step is
  /// eager.
  CapturedStep(Device device, std::vector<optim::Optimizer*> optimizers, Function step,
               CapturedStepOptions options = {});

  /// Trains on a batch, whose tensors may be on any device. After `warm_up` consecutive eager steps with batches of one
  /// size, the step is captured for this size. From then on, each such batch is copied to the inputs of the captured
  /// step, the optimizers' learning rates are uploaded, and the step is replayed. Batches of other sizes, such as the
  /// last one of an epoch, run eagerly. If another option of an optimizer changes (OneCycleLR changes momenta), the
  /// step is captured again. If a module, a parameter, the optimizer's state or the thread changes in a way that
  /// invalidates the capture (StepConditions), the step is captured again after `warm_up` eager steps.
  ///
  /// Results of a replayed step are overwritten by the next replay, so read or clone() them before. Gradients that are
  /// visible after a step are those of the last eager step or of the capture.
  ///
  /// Throws an error that names the operator if the step cannot be captured: it waits for the device (item(), printing,
  /// copies to the host, shapes that depend on values) or allocates on a stream that is not part of the capture. Then
  /// the batch is not trained on and gradients are dropped. Later calls are possible; after give_up() they are eager.
  TensorList operator()(const TensorList& batch);

  /// True once steps are replayed.
  bool captured() const { return captured_; }
  /// Discards the capture. A new one is made after further eager steps.
  void reset() override;

 private:
  void capture(const TensorList& batch);

  // The captured step; before the capture, its signature is that of the last eager steps, whose number is eager_steps_.
  Recording recording_;
  bool captured_ = false;
  cuda::Graph graph_;
};

}  // namespace gradus::training
