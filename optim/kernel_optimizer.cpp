#include <gradus/optim/kernel_optimizer.h>

#include <algorithm>
#include <map>

#include <gradus/autograd/half_copy.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/optimizer.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::optim {

namespace {

void check_not_capturing(Device device, const char* what) {
  GRADUS_CHECK(!runtime(device.type()).capturing(), ValueError, what,
               " in a captured step: take an eager step with the same gradients before the capture");
}

}  // namespace

std::vector<KernelOptimizerOptions::StateNumber> KernelOptimizerOptions::state_numbers() const {
  return {{StepBlock::step, "step"}};
}

void KernelOptimizerOptions::advance(const Array& block) const { ops::advance_step(block); }

KernelOptimizer::KernelOptimizer(std::vector<OptimizerParamGroup> groups,
                                 std::unique_ptr<KernelOptimizerOptions> defaults)
    : Optimizer(std::move(groups), std::move(defaults)) {}
KernelOptimizer::KernelOptimizer(std::vector<Tensor> params, std::unique_ptr<KernelOptimizerOptions> defaults)
    : KernelOptimizer(std::vector{OptimizerParamGroup(std::move(params))}, std::move(defaults)) {}
KernelOptimizer::~KernelOptimizer() = default;

const KernelOptimizerOptions& KernelOptimizer::options_of(size_t group) const {
  const OptimizerOptions& options = param_groups()[group].options();
  check_type(options);  // set_options() took anything
  return static_cast<const KernelOptimizerOptions&>(options);
}

Tensor KernelOptimizer::step(LossClosure closure) {
  Tensor loss;
  if (closure) {
    AutoGradMode grad(true);
    loss = closure();
  }
  const OpContext context("optimizer step");
  const EventScope event("optimizer_step");
  states_.resize(param_groups().size());
  for (size_t group = 0; group < states_.size(); ++group) step_group(group);
  return loss;
}

void KernelOptimizer::step_scaled(const std::vector<Array>& scaling) {
  struct Scope {
    const std::vector<Array>*& place;
    ~Scope() { place = nullptr; }
  } scope{scaling_};
  scaling_ = &scaling;
  step();
}

void KernelOptimizer::step_group(size_t group) {
  const std::vector<Tensor>& parameters = param_groups()[group].params();
  std::vector<ParameterState>& states = states_[group];
  states.resize(parameters.size());

  std::map<int, std::vector<size_t>> taking_part;  // by cohort
  std::map<int, size_t> cohort_sizes;
  std::map<std::string, int> newcomers;  // cohort by device
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool has_gradient = amp::detail::gradient_for_step(parameters[i]).defined();
    if (has_gradient && states[i].cohort < 0) {
      const Device device = parameters[i].device();
      auto [entry, is_new] = newcomers.try_emplace(device.str(), -1);
      if (is_new) entry->second = new_cohort(group, device);
      states[i].cohort = entry->second;
    }
    ++cohort_sizes[states[i].cohort];
    if (has_gradient) taking_part[states[i].cohort].push_back(i);
  }
  for (const auto& [cohort, members] : taking_part)
    step_cohort(members.size() == cohort_sizes[cohort] ? cohort : split_cohort(cohort, members), members);
}

Array KernelOptimizer::initial_state(const Array& parameter, double value) {
  Array state = Array::empty_like(parameter);
  ops::fill(state, value);
  return state;
}

int KernelOptimizer::new_cohort(size_t group, Device device) {
  check_not_capturing(device, "the optimizer's state cannot be allocated");
  const double lr = param_groups()[group].options().get_lr();
  cohorts_.push_back({group, ops::step_block(lr, device), lr});
  return static_cast<int>(cohorts_.size() - 1);
}

int KernelOptimizer::split_cohort(int cohort, const std::vector<size_t>& members) {
  Cohort copy = cohorts_[cohort];
  check_not_capturing(copy.block.device(), "parameters that had gradients in earlier steps have none");
  copy.block = ops::clone(copy.block);
  cohorts_.push_back(copy);
  for (size_t i : members) states_[copy.group][i].cohort = static_cast<int>(cohorts_.size() - 1);
  return static_cast<int>(cohorts_.size() - 1);
}

void KernelOptimizer::step_cohort(int cohort, const std::vector<size_t>& members) {
  const Array block = cohorts_[cohort].block;
  const size_t group = cohorts_[cohort].group;
  const KernelOptimizerOptions& options = options_of(group);
  const auto state_arrays = options.state_arrays();
  upload_learning_rate(cohorts_[cohort]);

  std::vector<ops::OptimizerEntry> entries;
  entries.reserve(members.size());
  for (size_t i : members) {
    const Tensor& parameter = param_groups()[group].params()[i];
    Array* state = states_[group][i].arrays;
    ops::OptimizerEntry entry{
        parameter.array(), amp::detail::gradient_for_step(parameter), {}, amp::detail::half_copy_for_step(parameter)};
    for (const auto& [place, name, initial] : state_arrays) {
      if (!state[place].defined()) {
        check_not_capturing(parameter.device(), "the optimizer's state cannot be allocated");
        state[place] = initial_state(parameter.array(), initial);
      }
      entry.states[place] = state[place];
    }
    entries.push_back(std::move(entry));
  }
  if (scaling_) take_scaling(block);
  options.advance(block);
  ops::optimizer_step(entries, block, options.rule());
  for (size_t i = 0; i < members.size(); ++i)
    if (entries[i].half.defined()) amp::detail::half_copy_written(param_groups()[group].params()[members[i]]);
  if (!scaling_) return;
  ops::set_step_block(block, StepBlock::gradient_scale, 1);
  ops::set_step_block(block, StepBlock::found_inf, 0);
}

void KernelOptimizer::take_scaling(const Array& block) const {
  const auto here = std::find_if(scaling_->begin(), scaling_->end(),
                                 [&](const Array& scaling) { return scaling.device() == block.device(); });
  GRADUS_CHECK(here != scaling_->end(), DeviceError, "loss scaling knows of no gradients on ", block.device());
  static_assert(StepBlock::found_inf == StepBlock::gradient_scale + 1);
  ops::copy_into(block.slice(0, StepBlock::gradient_scale, StepBlock::found_inf + 1), *here);
}

void KernelOptimizer::upload_learning_rate(Cohort& cohort) {
  const double lr = param_groups()[cohort.group].options().get_lr();
  if (lr == cohort.learning_rate) return;
  // Recorded, this write would undo every later set_lr at each replay.
  GRADUS_CHECK(!runtime(cohort.block.device().type()).capturing(), ValueError, "the learning rate changed from ",
               cohort.learning_rate, " to ", lr, " in a captured step: call optimizer.set_lr() before the capture");
  ops::set_step_block(cohort.block, StepBlock::learning_rate, lr);
  cohort.learning_rate = lr;
}

void KernelOptimizer::set_lr(size_t group, double lr) {
  Optimizer::set_lr(group, lr);
  for (Cohort& cohort : cohorts_)
    if (cohort.group == group) upload_learning_rate(cohort);
}

void KernelOptimizer::upload_learning_rates() {
  for (Cohort& cohort : cohorts_) upload_learning_rate(cohort);
}

std::vector<Array> KernelOptimizer::step_blocks() const {
  std::vector<Array> blocks;
  for (const Cohort& cohort : cohorts_) blocks.push_back(cohort.block);
  return blocks;
}

KernelOptimizer::FreshState::FreshState(KernelOptimizer& optimizer)
    : optimizer_(optimizer), cohorts_(std::move(optimizer.cohorts_)), states_(std::move(optimizer.states_)) {
  optimizer.cohorts_.clear(), optimizer.states_.assign(optimizer.param_groups().size(), {});
  for (size_t group = 0; group < optimizer.states_.size(); ++group) {
    const KernelOptimizerOptions& options = optimizer.options_of(group);
    std::map<std::string, int> cohort_of;  // by device
    for (const Tensor& parameter : optimizer.param_groups()[group].params()) {
      ParameterState& state = optimizer.states_[group].emplace_back();
      if (!parameter.requires_grad()) continue;
      const auto [entry, is_new] =
          cohort_of.try_emplace(parameter.device().str(), static_cast<int>(optimizer.cohorts_.size()));
      if (is_new) {
        optimizer.cohorts_.push_back({group, ops::step_block(options.get_lr(), parameter.device()), options.get_lr()});
        bytes_ += counted_bytes(optimizer.cohorts_.back().block.nbytes(), parameter.device().type());
      }
      state.cohort = entry->second;
      for (const auto& [place, name, initial] : options.state_arrays()) {
        state.arrays[place] = initial_state(parameter.array(), initial);
        bytes_ += counted_bytes(state.arrays[place].nbytes(), parameter.device().type());
      }
    }
  }
}

KernelOptimizer::FreshState::~FreshState() {
  optimizer_.cohorts_ = std::move(cohorts_), optimizer_.states_ = std::move(states_);
}

}  // namespace gradus::optim
