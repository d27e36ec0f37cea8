// What a recorded step depends on beside its batch: a recording is valid while none of it changes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

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

}  // namespace gradus::training
