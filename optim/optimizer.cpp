#include <gradus/optim/optimizer.h>

#include <cmath>
#include <typeinfo>

#include <gradus/autograd/archive.h>

namespace gradus::optim {
namespace {

/// options.check(), whose messages begin with the options' name.
void check(const OptimizerOptions& options) {
  const std::string name = options.name();
  const OpContext context(name.c_str());
  options.check();
}

std::string options_prefix(size_t group) { return "param_groups." + std::to_string(group) + "."; }

/// The numbers that it is shown.
class NumberList final : public NumberVisitor {
 public:
  using NumberVisitor::operator();
  void operator()(const std::string&, double& value) override { numbers.push_back(value); }
  std::vector<double> numbers;
};

}  // namespace

void OptimizerOptions::visit(NumberVisitor& visitor) {
  double lr = get_lr();
  visitor("lr", lr);
  set_lr(lr);
}

bool operator==(const OptimizerOptions& a, const OptimizerOptions& b) {
  if (typeid(a) != typeid(b)) return false;
  NumberList of_a, of_b;
  a.clone()->visit(of_a);
  b.clone()->visit(of_b);
  return of_a.numbers == of_b.numbers;
}

OptimizerParamGroup::OptimizerParamGroup(std::vector<Tensor> params) : params_(std::move(params)) {}
OptimizerParamGroup::OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options)
    : params_(std::move(params)), options_(std::move(options)) {}
OptimizerParamGroup::OptimizerParamGroup(const OptimizerParamGroup& other)
    : params_(other.params_), options_(other.options_ ? other.options_->clone() : nullptr),
      initial_lr_(other.initial_lr_) {}
OptimizerParamGroup::OptimizerParamGroup(OptimizerParamGroup&&) noexcept = default;
OptimizerParamGroup& OptimizerParamGroup::operator=(OptimizerParamGroup&&) noexcept = default;
OptimizerParamGroup& OptimizerParamGroup::operator=(const OptimizerParamGroup& other) {
  return *this = OptimizerParamGroup(other);
}
OptimizerParamGroup::~OptimizerParamGroup() = default;

OptimizerOptions& OptimizerParamGroup::options() {
  GRADUS_CHECK(options_, ValueError, "this parameter group has no options yet: add it to an optimizer");
  return *options_;
}

double OptimizerParamGroup::initial_lr() {
  if (!initial_lr_) initial_lr_ = options().get_lr();
  return *initial_lr_;
}

Optimizer::~Optimizer() = default;

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

Optimizer::StateDict Optimizer::state_dict() const {
  StateDict state("Optimizer state");
  for (size_t group = 0; group < groups_.size(); ++group) {
    NumberWriter writer(state, options_prefix(group));
    groups_[group].options().clone()->visit(writer);
  }
  return state;
}

void Optimizer::load_state_dict(const StateDict& state) {
  StateReader reader(state);
  for (size_t group = 0; group < groups_.size(); ++group) {
    NumberReader option_reader(reader, options_prefix(group), /*may_lack=*/true);
    groups_[group].options().visit(option_reader);
  }
}

void Optimizer::save(serialize::OutputArchive& archive) const {
  for (const auto& item : state_dict()) archive.write(item.key(), item.value());
}

void Optimizer::load(serialize::InputArchive& archive) {
  StateDict state("Optimizer state");
  for (const auto& [name, array] : archive.file().tensors)
    if (name.starts_with(archive.prefix())) state.append(name.substr(archive.prefix().size()), Tensor(array));
  load_state_dict(state);
}

}  // namespace gradus::optim
