#include <gradus/optim/radam.h>

#include <gradus/optim/check_options.h>

namespace gradus::optim {

using detail::check_not_negative;

void RAdamOptions::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("betas", betas_);
  visitor("eps", eps_);
  visitor("weight_decay", weight_decay_);
  visitor("decoupled_weight_decay", decoupled_weight_decay_);
  visitor("maximize", maximize_);
}

void RAdamOptions::check() const {
  check_not_negative("lr", lr_);
  check_not_negative("eps", eps_);
  check_not_negative("weight_decay", weight_decay_);
  detail::check_betas(betas_);
}

OptimizerRule RAdamOptions::rule() const {
  rules::Radam rule;
  rule.beta1 = std::get<0>(betas_);
  rule.beta2 = std::get<1>(betas_);
  rule.eps = eps_;
  rule.weight_decay = weight_decay_;
  rule.decoupled = decoupled_weight_decay_;
  rule.maximize = maximize_;
  return {rule};
}

std::vector<KernelOptimizerOptions::StateArray> RAdamOptions::state_arrays() const {
  return {{0, "exp_avg"}, {1, "exp_avg_sq"}};
}

}  // namespace gradus::optim
