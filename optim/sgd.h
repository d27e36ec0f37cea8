// Optimizers whose step follows a momentum: SGD, and Lion, which takes its sign. Their formulas are in
// core/formulas/optimizer_rules.h.
#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus::optim {

class SGDOptions final : public OptimizerCloneableOptions<SGDOptions> {
 public:
  SGDOptions(double lr) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "SGDOptions"; }
  void check() const override;
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, momentum_, dampening_, weight_decay_, nesterov_, maximize_)
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
struct SGD final : RuleOptimizer<SGDOptions> {
  using RuleOptimizer::RuleOptimizer;
};

class LionOptions final : public detail::CheckedOptions<LionOptions> {
 public:
  LionOptions(double lr = 1e-4) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "LionOptions"; }
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, betas_, weight_decay_, maximize_)
  GRADUS_ARG(double, lr);
  GRADUS_ARG(Betas, betas) = {0.9, 0.99};
  GRADUS_ARG(double, weight_decay) = 0;
  /// Goes up the gradient, not down.
  GRADUS_ARG(bool, maximize) = false;
};

/// Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2 (not in PyTorch). With gradient g:
///   p = p (1 - lr weight_decay);   p = p - lr sign(beta1 m + (1 - beta1) g);   m = beta2 m + (1 - beta2) g
/// Every step changes every element by lr. So learning rates are 3 to 10 times smaller than Adam's, and weight decay as
/// many times larger. Negative options or betas outside [0, 1) are a ValueError.
struct Lion final : RuleOptimizer<LionOptions> {
  using RuleOptimizer::RuleOptimizer;
};

}  // namespace gradus::optim
