// CapturedStep: a training step that is captured in a CUDA graph and replayed, so that the device does not wait for the
// host to launch kernels.
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
// The step may use dropout, clip_grad_norm_on_device_, amp::Autocast and amp::GradScaler. Replayed steps give exactly
// the results of eager steps.
#pragma once

#include <gradus/core/options.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/training/replayed_step.h>

namespace gradus::training {

struct CapturedStepOptions {
  /// Number of eager steps before the capture, at least 1. They load kernels and create the state of optimizer and
  /// scaler.
  GRADUS_ARG(int, warm_up) = 3;
  /// If false, every step is eager.
  GRADUS_ARG(bool, enabled) = true;
};

class CapturedStep : public ReplayedStep {
 public:
  /// `optimizers` are those that the step uses. They must outlive this object and be KernelOptimizers, which read their
  /// scalars from device memory; others are a ValueError. On the CPU every step is eager.
  CapturedStep(Device device, std::vector<optim::Optimizer*> optimizers, Function step,
               CapturedStepOptions options = {});

  /// Runs a step on a batch whose tensors may be on any device. After `warm_up` consecutive eager steps with batches of
  /// one size, a step of that size is captured. From then on, such a batch is copied to the inputs of the captured
  /// step, the optimizers' learning rates are uploaded, and the step is replayed. Batches of other sizes, as the last
  /// one of an epoch, are run eagerly. If an option of an optimizer other than the learning rate changes (OneCycleLR
  /// changes momenta), the step is captured again. If a module, a parameter, the optimizer's state or the thread
  /// changes in a way that the capture does not reflect (StepConditions), eager steps are run first.
  ///
  /// Results of a replayed step are overwritten by the next replay: read or clone() them before. After the step, the
  /// parameters' gradients are those of the last eager step, or of the capture.
  ///
  /// Throws an error that names the operator if a step cannot be captured, because it waits for the device (item(),
  /// printing, copies to the host, shapes that depend on data) or allocates on a stream that the capture does not know.
  /// In this case the batch is not trained on, gradients are dropped, and later calls try again, or run eagerly after
  /// give_up().
  TensorList operator()(const TensorList& batch);

  /// True once steps are replayed.
  bool captured() const { return captured_; }
  /// Discards the capture. The step is captured again after further eager steps.
  void reset();
  /// Makes every further step eager.
  void give_up();

 private:
  void capture(const TensorList& batch);

  const CapturedStepOptions options_;
  bool wanted_;
  Signature signature_;  // of the captured step, or of the last eager steps
  int eager_steps_ = 0;  // number of consecutive eager steps with this signature
  bool captured_ = false;
  TensorList inputs_, outputs_;  // those of the captured step
  std::vector<double> captured_options_;
  StepParts parts_;
  StepConditions conditions_;
  amp::detail::RecordedHalfCopies half_copies_;
  cuda::Graph graph_;
};

}  // namespace gradus::training
