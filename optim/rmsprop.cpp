#include <gradus/optim/rmsprop.h>

#include <gradus/core/formulas/optimizer_rules.h>

namespace gradus::optim {

void RMSpropOptions::check() const {
  detail::check_not_negative("lr", lr_);
  detail::check_not_negative("alpha", alpha_);
  detail::check_not_negative("eps", eps_);
  detail::check_not_negative("weight_decay", weight_decay_);
  detail::check_not_negative("momentum", momentum_);
  GRADUS_CHECK(alpha_ <= 1, ValueError, "alpha must not be above 1, got ", alpha_);
}

OptimizerRule RMSpropOptions::rule() const {
  return rules::Rmsprop{{weight_decay_, /*decoupled=*/false, maximize_}, alpha_, eps_, momentum_, centered_};
}

void AdagradOptions::check() const {
  detail::check_not_negative("lr", lr_);
  detail::check_not_negative("lr_decay", lr_decay_);
  detail::check_not_negative("weight_decay", weight_decay_);
  detail::check_not_negative("initial_accumulator_value", initial_accumulator_value_);
  detail::check_not_negative("eps", eps_);
}

OptimizerRule AdagradOptions::rule() const {
  return rules::Adagrad{{weight_decay_, /*decoupled=*/false, maximize_}, lr_decay_, eps_};
}

}  // namespace gradus::optim
