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
#include <gradus/core/runtime/observer.h>
#include <gradus/layers/module/module.h>
#include <gradus/optim/optimizer.h>

namespace gradus::training {

/// What a step uses without being given it.
struct StepParts {
  std::vector<std::weak_ptr<const nn::Module>> modules;
  TensorList tensors;  ///< parameters and buffers of the modules
};

/// Collects the modules whose forward runs on this thread, and those above them.
class StepPartsCollector final : public Observer {
 public:
  StepPartsCollector();
  ~StepPartsCollector() override;
  void on_begin(const ObservedEvent& event) override;
  /// The modules that a shared_ptr keeps and that outlive the step.
  StepParts finish() const;

 private:
  const void* const thread_;  // an address that belongs to the thread that made this
  std::vector<const nn::Module*> seen_;
  std::vector<std::weak_ptr<const nn::Module>> modules_;
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
  bool is_valid(Recording& recording) const;
  bool has_current_options(const Recording& recording) const;
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

}  // namespace gradus::training
