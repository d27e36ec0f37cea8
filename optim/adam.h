// Optimizers that keep averages of the gradient and of its square: Adam, AdamW, NAdam and RAdam. Their formulas are in
// core/formulas/optimizer_rules.h.
#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus::optim {

/// Options of Adam and of AdamW, which decouples the weight decay.
template <bool kDecoupled>
class AdamOptionsOf final : public detail::CheckedOptions<AdamOptionsOf<kDecoupled>> {
 public:
  AdamOptionsOf(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return kDecoupled ? "AdamWOptions" : "AdamOptions"; }
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, betas_, eps_, weight_decay_, amsgrad_, maximize_)
  GRADUS_ARG(double, lr);
  GRADUS_ARG(NumberVisitor::Betas, betas) = {0.9, 0.999};
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(double, weight_decay) = kDecoupled ? 1e-2 : 0;
  /// Divides by the largest second moment so far.
  GRADUS_ARG(bool, amsgrad) = false;
  /// Goes up the gradient, not down.
  GRADUS_ARG(bool, maximize) = false;
};
using AdamOptions = AdamOptionsOf<false>;
using AdamWOptions = AdamOptionsOf<true>;

/// Kingma and Ba, "Adam: a method for stochastic optimization", 2015, as torch.optim.Adam. In step t with gradient g:
///   g = g + weight_decay p;   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g²
///   p = p - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)
/// amsgrad (Reddi, Kale and Kumar, "On the convergence of Adam and beyond", 2018): the largest v so far in place of v.
/// Negative options or betas outside [0, 1) are a ValueError.
struct Adam final : RuleOptimizer<AdamOptions> {
  using RuleOptimizer::RuleOptimizer;
};

/// Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, as torch.optim.AdamW: Adam, but for weight
/// decay, which leaves the gradient alone and shrinks the parameter before the step: p = p (1 - lr weight_decay).
struct AdamW final : RuleOptimizer<AdamWOptions> {
  using RuleOptimizer::RuleOptimizer;
};

class NAdamOptions final : public detail::CheckedOptions<NAdamOptions> {
 public:
  NAdamOptions(double lr = 2e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "NAdamOptions"; }
  OptimizerRule rule() const override;
  /// Also multiplies the block's momentum product by mu_t.
  void advance(const Array& block) const override;
  std::vector<std::pair<int, const char*>> counters() const override;
  GRADUS_FIELDS(lr_, betas_, eps_, weight_decay_, momentum_decay_, decoupled_weight_decay_, maximize_)
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
struct NAdam final : RuleOptimizer<NAdamOptions> {
  using RuleOptimizer::RuleOptimizer;
};

class RAdamOptions final : public detail::CheckedOptions<RAdamOptions> {
 public:
  RAdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "RAdamOptions"; }
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, betas_, eps_, weight_decay_, decoupled_weight_decay_, maximize_)
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
struct RAdam final : RuleOptimizer<RAdamOptions> {
  using RuleOptimizer::RuleOptimizer;
};

}  // namespace gradus::optim
