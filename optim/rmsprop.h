// RMSprop.
#pragma once

#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

class RMSpropOptions final : public OptimizerCloneableOptions<RMSpropOptions, KernelOptimizerOptions> {
 public:
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "RMSpropOptions"; }
  void visit(NumberVisitor& visitor) override;
  void check() const override;
  OptimizerRule rule() const override;
  std::vector<StateArray> state_arrays() const override;
  GRADUS_ARG(double, lr);
  GRADUS_ARG(double, alpha) = 0.99;
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(double, weight_decay) = 0;
  GRADUS_ARG(double, momentum) = 0;
  GRADUS_ARG(bool, centered) = false;
  /// Goes up the gradient, not down.
  GRADUS_ARG(bool, maximize) = false;
};

/// torch.optim.RMSprop: Hinton, "Neural networks for machine learning", lecture 6e, 2012; centered as in Graves,
/// "Generating sequences with recurrent neural networks", 2013. With gradient g (a = 0 unless centered):
///   g = g + weight_decay p;   v = alpha v + (1 - alpha) g²;   a = alpha a + (1 - alpha) g
///   b = momentum b + g / (sqrt(v - a²) + eps);   p = p - lr b
/// Negative options or alpha above 1 are a ValueError.
class RMSprop final : public KernelOptimizerWith<RMSpropOptions> {
 public:
  using KernelOptimizerWith::KernelOptimizerWith;
};

}  // namespace gradus::optim
