// StaticStep: a training step that is recorded once as a graph (graph/) and then run from memory that was planned
// beforehand: no allocation, reference counting or dispatch between kernels; on a GPU as one captured graph.
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
// The interface is CapturedStep's. Runs give the bits of eager steps, unless fuse_relu() is asked for.
#pragma once

#include <gradus/core/options.h>
#include <gradus/training/replayed_step.h>

namespace gradus::graph {
class Executor;
}

namespace gradus::training {

struct StaticStepOptions {
  /// Eager steps before the first recording, at least 1: they make the state of optimizers and scaler.
  GRADUS_ARG(int, warm_up) = 1;
  /// Of so many sizes of batches the step is recorded; further sizes go the eager way.
  GRADUS_ARG(int, recordings) = 4;
  /// Convolutions and normalisations compute the ReLU behind them, and their gradients its mask, where the net has
  /// layers of their own for that: faster, but results agree with eager ones up to rounding alone.
  GRADUS_ARG(bool, fuse_relu) = false;
  /// false: every step is eager.
  GRADUS_ARG(bool, enabled) = true;
};

class StaticStep : public ReplayedStep {
 public:
  /// `optimizers` are those that the step uses; they must live as long as this, and be KernelOptimizers, else a
  /// ValueError.
  StaticStep(Device device, const std::vector<optim::Optimizer*>& optimizers, Function step,
             StaticStepOptions options = {});
  ~StaticStep();
  StaticStep(const StaticStep&) = delete;
  StaticStep& operator=(const StaticStep&) = delete;

  /// A step on a batch, of tensors anywhere. The first ones are eager; then the step is recorded for each size of batch
  /// that comes, and run. When an option of an optimizer other than the learning rate changes, it is recorded anew.
  /// When a module, a parameter, the optimizer's state or the thread changes in a way that the recording does not
  /// follow (StepConditions), the next step is eager and the one after it recorded anew.
  ///
  /// Results of recorded steps are overwritten by the next one of their size: read or clone() them before. Gradients
  /// exist within recorded steps alone, which therefore begin with zero_grad(). Other tensors that the step uses
  /// without being given them have to stay where they are until reset().
  ///
  /// What cannot be recorded throws and names the operator: reading a number back (item(), printing, shapes that
  /// depend on numbers), gradients of earlier steps, or a tensor of the step that something keeps and that is not among
  /// its results. The batch is not trained on then, gradients are dropped, and later calls go on, eagerly after
  /// give_up().
  TensorList operator()(const TensorList& batch);

  /// What ran last, with its graph and the plan of its memory (graph/executor.h); null before the first.
  const graph::Executor* executor() const { return last_; }
  /// Forgets the recordings; they are made anew after further eager steps.
  void reset();
  /// Makes every further step eager.
  void give_up();

 private:
  struct Recording;
  /// The batch's recording; null where its step is to be eager.
  Recording* recording_of(const TensorList& batch);
  std::unique_ptr<Recording> record(const TensorList& batch) const;

  const StaticStepOptions options_;
  int eager_steps_ = 0;
  bool wanted_;
  std::vector<std::unique_ptr<Recording>> recordings_;
  const graph::Executor* last_ = nullptr;
};

}  // namespace gradus::training
