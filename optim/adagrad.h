// Adagrad.
#pragma once

#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

class AdagradOptions final : public OptimizerCloneableOptions<AdagradOptions, KernelOptimizerOptions> {
 public:
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "AdagradOptions"; }
  void visit(NumberVisitor& visitor) override;
  void check() const override;
  OptimizerRule rule() const override;
  std::vector<StateArray> state_arrays() const override;
  GRADUS_ARG(double, lr);
  GRADUS_ARG(double, lr_decay) = 0;
  GRADUS_ARG(double, weight_decay) = 0;
  /// What the sum of squares starts from.
  GRADUS_ARG(double, initial_accumulator_value) = 0;
  GRADUS_ARG(double, eps) = 1e-10;
  /// Goes up the gradient, not down.
  GRADUS_ARG(bool, maximize) = false;
};

/// Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", 2011, as
/// torch.optim.Adagrad. In step t with gradient g:
///   g = g + weight_decay p;   sum = sum + g²;   p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)
/// Negative options are a ValueError.
class Adagrad final : public KernelOptimizerWith<AdagradOptions> {
 public:
  using KernelOptimizerWith::KernelOptimizerWith;
};

}  // namespace gradus::optim
