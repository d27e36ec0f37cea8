// Adam.
#pragma once

#include <tuple>

#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

class AdamOptions final : public OptimizerOptions {
 public:
  using Betas = std::tuple<double, double>;
  AdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  std::unique_ptr<OptimizerOptions> clone() const override { return std::make_unique<AdamOptions>(*this); }
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  GRADUS_ARG(double, lr);
  GRADUS_ARG(Betas, betas) = {0.9, 0.999};
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(double, weight_decay) = 0;
  /// Not supported yet: true is a ValueError.
  GRADUS_ARG(bool, amsgrad) = false;
};

/// Kingma and Ba, "Adam: a method for stochastic optimization", 2015, as torch.optim.Adam. In step t with gradient g:
///   g = g + weight_decay p;   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g²
///   p = p - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)
class Adam final : public KernelOptimizer {
 public:
  /// Negative options or betas outside [0, 1) are a ValueError.
  explicit Adam(std::vector<OptimizerParamGroup> groups, AdamOptions defaults = {});
  explicit Adam(std::vector<Tensor> params, AdamOptions defaults = {});

 protected:
  void check_options(const OptimizerOptions& options) const override;
  std::vector<StateArray> state_arrays(const OptimizerOptions& options) const override;
  OptimizerRule rule(const OptimizerOptions& options) const override;
};

}  // namespace gradus::optim
