#include <gradus/optim/sgd.h>

#include <cmath>

#include <gradus/core/formulas/optimizer_rules.h>

namespace gradus::optim {

void SGDOptions::check() const {
  detail::check_not_negative("lr", lr_);
  detail::check_not_negative("momentum", momentum_);
  detail::check_not_negative("weight_decay", weight_decay_);
  GRADUS_CHECK(std::isfinite(dampening_), ValueError, "dampening must be finite, got ", dampening_);
  GRADUS_CHECK(!nesterov_ || (momentum_ > 0 && dampening_ == 0), ValueError,
               "nesterov needs a momentum and no dampening, got momentum ", momentum_, " and dampening ", dampening_);
}

OptimizerRule SGDOptions::rule() const {
  return rules::Sgd{{weight_decay_, /*decoupled=*/false, maximize_}, momentum_, dampening_, nesterov_};
}

void LionOptions::check() const {
  detail::check_not_negative("lr", lr_);
  detail::check_not_negative("weight_decay", weight_decay_);
  detail::check_betas(betas_);
}

OptimizerRule LionOptions::rule() const {
  const auto [beta1, beta2] = betas_;
  return rules::Lion{{weight_decay_, /*decoupled=*/true, maximize_}, beta1, beta2};
}

}  // namespace gradus::optim
