#include <gradus/optim/adagrad.h>

#include <gradus/optim/check_options.h>

namespace gradus::optim {

using detail::check_not_negative;

void AdagradOptions::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("lr_decay", lr_decay_);
  visitor("weight_decay", weight_decay_);
  visitor("initial_accumulator_value", initial_accumulator_value_);
  visitor("eps", eps_);
  visitor("maximize", maximize_);
}

void AdagradOptions::check() const {
  check_not_negative("lr", lr_);
  check_not_negative("lr_decay", lr_decay_);
  check_not_negative("weight_decay", weight_decay_);
  check_not_negative("initial_accumulator_value", initial_accumulator_value_);
  check_not_negative("eps", eps_);
}

OptimizerRule AdagradOptions::rule() const {
  rules::Adagrad rule;
  rule.lr_decay = lr_decay_;
  rule.eps = eps_;
  rule.weight_decay = weight_decay_;
  rule.maximize = maximize_;
  return {rule};
}

std::vector<KernelOptimizerOptions::StateArray> AdagradOptions::state_arrays() const {
  return {{0, "sum", initial_accumulator_value_}};
}

}  // namespace gradus::optim
