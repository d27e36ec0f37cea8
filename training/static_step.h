// StaticStep: a training step that is recorded once as a graph (core/graph) and then runs in memory planned in advance,
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
// The interface is that of CapturedStep. Results equal those of eager steps bit for bit, unless fuse_relu() is set.
#pragma once

#include <gradus/core/options.h>
#include <gradus/training/replayed_step.h>

namespace gradus::graph {
class Executor;
}

namespace gradus::training {

struct StaticStepOptions {
  /// Eager steps before the first recording, at least 1. They create the state of optimizers and gradient scaler.
  GRADUS_ARG(int, warm_up) = 1;
  /// The most batch sizes for which the step is recorded. Batches of further sizes run eagerly.
  GRADUS_ARG(int, recordings) = 4;
  /// Lets convolutions and normalisations compute the ReLU layer after them, and their gradients its mask. This is
  /// faster, but results agree with eager ones only up to rounding.
  GRADUS_ARG(bool, fuse_relu) = false;
  /// If false, every step is eager.
  GRADUS_ARG(bool, enabled) = true;
};

class StaticStep : public ReplayedStep {
 public:
  /// `optimizers` are those that the step uses; they must live as long as this. An optimizer without a rule
  /// (has_rule()) is a ValueError.
  StaticStep(Device device, const std::vector<optim::Optimizer*>& optimizers, Function step,
             StaticStepOptions options = {});
  ~StaticStep() override;
  StaticStep(const StaticStep&) = delete;
  StaticStep& operator=(const StaticStep&) = delete;

  /// Trains on a batch, whose tensors may be on any device. The first steps are eager. Then the step is recorded for
  /// each new batch size, and the recording is run. If an option of an optimizer other than the learning rate changes,
  /// the step is recorded again. If a module, a parameter, the optimizer's state or the thread changes in a way that
  /// invalidates the recording (StepConditions), the next step is eager and the one after it is recorded again.
  ///
  /// Results of a recorded step are overwritten by the next step of the same size, so read or clone() them before.
  /// Gradients exist only within recorded steps, which must therefore begin with zero_grad(). Other tensors that the
  /// step uses must keep their memory until reset().
  ///
  /// Throws an error that names the operator if the step cannot be recorded: it reads a number back (item(), printing,
  /// shapes that depend on values), uses gradients of earlier steps, or makes a tensor that is kept but is not among
  /// its results. Then the batch is not trained on and gradients are dropped. Later calls are possible; after give_up()
  /// they are eager.
  TensorList operator()(const TensorList& batch);

  /// The executor of the last recorded step, with its graph and memory plan (graph/executor.h). Null before the
  /// first.
  const graph::Executor* executor() const { return last_; }
  /// Discards the recordings. New ones are made after further eager steps.
  void reset() override;

 private:
  struct RecordedGraph;
  /// The recording for this batch; null if its step must be eager.
  RecordedGraph* recording_of(const TensorList& batch);
  std::unique_ptr<RecordedGraph> record_graph(const TensorList& batch) const;

  const StaticStepOptions options_;
  std::vector<std::unique_ptr<RecordedGraph>> recordings_;
  const graph::Executor* last_ = nullptr;
};

}  // namespace gradus::training
