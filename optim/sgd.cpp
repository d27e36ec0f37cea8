#include <gradus/optim/sgd.h>

#include <gradus/optim/check_options.h>

namespace gradus::optim {

using detail::check_not_negative;

void SGDOptions::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("momentum", momentum_);
  visitor("dampening", dampening_);
  visitor("weight_decay", weight_decay_);
  visitor("nesterov", nesterov_);
  visitor("maximize", maximize_);
}

void SGDOptions::check() const {
  check_not_negative("lr", lr_);
  check_not_negative("momentum", momentum_);
  check_not_negative("weight_decay", weight_decay_);
  GRADUS_CHECK(std::isfinite(dampening_), ValueError, "dampening must be finite, got ", dampening_);
  GRADUS_CHECK(!nesterov_ || (momentum_ > 0 && dampening_ == 0), ValueError,
               "nesterov needs a momentum and no dampening, got momentum ", momentum_, " and dampening ", dampening_);
}

OptimizerRule SGDOptions::rule() const {
  rules::Sgd rule;
  rule.momentum = momentum_;
  rule.dampening = dampening_;
  rule.nesterov = nesterov_;
  rule.weight_decay = weight_decay_;
  rule.maximize = maximize_;
  return {rule};
}

std::vector<KernelOptimizerOptions::StateArray> SGDOptions::state_arrays() const {
  if (momentum_ == 0) return {};
  return {{0, "momentum_buffer"}};
}

}  // namespace gradus::optim
