#include <gradus/optim/sgd.h>

namespace gradus::optim {

namespace {

const SGDOptions& own(const OptimizerOptions& options) {
  const auto* sgd = dynamic_cast<const SGDOptions*>(&options);
  GRADUS_CHECK(sgd, ValueError, "a parameter group of SGD needs SGDOptions");
  return *sgd;
}

}  // namespace

SGD::SGD(std::vector<OptimizerParamGroup> groups, SGDOptions defaults)
    : KernelOptimizer(std::make_unique<SGDOptions>(defaults)) {
  add_groups(std::move(groups));
}

SGD::SGD(std::vector<Tensor> params, SGDOptions defaults)
    : SGD(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, defaults) {}

void SGD::check_options(const OptimizerOptions& options) const {
  const SGDOptions& sgd = own(options);
  GRADUS_CHECK(sgd.lr() >= 0, ValueError, "learning rate must not be negative, got ", sgd.lr());
  GRADUS_CHECK(sgd.momentum() >= 0, ValueError, "momentum must not be negative, got ", sgd.momentum());
  GRADUS_CHECK(sgd.weight_decay() >= 0, ValueError, "weight decay must not be negative, got ", sgd.weight_decay());
  GRADUS_CHECK(!sgd.nesterov() || (sgd.momentum() > 0 && sgd.dampening() == 0), ValueError,
               "Nesterov momentum needs a momentum and no dampening, got momentum ", sgd.momentum(), " and dampening ",
               sgd.dampening());
}

std::vector<SGD::StateArray> SGD::state_arrays(const OptimizerOptions& options) const {
  if (own(options).momentum() == 0) return {};
  return {{0, "momentum_buffer"}};
}

OptimizerRule SGD::rule(const OptimizerOptions& options) const {
  const SGDOptions& sgd = own(options);
  rules::Sgd rule;
  rule.momentum = sgd.momentum();
  rule.dampening = sgd.dampening();
  rule.weight_decay = sgd.weight_decay();
  rule.nesterov = sgd.nesterov();
  return {rule};
}

}  // namespace gradus::optim
