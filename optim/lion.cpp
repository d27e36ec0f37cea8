#include <gradus/optim/lion.h>

#include <gradus/optim/check_options.h>

namespace gradus::optim {

using detail::check_not_negative;

void LionOptions::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("betas", betas_);
  visitor("weight_decay", weight_decay_);
  visitor("maximize", maximize_);
}

void LionOptions::check() const {
  check_not_negative("lr", lr_);
  check_not_negative("weight_decay", weight_decay_);
  detail::check_betas(betas_);
}

OptimizerRule LionOptions::rule() const {
  rules::Lion rule;
  rule.beta1 = std::get<0>(betas_);
  rule.beta2 = std::get<1>(betas_);
  rule.weight_decay = weight_decay_;
  rule.decoupled = true;
  rule.maximize = maximize_;
  return {rule};
}

std::vector<KernelOptimizerOptions::StateArray> LionOptions::state_arrays() const { return {{0, "exp_avg"}}; }

}  // namespace gradus::optim
