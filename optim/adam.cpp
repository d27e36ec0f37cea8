#include <gradus/optim/adam.h>

namespace gradus::optim {

namespace {

const AdamOptions& own(const OptimizerOptions& options) {
  const auto* adam = dynamic_cast<const AdamOptions*>(&options);
  GRADUS_CHECK(adam, ValueError, "a parameter group of Adam needs AdamOptions");
  return *adam;
}

}  // namespace

Adam::Adam(std::vector<OptimizerParamGroup> groups, AdamOptions defaults)
    : KernelOptimizer(std::make_unique<AdamOptions>(defaults)) {
  add_groups(std::move(groups));
}

Adam::Adam(std::vector<Tensor> params, AdamOptions defaults)
    : Adam(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, defaults) {}

void Adam::check_options(const OptimizerOptions& options) const {
  const AdamOptions& adam = own(options);
  const double beta1 = std::get<0>(adam.betas()), beta2 = std::get<1>(adam.betas());
  GRADUS_CHECK(adam.lr() >= 0, ValueError, "learning rate must not be negative, got ", adam.lr());
  GRADUS_CHECK(adam.eps() >= 0, ValueError, "eps must not be negative, got ", adam.eps());
  GRADUS_CHECK(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, ValueError, "betas must be in [0, 1), got ", beta1,
               " and ", beta2);
  GRADUS_CHECK(adam.weight_decay() >= 0, ValueError, "weight decay must not be negative, got ", adam.weight_decay());
  GRADUS_CHECK(!adam.amsgrad(), ValueError, "amsgrad is not supported; use Adam without it");
}

std::vector<Adam::StateArray> Adam::state_arrays(const OptimizerOptions&) const {
  return {{0, "exp_avg"}, {1, "exp_avg_sq"}};
}

OptimizerRule Adam::rule(const OptimizerOptions& options) const {
  const AdamOptions& adam = own(options);
  rules::Adam rule;
  rule.beta1 = std::get<0>(adam.betas());
  rule.beta2 = std::get<1>(adam.betas());
  rule.eps = adam.eps();
  rule.weight_decay = adam.weight_decay();
  return {rule};
}

}  // namespace gradus::optim
