// The common base of CapturedStep and StaticStep: a step that is recorded once and then replayed, and what its
// recording depends on beside the batch.
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

/// What a step uses without being given it.
struct StepParts {
  std::vector<std::weak_ptr<const nn::Module>> modules;
  TensorList tensors;  ///< parameters and buffers of the modules
};

/// The state of what a step reads when it is recorded but not when it is replayed:
/// - of modules: training or evaluation mode, whether there are hooks, recomputation, and the printed options of
///   Cloneable modules, which all of gradus's layers are;
/// - of parameters and buffers: whether they require gradients, where their numbers and bound gradients are, hooks;
/// - of optimizers: their parameters and the memory of their state;
/// - of the thread and the program: backend, grad mode, autocast, default type, switches of TF32 and determinism.
class StepConditions {
 public:
  StepConditions() = default;
  StepConditions(const std::vector<optim::Optimizer*>& optimizers, const StepParts& parts);
  /// True if nothing has changed. Called before every replay, so it compares in place and prints only the modules whose
  /// bytes differ.
  bool hold(const std::vector<optim::Optimizer*>& optimizers, const StepParts& parts);

 private:
  struct ModuleOptions {
    std::vector<std::byte> bytes;
    std::string printed;
  };
  std::vector<int64_t> numbers_;
  std::vector<Storage> storages_;  // kept, so that no other storage gets the address of one
  std::vector<ModuleOptions> options_;
};

class ReplayedStep {
 public:
  /// A training step on the tensors of a batch, which are already on the device. Returns the results for the caller.
  using Function = std::function<TensorList(const TensorList& batch)>;

  virtual ~ReplayedStep() = default;
  /// Discards what was recorded. It is recorded again after further eager steps.
  virtual void reset() = 0;
  /// Makes every further step eager.
  void give_up();

 protected:
  /// `name` is the step's name in errors; `warm_up` is the number of eager steps before one is recorded.
  ReplayedStep(const char* name, Device device, std::vector<optim::Optimizer*> optimizers, Function step, int warm_up,
               bool wanted);

  /// The shapes, strides and types of the batches that a recording accepts.
  using Signature = std::vector<std::tuple<Shape, Strides, DType>>;
  static Signature signature_of(const TensorList& batch);

  /// What belongs to a recording beside the recorded work.
  struct Recording {
    Signature signature;
    /// All numeric options of the optimizers except the learning rates. Recorded kernels have them as arguments.
    std::vector<double> options;
    StepParts parts;
    StepConditions conditions;
    TensorList inputs, outputs;  // inputs are copies of a batch on the device
    amp::detail::RecordedHalfCopies half_copies;
  };
  /// Fills in a recording. Calls recorder(work), which must record what work() does. If an exception is thrown, drops
  /// the gradients that the recording leaves.
  using Recorder = std::function<void(const std::function<void()>& work)>;
  void record(Recording& recording, const TensorList& batch, const Recorder& recorder) const;
  /// False if the recording is no longer valid because its conditions have changed.
  bool is_valid(Recording& recording) const { return recording.conditions.hold(optimizers_, recording.parts); }
  bool has_current_options(const Recording& recording) const { return recording.options == options_of_optimizers(); }
  /// Copies the batch and the learning rates into what the recording reads, and calls run().
  const TensorList& replay(const Recording& recording, const TensorList& batch, const std::function<void()>& run) const;

  TensorList run_eagerly(const TensorList& batch) const;
  /// The addresses of the parameters' current gradients.
  std::vector<const void*> gradient_addresses() const;
  /// Drops the gradients that a recording leaves, because nothing has computed them.
  void drop_gradients() const;

  const Device device_;
  const int warm_up_;
  bool wanted_;  // false after give_up()
  int eager_steps_ = 0;

 private:
  std::vector<Tensor> parameters() const;
  std::vector<double> options_of_optimizers() const;
  void upload_learning_rates() const;

  const Function step_;
  const std::vector<optim::Optimizer*> optimizers_;
};

// ---- CapturedStep ----

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

// ---- StaticStep ----

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
