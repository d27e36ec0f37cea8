#include <gradus/optim/optimizer.h>

#include <cmath>
#include <typeinfo>

namespace gradus::optim {
namespace {

/// options.check(), whose messages begin with the options' name.
void check(const OptimizerOptions& options) {
  const std::string name = options.name();
  const OpContext context(name.c_str());
  options.check();
}

}  // namespace

void Optimizer::zero_grad(bool set_to_none) {
  for (const OptimizerParamGroup& group : groups_)
    for (const Tensor& parameter : group.params()) parameter.zero_grad(set_to_none);
}

void Optimizer::add_param_group(OptimizerParamGroup group) {
  for (size_t i = 0; i < group.params().size(); ++i) {
    const Tensor& parameter = group.params()[i];
    GRADUS_CHECK(parameter.defined(), ValueError, "parameter ", i, " of the group is undefined");
    GRADUS_CHECK(parameter.is_leaf(), ValueError, "parameter ", i, " of the group, of shape ", parameter.sizes(),
                 ", is the result of an operator: an optimizer changes leaves only");
    auto refuse_repeat = [&](const Tensor& other) {
      GRADUS_CHECK(!other.is_same(parameter), ValueError, "parameter ", i, " of the group, of shape ",
                   parameter.sizes(), ", is in this optimizer already");
    };
    for (size_t j = 0; j < i; ++j) refuse_repeat(group.params()[j]);
    for (const OptimizerParamGroup& other : groups_)
      for (const Tensor& held : other.params()) refuse_repeat(held);
  }
  if (!group.has_options()) group.set_options(defaults_->clone());
  check_type(group.options());
  check(group.options());
  groups_.push_back(std::move(group));
}

void Optimizer::check_type(const OptimizerOptions& options) const {
  const OptimizerOptions& defaults = *defaults_;
  GRADUS_CHECK(typeid(options) == typeid(defaults), ValueError, "a parameter group has ", options.name(),
               ", this optimizer takes ", defaults.name());
}

Optimizer::Optimizer(std::vector<OptimizerParamGroup> groups, std::unique_ptr<OptimizerOptions> defaults)
    : defaults_(std::move(defaults)) {
  check(*defaults_);
  bool empty = true;
  for (OptimizerParamGroup& group : groups) {
    empty = empty && group.params().empty();
    add_param_group(std::move(group));
  }
  GRADUS_CHECK(!empty, ValueError,
               "the optimizer got no parameters; was parameters() called before the modules were registered?");
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const OptimizerParamGroup& group : groups_) all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

void Optimizer::set_lr(size_t group, double lr) {
  GRADUS_CHECK(group < groups_.size(), IndexError, "parameter group ", group, " of ", groups_.size());
  GRADUS_CHECK(lr >= 0 && std::isfinite(lr), ValueError, "learning rate must be finite and not negative, got ", lr);
  groups_[group].options().set_lr(lr);
}

void Optimizer::set_lr(double lr) {
  for (size_t group = 0; group < groups_.size(); ++group) set_lr(group, lr);
}

}  // namespace gradus::optim
