#include <gradus/optim/adam.h>

#include <gradus/optim/check_options.h>

namespace gradus::optim {

using detail::check_not_negative;

namespace {

// AdamOptions or AdamWOptions.
template <class Options>
void check_adam(const Options& options) {
  check_not_negative("lr", options.lr());
  detail::check_betas(options.betas());
  check_not_negative("eps", options.eps());
  check_not_negative("weight_decay", options.weight_decay());
}

template <class Options>
OptimizerRule adam_rule(const Options& options, bool decoupled) {
  rules::Adam rule;
  rule.beta1 = std::get<0>(options.betas());
  rule.beta2 = std::get<1>(options.betas());
  rule.eps = options.eps();
  rule.amsgrad = options.amsgrad();
  rule.weight_decay = options.weight_decay();
  rule.decoupled = decoupled;
  rule.maximize = options.maximize();
  return {rule};
}

std::vector<KernelOptimizerOptions::StateArray> adam_state(bool amsgrad) {
  if (amsgrad) return {{0, "exp_avg"}, {1, "exp_avg_sq"}, {2, "max_exp_avg_sq"}};
  return {{0, "exp_avg"}, {1, "exp_avg_sq"}};
}

}  // namespace

void AdamOptions::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("betas", betas_);
  visitor("eps", eps_);
  visitor("weight_decay", weight_decay_);
  visitor("amsgrad", amsgrad_);
  visitor("maximize", maximize_);
}

void AdamOptions::check() const { check_adam(*this); }

OptimizerRule AdamOptions::rule() const { return adam_rule(*this, /*decoupled=*/false); }

std::vector<KernelOptimizerOptions::StateArray> AdamOptions::state_arrays() const { return adam_state(amsgrad_); }

void AdamWOptions::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("betas", betas_);
  visitor("eps", eps_);
  visitor("weight_decay", weight_decay_);
  visitor("amsgrad", amsgrad_);
  visitor("maximize", maximize_);
}

void AdamWOptions::check() const { check_adam(*this); }

OptimizerRule AdamWOptions::rule() const { return adam_rule(*this, /*decoupled=*/true); }

std::vector<KernelOptimizerOptions::StateArray> AdamWOptions::state_arrays() const { return adam_state(amsgrad_); }

}  // namespace gradus::optim
