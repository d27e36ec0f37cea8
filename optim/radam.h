// RAdam: rectified Adam.
#pragma once

#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

class RAdamOptions final : public OptimizerCloneableOptions<RAdamOptions, KernelOptimizerOptions> {
 public:
  using Betas = NumberVisitor::Betas;
  RAdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "RAdamOptions"; }
  void visit(NumberVisitor& visitor) override;
  void check() const override;
  OptimizerRule rule() const override;
  std::vector<StateArray> state_arrays() const override;
  GRADUS_ARG(double, lr);
  GRADUS_ARG(Betas, betas) = {0.9, 0.999};
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(double, weight_decay) = 0;
  /// As in AdamW.
  GRADUS_ARG(bool, decoupled_weight_decay) = false;
  /// Goes up the gradient, not down.
  GRADUS_ARG(bool, maximize) = false;
};

/// Liu et al., "On the variance of the adaptive learning rate and beyond", 2020, as torch.optim.RAdam. In step t, m and
/// v as in Adam:
///   rho_inf = 2 / (1 - beta2) - 1;   rho = rho_inf - 2 t beta2^t / (1 - beta2^t);   u = m / (1 - beta1^t)
///   rho > 5: p = p - lr r u sqrt(1 - beta2^t) / (sqrt(v) + eps),
///            r² = (rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho);   else p = p - lr u
/// Negative options or betas outside [0, 1) are a ValueError.
class RAdam final : public KernelOptimizerWith<RAdamOptions> {
 public:
  using KernelOptimizerWith::KernelOptimizerWith;
};

}  // namespace gradus::optim
