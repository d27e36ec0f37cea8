// Adam and AdamW.
#pragma once

#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

/// Options of Adam, or of AdamW, which decouples the weight decay.
template <bool kDecoupled>
class AdamOptionsOf final : public OptimizerCloneableOptions<AdamOptionsOf<kDecoupled>, KernelOptimizerOptions> {
 public:
  using Betas = NumberVisitor::Betas;
  AdamOptionsOf(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return kDecoupled ? "AdamWOptions" : "AdamOptions"; }
  void visit(NumberVisitor& visitor) override;
  void check() const override;
  OptimizerRule rule() const override;
  std::vector<KernelOptimizerOptions::StateArray> state_arrays() const override;
  GRADUS_ARG(double, lr);
  GRADUS_ARG(Betas, betas) = {0.9, 0.999};
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
class Adam final : public KernelOptimizerWith<AdamOptions> {
 public:
  using KernelOptimizerWith::KernelOptimizerWith;
};

/// Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, as torch.optim.AdamW: Adam, but for weight
/// decay, which leaves the gradient alone and shrinks the parameter before the step: p = p (1 - lr weight_decay).
class AdamW final : public KernelOptimizerWith<AdamWOptions> {
 public:
  using KernelOptimizerWith::KernelOptimizerWith;
};

}  // namespace gradus::optim
