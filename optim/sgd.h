// Stochastic gradient descent with momentum.
#pragma once

#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

class SGDOptions final : public OptimizerCloneableOptions<SGDOptions, KernelOptimizerOptions> {
 public:
  SGDOptions(double lr) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "SGDOptions"; }
  void visit(NumberVisitor& visitor) override;
  void check() const override;
  OptimizerRule rule() const override;
  std::vector<StateArray> state_arrays() const override;
  GRADUS_ARG(double, lr);
  GRADUS_ARG(double, momentum) = 0;
  GRADUS_ARG(double, dampening) = 0;
  GRADUS_ARG(double, weight_decay) = 0;
  GRADUS_ARG(bool, nesterov) = false;
  /// Goes up the gradient, not down.
  GRADUS_ARG(bool, maximize) = false;
};

/// torch.optim.SGD. With gradient g, parameter p and momentum buffer b:
///   g = g + weight_decay p;   b = momentum b + (1 - dampening) g, b = g in the first step;
///   p = p - lr (nesterov ? g + momentum b : b)
/// Options that are negative, or nesterov without momentum or with dampening, are a ValueError.
class SGD final : public KernelOptimizerWith<SGDOptions> {
 public:
  using KernelOptimizerWith::KernelOptimizerWith;
};

}  // namespace gradus::optim
