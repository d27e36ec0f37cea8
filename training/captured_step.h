// CapturedStep: a training step that is captured in a CUDA graph and replayed, so that the device never waits for the
// host to launch a kernel.
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
// Dropout, clip_grad_norm_on_device_, amp::Autocast and amp::GradScaler may be part of the step. Replayed steps give
// the bits of eager ones.
#pragma once

#include <gradus/core/options.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/training/replayed_step.h>

namespace gradus::training {

struct CapturedStepOptions {
  /// Eager steps before the capture, at least 1: kernels are loaded, the state of optimizer and scaler is made.
  GRADUS_ARG(int, warm_up) = 3;
  /// false: every step is eager.
  GRADUS_ARG(bool, enabled) = true;
};

class CapturedStep : public ReplayedStep {
 public:
  /// `optimizers` are those that the step uses; they must live as long as this, and be KernelOptimizers, which read
  /// their scalars from device memory, else a ValueError. On the cpu every step is eager.
  CapturedStep(Device device, std::vector<optim::Optimizer*> optimizers, Function step,
               CapturedStepOptions options = {});

  /// A step on a batch, of tensors anywhere. Once `warm_up` eager steps in a row had batches of one size, that size is
  /// captured; from then on such batches are copied to where the captured step reads them, the optimizers' learning
  /// rates are uploaded, and the step is replayed. Batches of other sizes, the last of an epoch, go the eager way. When
  /// another option of an optimizer changes (OneCycleLR moves momenta), the step is captured anew. When a module, a
  /// parameter, the optimizer's state or the thread changes in a way that the capture does not follow (StepConditions),
  /// eager steps come first.
  ///
  /// Results of replayed steps live where the next replay writes: read or clone() them before. Gradients that are
  /// looked at after the step belong to the last eager one, or to the capture.
  ///
  /// What cannot be captured throws and names the operator: what waits for the device (item(), printing, copies to the
  /// host, shapes that depend on numbers) or allocates on a stream that the capture does not know. The batch is not
  /// trained on then, gradients are dropped, and later calls go on, eagerly after give_up().
  TensorList operator()(const TensorList& batch);

  /// True once steps are replayed.
  bool captured() const { return captured_; }
  /// Forgets the capture; it is made anew after further eager steps.
  void reset();
  /// Makes every further step eager.
  void give_up();

 private:
  void capture(const TensorList& batch);

  const CapturedStepOptions options_;
  bool wanted_;
  Signature signature_;  // of the captured step, or of the last eager ones
  int eager_steps_ = 0;  // in a row with this signature
  bool captured_ = false;
  TensorList inputs_, outputs_;  // of the captured step
  std::vector<double> captured_options_;
  StepParts parts_;
  StepConditions conditions_;
  amp::detail::RecordedHalfCopies half_copies_;
  cuda::Graph graph_;
};

}  // namespace gradus::training
