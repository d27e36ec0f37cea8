// Optimizers that divide the gradient by the root of its squares: RMSprop, by an average of them, and Adagrad, by their
// sum. Their formulas are in core/formulas/optimizer_rules.h.
#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus::optim {

class RMSpropOptions final : public detail::CheckedOptions<RMSpropOptions> {
 public:
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "RMSpropOptions"; }
  void check() const override;
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, alpha_, eps_, weight_decay_, momentum_, centered_, maximize_)
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
struct RMSprop final : RuleOptimizer<RMSpropOptions> {
  using RuleOptimizer::RuleOptimizer;
};

class AdagradOptions final : public detail::CheckedOptions<AdagradOptions> {
 public:
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "AdagradOptions"; }
  OptimizerRule rule() const override;
  double initial_state() const override { return initial_accumulator_value_; }
  GRADUS_FIELDS(lr_, lr_decay_, weight_decay_, initial_accumulator_value_, eps_, maximize_)
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
struct Adagrad final : RuleOptimizer<AdagradOptions> {
  using RuleOptimizer::RuleOptimizer;
};

}  // namespace gradus::optim
