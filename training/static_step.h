// StaticStep: a training step that is recorded once as a graph (core/graph) and then run in memory planned in advance,
// without allocation, reference counting or dispatch between kernels. On a GPU it runs as one captured graph.
//
//   training::StaticStep step(kCUDA, {&optimizer}, [&](const TensorList& batch) -> TensorList {
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
// The interface is that of CapturedStep. Results equal those of eager steps exactly, unless fuse_relu() is set.
#pragma once

#include <gradus/core/options.h>
#include <gradus/training/replayed_step.h>

namespace gradus::graph {
class Executor;
}

namespace gradus::training {

struct StaticStepOptions {
  /// Number of eager steps before the first recording, at least 1. They create the state of optimizers and scaler.
  GRADUS_ARG(int, warm_up) = 1;
  /// Maximum number of batch sizes for which the step is recorded. Further sizes are run eagerly.
  GRADUS_ARG(int, recordings) = 4;
  /// If true, a ReLU in a separate layer is fused into the preceding convolution or normalisation, forward and
  /// backward. This is faster, but results equal eager ones only up to rounding.
  GRADUS_ARG(bool, fuse_relu) = false;
  /// If false, every step is eager.
  GRADUS_ARG(bool, enabled) = true;
};

class StaticStep : public ReplayedStep {
 public:
  /// `optimizers` are those that the step uses. They must outlive this object and be KernelOptimizers; others are a
  /// ValueError.
  StaticStep(Device device, const std::vector<optim::Optimizer*>& optimizers, Function step,
             StaticStepOptions options = {});
  ~StaticStep();
  StaticStep(const StaticStep&) = delete;
  StaticStep& operator=(const StaticStep&) = delete;

  /// Runs a step on a batch whose tensors may be on any device. The first steps are eager; then the step is recorded
  /// once for each batch size and run from the recording. If an option of an optimizer other than the learning rate
  /// changes, it is recorded again. If a module, a parameter, the optimizer's state or the thread changes in a way that
  /// the recording does not reflect (StepConditions), the next step is eager and the one after it is recorded again.
  ///
  /// Results of a recorded step are overwritten by the next one of the same size: read or clone() them before.
  /// Gradients exist only within recorded steps, which must therefore begin with zero_grad(). Other tensors that the
  /// step uses must keep their memory until reset().
  ///
  /// Throws an error that names the operator if a step cannot be recorded, because it reads a number back (item(),
  /// printing, shapes that depend on data), uses gradients of earlier steps, or because something keeps a tensor of the
  /// step that is not one of its results. In this case the batch is not trained on, gradients are dropped, and later
  /// calls try again, or run eagerly after give_up().
  TensorList operator()(const TensorList& batch);

  /// The recording that ran last, with its graph and memory plan (graph/executor.h); null before the first one.
  const graph::Executor* executor() const { return last_; }
  /// Discards the recordings. Steps are recorded again after further eager steps.
  void reset();
  /// Makes every further step eager.
  void give_up();

 private:
  struct Recording;
  /// The recording for a batch, null if the step must be eager.
  Recording* recording_of(const TensorList& batch);
  std::unique_ptr<Recording> record(const TensorList& batch) const;

  const StaticStepOptions options_;
  int eager_steps_ = 0;
  bool wanted_;
  std::vector<std::unique_ptr<Recording>> recordings_;
  const graph::Executor* last_ = nullptr;
};

}  // namespace gradus::training
