#include <gradus/optim/radam.h>

#include <gradus/optim/adam_family.h>

namespace gradus::optim {

void RAdamOptions::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("betas", betas_);
  visitor("eps", eps_);
  visitor("weight_decay", weight_decay_);
  visitor("decoupled_weight_decay", decoupled_weight_decay_);
  visitor("maximize", maximize_);
}

void RAdamOptions::check() const { detail::check_adam_options(*this); }

OptimizerRule RAdamOptions::rule() const { return {detail::adam_rule<rules::Radam>(*this, decoupled_weight_decay_)}; }

std::vector<KernelOptimizerOptions::StateArray> RAdamOptions::state_arrays() const { return detail::moments(); }

}  // namespace gradus::optim
