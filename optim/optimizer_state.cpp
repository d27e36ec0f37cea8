#include <gradus/optim/optimizer_state.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <gradus/core/ops/nn/nn.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::optim {

static_assert(kMaxOptimizerStates == std::tuple_size_v<rules::StateNames>);

namespace {

void check_not_capturing(Device device, const char* what) {
  GRADUS_CHECK(!runtime(device.type()).capturing(), ValueError, what,
               " in a captured step: take an eager step with the same gradients before the capture");
}

Array filled_like(const Array& parameter, double value) {
  Array state = Array::empty_like(parameter);
  ops::fill(state, value);
  return state;
}

std::string state_prefix(size_t parameter) { return "state." + std::to_string(parameter) + "."; }

}  // namespace

void Cohort::upload(double lr) {
  if (lr == learning_rate) return;
  // A captured write would undo every later set_lr() whenever the graph is replayed.
  GRADUS_CHECK(!runtime(block.device().type()).capturing(), ValueError, "the learning rate changed from ",
               learning_rate, " to ", lr, " in a captured step: call optimizer.set_lr() before the capture");
  ops::set_step_block(block, StepBlock::learning_rate, lr);
  learning_rate = lr;
}

const Array& ParameterState::array(int k, const Array& parameter, double initial) {
  if (!arrays[k].defined()) {
    check_not_capturing(parameter.device(), "the optimizer's state cannot be allocated");
    arrays[k] = filled_like(parameter, initial);
  }
  return arrays[k];
}

int OptimizerState::add_cohort(size_t group, const OptimizerParamGroup& parameters, Device device) {
  const double lr = parameters.options().get_lr();
  cohorts.push_back({group, ops::step_block(lr, device), lr});
  return static_cast<int>(cohorts.size() - 1);
}

std::map<int, OptimizerState::Members> OptimizerState::cohorts_of_step(size_t group,
                                                                       const OptimizerParamGroup& parameters,
                                                                       const Members& taking_part) {
  states.resize(std::max(states.size(), group + 1));
  states[group].resize(parameters.params().size());

  std::map<std::string, int> newcomers;  // new cohorts by device
  std::map<int, Members> members;
  for (size_t i : taking_part) {
    int& cohort = states[group][i].cohort;
    if (cohort < 0) {
      const Device device = parameters.params()[i].device();
      const auto [entry, is_new] = newcomers.try_emplace(device.str(), -1);
      if (is_new) {
        check_not_capturing(device, "the optimizer's state cannot be allocated");
        entry->second = add_cohort(group, parameters, device);
      }
      cohort = entry->second;
    }
    members[cohort].push_back(i);
  }

  std::map<int, size_t> sizes;
  for (const ParameterState& state : states[group]) ++sizes[state.cohort];
  std::map<int, Members> whole;
  for (auto& [cohort, leaving] : members) {
    int number = cohort;
    if (leaving.size() < sizes[cohort]) {
      Cohort split = cohorts[cohort];
      check_not_capturing(split.block.device(), "parameters that had gradients in earlier steps have none");
      split.block = ops::clone(split.block);
      number = static_cast<int>(cohorts.size());
      cohorts.push_back(std::move(split));
      for (size_t i : leaving) states[group][i].cohort = number;
    }
    whole.emplace(number, std::move(leaving));
  }
  return whole;
}

void OptimizerState::write(StateDict& state, const ParamGroups& groups) const {
  size_t number = 0;
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto& options = groups[group].options();
    const rules::StateNames names = options.rule().state_names();
    for (size_t i = 0; i < groups[group].params().size(); ++i) {
      const std::string prefix = state_prefix(number++);
      if (group >= states.size() || i >= states[group].size() || states[group][i].cohort < 0) continue;
      ParameterState parameter = states[group][i];
      // The counters are cloned because later steps change the block.
      for (const auto& [index, name] : options.counters())
        state.append(prefix + name, Tensor(ops::clone(cohorts[parameter.cohort].block.select(0, index))));
      for (int k = 0; k < kMaxOptimizerStates; ++k)
        if (names[k])
          state.append(prefix + names[k],
                       Tensor(parameter.array(k, groups[group].params()[i].array(), options.initial_state())));
    }
  }
}

void OptimizerState::read(StateReader& reader, const ParamGroups& groups) {
  size_t number = 0;
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto& options = groups[group].options();
    const rules::StateNames names = options.rule().state_names();
    std::map<std::pair<std::string, std::vector<double>>, int> cohort_of;  // by device and counters
    states.emplace_back();
    for (const Tensor& parameter : groups[group].params()) {
      ParameterState& loaded = states[group].emplace_back();
      const std::string prefix = state_prefix(number++);
      if (!reader.contains(prefix + "step")) continue;  // the parameter made no step
      std::vector<double> counts;
      for (const auto& [index, name] : options.counters()) {
        counts.push_back(reader.number(prefix + name));
        GRADUS_CHECK(counts.back() >= 0 && std::isfinite(counts.back()), ValueError, "'", prefix, name,
                     "' must be finite and not negative, is ", counts.back());
      }
      const auto [entry, is_new] = cohort_of.try_emplace({parameter.device().str(), counts}, -1);
      if (is_new) {
        entry->second = add_cohort(group, groups[group], parameter.device());
        for (size_t k = 0; k < counts.size(); ++k)
          ops::set_step_block(cohorts.back().block, options.counters()[k].first, counts[k]);
      }
      loaded.cohort = entry->second;
      for (int k = 0; k < kMaxOptimizerStates; ++k) {
        if (!names[k]) continue;
        const Tensor& source = reader.get(prefix + names[k]);
        GRADUS_CHECK(source.sizes() == parameter.sizes(), ShapeError, "'", prefix, names[k], "' has shape ",
                     source.sizes(), ", its parameter ", parameter.sizes());
        loaded.arrays[k] = Array::empty_like(parameter.array());
        ops::copy_into(loaded.arrays[k], source.array());
      }
    }
  }
}

// Allocates the state itself, because a memory report calls this while it records, when cohorts_of_step() refuses to
// allocate.
FreshState::FreshState(Optimizer& optimizer) : optimizer_(optimizer) {
  auto fresh = std::make_unique<OptimizerState>();
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& options = optimizer.options_of(group);
    const rules::StateNames names = options.rule().state_names();
    const OptimizerParamGroup& parameters = optimizer.param_groups()[group];
    std::map<std::string, int> cohort_of;  // by device
    std::vector<ParameterState>& states = fresh->states.emplace_back();
    for (const Tensor& parameter : parameters.params()) {
      ParameterState& state = states.emplace_back();
      if (!parameter.requires_grad()) continue;
      const auto [entry, is_new] = cohort_of.try_emplace(parameter.device().str(), -1);
      if (is_new) {
        entry->second = fresh->add_cohort(group, parameters, parameter.device());
        bytes_ += counted_bytes(fresh->cohorts.back().block.nbytes(), parameter.device().type());
      }
      state.cohort = entry->second;
      for (int k = 0; k < kMaxOptimizerStates; ++k) {
        if (!names[k]) continue;
        state.arrays[k] = filled_like(parameter.array(), options.initial_state());
        bytes_ += counted_bytes(state.arrays[k].nbytes(), parameter.device().type());
      }
    }
  }
  kept_ = std::exchange(optimizer.state_, std::move(fresh));
}

FreshState::~FreshState() { optimizer_.state_ = std::move(kept_); }

}  // namespace gradus::optim
