// CapturedStep and StaticStep: training steps that are recorded once and then replayed, so that the device does not
// wait for the host between kernels.
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
// CapturedStep replays a CUDA graph. StaticStep replays a graph of operators (graph/) in memory that is planned in
// advance: on the CPU without allocation, reference counting or dispatch between kernels, on a GPU as a CUDA graph. The
// step may contain dropout, clip_grad_norm_on_device_, amp::Autocast and amp::GradScaler. Results of replayed steps
// equal those of eager steps bit for bit, unless StaticStepOptions::fuse_relu is set.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gradus/autograd/mixed_precision/half_copy.h>
#include <gradus/core/options.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/layers/module/module.h>
#include <gradus/optim/optimizer.h>

namespace gradus::graph {
class Executor;
}

namespace gradus::training {

/// The optimizers of a step.
using Optimizers = std::vector<optim::Optimizer*>;

/// What a step uses in addition to its batch and its optimizers.
struct StepParts {
  std::vector<std::weak_ptr<const nn::Module>> modules;
  TensorList tensors;  ///< parameters and buffers of the modules
};

/// The state of everything that influences how a step is recorded. A replay does not read this state, so a recording is
/// valid only as long as it does not change:
/// - of modules: training or evaluation mode, whether there are hooks, whether they are recomputed, and the options
///   that pretty_print shows (only of Cloneable modules, as all layers of gradus are);
/// - of parameters and buffers: whether they require gradients, the memory of their values, the memory to which their
///   gradients are bound (buckets of DistributedDataParallel), and their hooks;
/// - of optimizers: their parameters, and the memory of their state;
/// - of the thread and the program: backend, grad mode, autocast, default type, and the switches for TF32 and
///   determinism.
class StepConditions {
 public:
  StepConditions() = default;
  StepConditions(const Optimizers& optimizers, const StepParts& parts);
  /// Returns true if nothing has changed. It runs before every replay, so it is cheap: it prints the options of a
  /// module only if the bytes of the module object have changed.
  bool hold(const Optimizers& optimizers, const StepParts& parts);

 private:
  struct ModuleOptions {
    std::vector<std::byte> bytes;
    std::string printed;
  };
  std::vector<int64_t> numbers_;
  std::vector<Storage> storages_;  // kept alive, so that new memory cannot have the address of one of them
  std::vector<ModuleOptions> options_;
};

class ReplayedStep {
 public:
  /// A training step on a batch, whose tensors are on the device. Returns the tensors that the caller gets as results.
  using Function = std::function<TensorList(const TensorList& batch)>;

  virtual ~ReplayedStep() = default;
  /// Discards what was recorded. The step is recorded again after further eager steps.
  virtual void reset() = 0;
  /// Makes every further step eager.
  void give_up();

 protected:
  /// Errors call the step `name`. `warm_up` is the number of eager steps before the first recording. If `wanted` is
  /// false, every step is eager.
  ReplayedStep(const char* name, Device device, Optimizers optimizers, Function step, int warm_up, bool wanted);

  /// The shapes, strides and types of the tensors of a batch. A recording accepts only batches with the same signature.
  using Signature = std::vector<std::tuple<Shape, Strides, DType>>;
  static Signature signature_of(const TensorList& batch);

  /// The state that belongs to a recording, without the recorded work itself.
  struct Recording {
    Signature signature;
    /// All numeric options of the optimizers except the learning rates. The recording contains their values as
    /// arguments of kernels.
    std::vector<double> options;
    StepParts parts;
    StepConditions conditions;
    TensorList inputs, outputs;  // inputs: copies on the device, which the recorded work reads
    amp::detail::RecordedHalfCopies half_copies;
  };
  /// A function recorder(work) that records what work() does. record() fills in a recording by calling it. If the
  /// recorder or the step throws an exception, record() drops the gradients.
  using Recorder = std::function<void(const std::function<void()>& work)>;
  void record(Recording& recording, const TensorList& batch, const Recorder& recorder) const;
  /// Returns false if the conditions of the recording have changed, so that it must not be replayed.
  bool is_valid(Recording& recording) const { return recording.conditions.hold(optimizers_, recording.parts); }
  bool has_current_options(const Recording& recording) const { return recording.options == options_of_optimizers(); }
  /// Copies the batch to the inputs of the recording, uploads the learning rates, calls run(), and returns the outputs.
  const TensorList& replay(const Recording& recording, const TensorList& batch, const std::function<void()>& run) const;

  TensorList run_eagerly(const TensorList& batch) const;
  /// The parameters of all optimizers.
  TensorList parameters() const;
  /// Drops the gradients of all parameters. After a recording they have no values, because recording does not compute.
  void drop_gradients() const;

  const Device device_;
  const int warm_up_;
  bool wanted_;  // false after give_up()
  int eager_steps_ = 0;

 private:
  std::vector<double> options_of_optimizers() const;
  void upload_learning_rates() const;

  const Function step_;
  const Optimizers optimizers_;
};

// ---- CapturedStep ----

struct CapturedStepOptions {
  /// Number of eager steps before the capture, at least 1. They load kernels and create the state of optimizers and
  /// gradient scalers.
  GRADUS_ARG(int, warm_up) = 3;
  /// If false, every step is eager.
  GRADUS_ARG(bool, enabled) = true;
};

/// A step that a CUDA graph replays.
class CapturedStep : public ReplayedStep {
 public:
  /// `optimizers` are all optimizers that the step uses; they must outlive this object. An optimizer without a rule
  /// (has_rule()) is a ValueError, because it does not read its scalars, such as the learning rate, from device memory.
  /// On the CPU every step is eager.
  CapturedStep(Device device, Optimizers optimizers, Function step, CapturedStepOptions options = {});

  /// Trains on a batch, whose tensors may be on any device. After `warm_up` consecutive eager steps with batches of one
  /// size, the step is captured for this size. From then on, a call with a batch of this size copies the batch to the
  /// inputs of the captured step, uploads the optimizers' learning rates, and replays the step. Steps with batches of
  /// other sizes, such as the last batch of an epoch, are eager. If an option of an optimizer other than the learning
  /// rate changes (OneCycleLR changes momenta), the step is captured again. If something that StepConditions lists
  /// changes, the step is captured again after `warm_up` eager steps.
  ///
  /// The next replay overwrites the results of a replayed step, so read or clone() them before. Do not read gradients
  /// after a replayed step: Tensor::grad() is the tensor of the last eager step or of the capture.
  ///
  /// Throws an error that names the operator if the step cannot be captured, because it waits for the device (item(),
  /// printing, copies to the host, shapes that depend on values) or allocates on a stream that is not part of the
  /// capture. Then the step was not executed, and gradients are dropped. The next call tries again; after give_up() all
  /// calls are eager.
  TensorList operator()(const TensorList& batch);

  /// True if the step has been captured.
  bool captured() const { return captured_; }
  /// Discards the captured step. It is captured again after further eager steps.
  void reset() override;

 private:
  void capture(const TensorList& batch);

  // The captured step. Before the capture, only its signature is used: the last eager_steps_ batches had this
  // signature.
  Recording recording_;
  bool captured_ = false;
  cuda::Graph graph_;
};

// ---- StaticStep ----

struct StaticStepOptions {
  /// Number of eager steps before the first recording, at least 1. They create the state of optimizers and gradient
  /// scalers.
  GRADUS_ARG(int, warm_up) = 1;
  /// The step is recorded for at most this number of batch sizes. Steps with batches of further sizes are eager.
  GRADUS_ARG(int, recordings) = 4;
  /// Fuses ReLU with the convolution or normalisation before it: the same kernel computes both, also in the backward
  /// pass. This is faster, but results equal those of eager steps only up to rounding.
  GRADUS_ARG(bool, fuse_relu) = false;
  /// If false, every step is eager.
  GRADUS_ARG(bool, enabled) = true;
};

/// A step whose kernels are recorded and run again in memory that was planned for them.
class StaticStep : public ReplayedStep {
 public:
  /// `optimizers` are all optimizers that the step uses; they must outlive this object. An optimizer without a rule
  /// (has_rule()) is a ValueError.
  StaticStep(Device device, const Optimizers& optimizers, Function step, StaticStepOptions options = {});
  ~StaticStep() override;

  /// Trains on a batch, whose tensors may be on any device. The first steps are eager. After that, the first step with
  /// a new batch size is recorded, and all steps with this batch size run the recording. If an option of an optimizer
  /// other than the learning rate changes, the step is recorded again. If something that StepConditions lists changes,
  /// the next step is eager, and the step after it is recorded again.
  ///
  /// The next step with the same batch size overwrites the results of a recorded step, so read or clone() them before.
  /// A recorded step does not keep gradients for the next step, so it must begin with zero_grad(). Other tensors that
  /// the step uses must keep their memory until reset().
  ///
  /// Throws an error that names the operator if the step cannot be recorded, because it reads a number back (item(),
  /// printing, shapes that depend on values), uses gradients of earlier steps, or stores a new tensor that is not among
  /// its results. Then the step was not executed, and gradients are dropped. The next call tries again; after give_up()
  /// all calls are eager.
  TensorList operator()(const TensorList& batch);

  /// The executor of the last recorded step that ran, with its graph and memory plan (graph/executor.h). Null before
  /// the first recorded step.
  const graph::Executor* executor() const { return last_; }
  /// Discards all recordings. Steps are recorded again after further eager steps.
  void reset() override;

 private:
  struct RecordedGraph;
  /// Returns the recording for this batch. Makes it if necessary. Null if the step must be eager.
  RecordedGraph* recording_of(const TensorList& batch);
  std::unique_ptr<RecordedGraph> record_graph(const TensorList& batch) const;

  const StaticStepOptions options_;
  std::vector<std::unique_ptr<RecordedGraph>> recordings_;
  const graph::Executor* last_ = nullptr;
};

}  // namespace gradus::training
