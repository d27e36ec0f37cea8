// NAdam: Adam with Nesterov momentum.
#pragma once

#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

class NAdamOptions final : public OptimizerCloneableOptions<NAdamOptions, KernelOptimizerOptions> {
 public:
  using Betas = NumberVisitor::Betas;
  NAdamOptions(double lr = 2e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "NAdamOptions"; }
  void visit(NumberVisitor& visitor) override;
  void check() const override;
  OptimizerRule rule() const override;
  std::vector<StateArray> state_arrays() const override;
  std::vector<StateNumber> state_numbers() const override;
  /// Multiplies the block's momentum product by mu_t.
  void advance(const Array& block) const override;
  GRADUS_ARG(double, lr);
  GRADUS_ARG(Betas, betas) = {0.9, 0.999};
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(double, weight_decay) = 0;
  GRADUS_ARG(double, momentum_decay) = 4e-3;
  /// As in AdamW.
  GRADUS_ARG(bool, decoupled_weight_decay) = false;
  /// Goes up the gradient, not down.
  GRADUS_ARG(bool, maximize) = false;
};

/// Dozat, "Incorporating Nesterov momentum into Adam", 2016, as torch.optim.NAdam of PyTorch 2 (in 1.13 mu_t counts
/// twice in the last product). In step t with gradient g, m and v as in Adam, and M = mu_1 … mu_t:
///   mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2)
///   p = p - lr ((1 - mu_t) / (1 - M) g + mu_{t+1} / (1 - M mu_{t+1}) m) / (sqrt(v / (1 - beta2^t)) + eps)
/// Negative options or betas outside [0, 1) are a ValueError.
class NAdam final : public KernelOptimizerWith<NAdamOptions> {
 public:
  using KernelOptimizerWith::KernelOptimizerWith;
};

}  // namespace gradus::optim
