// The conditions, other than the batch, on which a recorded step depends. A recording is valid as long as none of them
// changes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gradus/core/runtime/observer.h>
#include <gradus/layers/module.h>
#include <gradus/optim/optimizer.h>

namespace gradus::training {

/// What a step uses without receiving it as an argument.
struct StepParts {
  std::vector<std::weak_ptr<const nn::Module>> modules;
  TensorList tensors;  ///< parameters and buffers of the modules
};

/// Collects the modules whose forward runs on this thread, and the modules that contain them.
class StepPartsCollector final : public Observer {
 public:
  StepPartsCollector();
  ~StepPartsCollector() override;
  void on_begin(const ObservedEvent& event) override;
  /// The collected modules that are owned by a shared_ptr and still exist after the step.
  StepParts finish() const;

 private:
  const void* const thread_;  // an address that is unique to the thread that made this object
  std::vector<const nn::Module*> seen_;
  std::vector<std::weak_ptr<const nn::Module>> modules_;
};

/// The state that a step reads when it is recorded, but not when it is replayed:
/// - of modules: training or evaluation mode, existence of hooks, recomputation, and the printed options of Cloneable
///   modules, which include all layers of the library;
/// - of parameters and buffers: requires_grad, the addresses of data and bound gradients, hooks;
/// - of optimizers: their parameters and the memory of their state;
/// - of the thread and the program: backend, grad mode, autocast, default type, switches for TF32 and determinism.
class StepConditions {
 public:
  StepConditions() = default;
  StepConditions(const std::vector<optim::KernelOptimizer*>& optimizers, const StepParts& parts);
  /// Returns true if nothing has changed. It is called before every replay, so it compares in place and prints only
  /// modules whose bytes differ.
  bool hold(const std::vector<optim::KernelOptimizer*>& optimizers, const StepParts& parts);

 private:
  struct ModuleOptions {
    std::vector<std::byte> bytes;
    std::string printed;
  };
  std::vector<int64_t> numbers_;
  std::vector<Storage> storages_;  // kept so that no other storage can get the same address
  std::vector<ModuleOptions> options_;
};

}  // namespace gradus::training
