#include <gradus/optim/rmsprop.h>

#include <gradus/optim/check_options.h>

namespace gradus::optim {

using detail::check_not_negative;

void RMSpropOptions::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("alpha", alpha_);
  visitor("eps", eps_);
  visitor("weight_decay", weight_decay_);
  visitor("momentum", momentum_);
  visitor("centered", centered_);
  visitor("maximize", maximize_);
}

void RMSpropOptions::check() const {
  check_not_negative("lr", lr_);
  check_not_negative("alpha", alpha_);
  check_not_negative("eps", eps_);
  check_not_negative("weight_decay", weight_decay_);
  check_not_negative("momentum", momentum_);
  GRADUS_CHECK(alpha_ <= 1, ValueError, "alpha must not be above 1, got ", alpha_);
}

OptimizerRule RMSpropOptions::rule() const {
  rules::Rmsprop rule;
  rule.alpha = alpha_;
  rule.eps = eps_;
  rule.momentum = momentum_;
  rule.centered = centered_;
  rule.weight_decay = weight_decay_;
  rule.maximize = maximize_;
  return {rule};
}

std::vector<KernelOptimizerOptions::StateArray> RMSpropOptions::state_arrays() const {
  std::vector<StateArray> arrays = {{0, "square_avg"}};
  if (centered_) arrays.push_back({1, "grad_avg"});
  if (momentum_ != 0) arrays.push_back({2, "momentum_buffer"});
  return arrays;
}

}  // namespace gradus::optim
