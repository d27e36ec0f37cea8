// Stochastic gradient descent with momentum.
#pragma once

#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

class SGDOptions final : public OptimizerOptions {
 public:
  SGDOptions(double lr) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  std::unique_ptr<OptimizerOptions> clone() const override { return std::make_unique<SGDOptions>(*this); }
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  GRADUS_ARG(double, lr);
  GRADUS_ARG(double, momentum) = 0;
  GRADUS_ARG(double, dampening) = 0;
  GRADUS_ARG(double, weight_decay) = 0;
  GRADUS_ARG(bool, nesterov) = false;
};

/// With gradient g, parameter p and momentum buffer b (torch.optim.SGD):
///   g = g + weight_decay p;   b = momentum b + (1 - dampening) g, b = g in the first step;
///   p = p - lr (nesterov ? g + momentum b : b)
class SGD final : public KernelOptimizer {
 public:
  /// Options that are negative, or nesterov without momentum or with dampening, are a ValueError.
  SGD(std::vector<OptimizerParamGroup> groups, SGDOptions defaults);
  SGD(std::vector<Tensor> params, SGDOptions defaults);

 protected:
  void check_options(const OptimizerOptions& options) const override;
  std::vector<StateArray> state_arrays(const OptimizerOptions& options) const override;
  OptimizerRule rule(const OptimizerOptions& options) const override;
};

}  // namespace gradus::optim
