// Lion.
#pragma once

#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

class LionOptions final : public OptimizerCloneableOptions<LionOptions, KernelOptimizerOptions> {
 public:
  using Betas = NumberVisitor::Betas;
  LionOptions(double lr = 1e-4) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "LionOptions"; }
  void visit(NumberVisitor& visitor) override;
  void check() const override;
  OptimizerRule rule() const override;
  std::vector<StateArray> state_arrays() const override;
  GRADUS_ARG(double, lr);
  GRADUS_ARG(Betas, betas) = {0.9, 0.99};
  GRADUS_ARG(double, weight_decay) = 0;
  /// Goes up the gradient, not down.
  GRADUS_ARG(bool, maximize) = false;
};

/// Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2 (not in PyTorch). With gradient g:
///   p = p (1 - lr weight_decay);   p = p - lr sign(beta1 m + (1 - beta1) g);   m = beta2 m + (1 - beta2) g
/// Every step has the length lr in every element: learning rates are 3 to 10 times below Adam's, weight decay as much
/// above. Negative options or betas outside [0, 1) are a ValueError.
class Lion final : public KernelOptimizerWith<LionOptions> {
 public:
  using KernelOptimizerWith::KernelOptimizerWith;
};

}  // namespace gradus::optim
