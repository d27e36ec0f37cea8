#include <gradus/optim/optimizer.h>

#include <algorithm>
#include <typeinfo>

#include <gradus/autograd/archive.h>
#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/mixed_precision/half_copy.h>
#include <gradus/core/ops/nn/nn.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/optim/optimizer_state.h>

namespace gradus::optim {
namespace {

/// Calls options.check(). Messages of errors begin with the name of the options.
void check(const OptimizerOptions& options) {
  const OpContext context(options.name());
  options.check();
}

std::string options_prefix(size_t group) { return "param_groups." + std::to_string(group) + "."; }

/// Copies the gradients' factor and the inf-or-NaN flag from the array in `scaling` that is on the block's device.
void take_scaling(const std::vector<Array>& scaling, const Array& block) {
  const auto here = std::ranges::find(scaling, block.device(), &Array::device);
  GRADUS_CHECK(here != scaling.end(), DeviceError, "loss scaling knows of no gradients on ", block.device());
  static_assert(StepBlock::found_inf == StepBlock::gradient_scale + 1);
  ops::copy_into(block.slice(0, StepBlock::gradient_scale, StepBlock::found_inf + 1), *here);
}

}  // namespace

OptimizerParamGroup::OptimizerParamGroup(TensorList params, std::unique_ptr<OptimizerOptions> options)
    : params_(std::move(params)), options_(std::move(options)) {}
OptimizerParamGroup::OptimizerParamGroup(const OptimizerParamGroup& other)
    : params_(other.params_), options_(other.options_ ? other.options_->clone() : nullptr),
      initial_lr_(other.initial_lr_) {}

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
  for (const Tensor& parameter : parameters()) parameter.zero_grad(set_to_none);
}

void Optimizer::add_param_group(OptimizerParamGroup group) {
  TensorList known = parameters();
  for (size_t i = 0; i < group.params().size(); ++i) {
    const Tensor& parameter = group.params()[i];
    GRADUS_CHECK(parameter.defined(), ValueError, "parameter ", i, " of the group is undefined");
    GRADUS_CHECK(parameter.is_leaf(), ValueError, "parameter ", i, " of the group, of shape ", parameter.sizes(),
                 ", is the result of an operator: an optimizer changes leaves only");
    const auto is_same = [&](const Tensor& other) { return other.is_same(parameter); };
    GRADUS_CHECK(std::ranges::none_of(known, is_same), ValueError, "parameter ", i, " of the group, of shape ",
                 parameter.sizes(), ", is already in this optimizer");
    known.push_back(parameter);
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

const OptimizerOptions& Optimizer::options_of(size_t group) const {
  const OptimizerOptions& options = groups_[group].options();
  check_type(options);  // set_options() accepts options of any class
  return options;
}

Optimizer::Optimizer(ParamGroups groups, std::unique_ptr<OptimizerOptions> defaults)
    : defaults_(std::move(defaults)), state_(std::make_unique<OptimizerState>()) {
  check(*defaults_);
  bool empty = true;
  for (OptimizerParamGroup& group : groups) {
    empty = empty && group.params().empty();
    add_param_group(std::move(group));
  }
  GRADUS_CHECK(!empty, ValueError,
               "the optimizer got no parameters; was parameters() called before the modules were registered?");
}

Optimizer::Optimizer(ParamGroups groups, const OptimizerOptions& defaults)
    : Optimizer(std::move(groups), defaults.clone()) {
  has_rule_ = true;
}

Tensor Optimizer::step(LossClosure closure) {
  Tensor loss;
  if (closure) {
    const AutoGradMode with_grad(true);
    loss = closure();
  }
  step_groups(/*scaling=*/nullptr);
  return loss;
}

void Optimizer::step_scaled(const std::vector<Array>& scaling) { step_groups(&scaling); }

void Optimizer::step_groups(const std::vector<Array>* scaling) {
  const OpContext context("optimizer step");
  GRADUS_CHECK(has_rule(), ValueError, "this optimizer has no rule: it has to override step()");
  const EventScope event("optimizer_step");
  for (size_t group = 0; group < groups_.size(); ++group) {
    const TensorList& parameters = groups_[group].params();
    OptimizerState::Members with_gradient;
    for (size_t i = 0; i < parameters.size(); ++i)
      if (amp::detail::gradient_for_step(parameters[i]).defined()) with_gradient.push_back(i);
    for (const auto& [cohort, members] : state_->cohorts_of_step(group, groups_[group], with_gradient))
      step_cohort(state_->cohorts[cohort], members, scaling);
  }
}

void Optimizer::step_cohort(Cohort& cohort, const std::vector<size_t>& members, const std::vector<Array>* scaling) {
  const TensorList& parameters = groups_[cohort.group].params();
  const OptimizerOptions& options = options_of(cohort.group);
  const OptimizerRule rule = options.rule();
  const rules::StateNames names = rule.state_names();
  cohort.upload(options.get_lr());

  std::vector<ops::OptimizerEntry> entries;
  entries.reserve(members.size());
  for (size_t i : members) {
    const Array& parameter = parameters[i].array();
    ops::OptimizerEntry entry{
        parameter, amp::detail::gradient_for_step(parameters[i]), {}, amp::detail::half_copy_for_step(parameters[i])};
    for (int k = 0; k < kMaxOptimizerStates; ++k)
      if (names[k]) entry.states[k] = state_->states[cohort.group][i].array(k, parameter, options.initial_state());
    entries.push_back(std::move(entry));
  }
  if (scaling) take_scaling(*scaling, cohort.block);
  options.advance(cohort.block);
  ops::optimizer_step(entries, cohort.block, rule);
  for (size_t i = 0; i < members.size(); ++i)
    if (entries[i].half.defined()) amp::detail::half_copy_written(parameters[members[i]]);
  if (!scaling) return;
  ops::set_step_block(cohort.block, StepBlock::gradient_scale, 1);
  ops::set_step_block(cohort.block, StepBlock::found_inf, 0);
}

std::vector<Array> Optimizer::step_blocks() const {
  std::vector<Array> blocks;
  for (const Cohort& cohort : state_->cohorts) blocks.push_back(cohort.block);
  return blocks;
}

void Optimizer::upload_learning_rates() {
  for (Cohort& cohort : state_->cohorts) cohort.upload(groups_[cohort.group].options().get_lr());
}

TensorList Optimizer::parameters() const {
  TensorList all;
  for (const auto& group : groups_) all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

void Optimizer::set_lr(size_t group, double lr) {
  GRADUS_CHECK(group < groups_.size(), IndexError, "parameter group ", group, " of ", groups_.size());
  detail::check_not_negative("learning rate", lr);
  groups_[group].options().set_lr(lr);
  for (Cohort& cohort : state_->cohorts)
    if (cohort.group == group) cohort.upload(lr);
}

void Optimizer::set_lr(double lr) {
  for (size_t group = 0; group < groups_.size(); ++group) set_lr(group, lr);
}

Optimizer::StateDict Optimizer::state_dict() const {
  StateDict state("Optimizer state");
  if (has_rule()) {
    for (const auto& group : groups_) check_type(group.options());
    state_->write(state, groups_);
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    NumberWriter writer(state, options_prefix(group));
    groups_[group].options().clone()->visit(writer);
  }
  return state;
}

void Optimizer::load_state_dict(const StateDict& state) {
  const OpContext context("optimizer load_state_dict");
  StateReader reader(state);
  const auto read_options = [&](ParamGroups& groups) {
    for (size_t group = 0; group < groups.size(); ++group) {
      NumberReader numbers(reader, options_prefix(group), /*may_lack=*/true);
      groups[group].options().visit(numbers);
    }
  };
  if (has_rule()) {
    // Everything is read and checked before anything changes.
    ParamGroups groups = groups_;
    read_options(groups);
    for (size_t group = 0; group < groups.size(); ++group) {
      GRADUS_CHECK(reader.contains(options_prefix(group) + "lr"), ValueError, "the state has no '",
                   options_prefix(group), "lr'");
      groups[group].options().check();
    }
    auto loaded = std::make_unique<OptimizerState>();
    loaded->read(reader, groups);
    reader.check_all_used("optimizer");
    state_ = std::move(loaded);
  }
  read_options(groups_);  // in place, because users may hold references to the options
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
