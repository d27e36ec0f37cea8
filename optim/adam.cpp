#include <gradus/optim/adam.h>

#include <gradus/optim/adam_family.h>

namespace gradus::optim {

template <bool kDecoupled>
void AdamOptionsOf<kDecoupled>::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("betas", betas_);
  visitor("eps", eps_);
  visitor("weight_decay", weight_decay_);
  visitor("amsgrad", amsgrad_);
  visitor("maximize", maximize_);
}

template <bool kDecoupled>
void AdamOptionsOf<kDecoupled>::check() const {
  detail::check_adam_options(*this);
}

template <bool kDecoupled>
OptimizerRule AdamOptionsOf<kDecoupled>::rule() const {
  auto rule = detail::adam_rule<rules::Adam>(*this, kDecoupled);
  rule.amsgrad = amsgrad_;
  return {rule};
}

template <bool kDecoupled>
std::vector<KernelOptimizerOptions::StateArray> AdamOptionsOf<kDecoupled>::state_arrays() const {
  auto arrays = detail::moments();
  if (amsgrad_) arrays.push_back({2, "max_exp_avg_sq"});
  return arrays;
}

template class AdamOptionsOf<false>;
template class AdamOptionsOf<true>;

}  // namespace gradus::optim
