// State dicts of kernel optimizers. Keys, with parameters numbered through all groups:
//   state.<parameter>.step            how many steps it made, float64; NAdam: mu_product too
//   state.<parameter>.<state name>    shape and dtype of the parameter
//   param_groups.<group>.<option>     float64, booleans as 0 or 1
#include <cmath>
#include <map>

#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/optimizer.h>
#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

namespace {

std::string state_prefix(size_t parameter) { return "state." + std::to_string(parameter) + "."; }
std::string group_prefix(size_t group) { return "param_groups." + std::to_string(group) + "."; }

}  // namespace

Optimizer::StateDict KernelOptimizer::state_dict() const {
  StateDict state("Optimizer state");
  size_t number = 0;
  for (size_t group = 0; group < param_groups().size(); ++group) {
    const KernelOptimizerOptions& options = options_of(group);
    for (size_t i = 0; i < param_groups()[group].params().size(); ++i) {
      const std::string prefix = state_prefix(number++);
      if (group >= states_.size() || i >= states_[group].size() || states_[group][i].cohort < 0) continue;
      const ParameterState& parameter = states_[group][i];
      // Copies: companions share a block, and later steps go on counting in it.
      for (const auto& [index, name] : options.state_numbers())
        state.append(prefix + name, Tensor(ops::clone(cohorts_[parameter.cohort].block.select(0, index))));
      for (const auto& [place, name, initial] : options.state_arrays())
        state.append(prefix + name, Tensor(parameter.arrays[place].defined()
                                               ? parameter.arrays[place]
                                               : initial_state(param_groups()[group].params()[i].array(), initial)));
    }
  }
  for (size_t group = 0; group < param_groups().size(); ++group) {
    NumberWriter writer(state, group_prefix(group));
    param_groups()[group].options().clone()->visit(writer);
  }
  return state;
}

void KernelOptimizer::load_state_dict(const StateDict& state) {
  const OpContext context("optimizer load_state_dict");
  StateReader reader(state);
  std::vector<std::unique_ptr<OptimizerOptions>> all_options;
  std::vector<Cohort> cohorts;
  std::vector<std::vector<ParameterState>> states(param_groups().size());
  size_t number = 0;
  for (size_t group = 0; group < states.size(); ++group) {
    all_options.push_back(param_groups()[group].options().clone());
    NumberReader option_reader(reader, group_prefix(group), /*may_lack=*/true);
    GRADUS_CHECK(reader.contains(group_prefix(group) + "lr"), ValueError, "the state has no '", group_prefix(group),
                 "lr'");
    all_options.back()->visit(option_reader);
    all_options.back()->check();
    const auto& options = static_cast<const KernelOptimizerOptions&>(*all_options.back());
    std::map<std::pair<std::string, std::vector<double>>, int> cohort_of;  // by device and numbers
    for (const Tensor& parameter : param_groups()[group].params()) {
      ParameterState& loaded = states[group].emplace_back();
      const std::string prefix = state_prefix(number++);
      if (!state.contains(prefix + "step")) continue;  // it made none
      std::vector<double> numbers;
      for (const auto& [index, name] : options.state_numbers()) {
        numbers.push_back(reader.number(prefix + name));
        GRADUS_CHECK(numbers.back() >= 0 && std::isfinite(numbers.back()), ValueError, "'", prefix, name,
                     "' must be finite and not negative, is ", numbers.back());
      }
      auto [entry, is_new] =
          cohort_of.try_emplace({parameter.device().str(), numbers}, static_cast<int>(cohorts.size()));
      if (is_new) {
        cohorts.push_back({group, ops::step_block(options.get_lr(), parameter.device()), options.get_lr()});
        for (size_t k = 0; k < numbers.size(); ++k)
          ops::set_step_block(cohorts.back().block, options.state_numbers()[k].index, numbers[k]);
      }
      loaded.cohort = entry->second;
      for (const auto& [place, name, initial] : options.state_arrays()) {
        const Tensor& source = reader.get(prefix + name);
        GRADUS_CHECK(source.sizes() == parameter.sizes(), ShapeError, "'", prefix, name, "' has shape ", source.sizes(),
                     ", its parameter ", parameter.sizes());
        loaded.arrays[place] = Array::empty_like(parameter.array());
        ops::copy_into(loaded.arrays[place], source.array());
      }
    }
  }
  reader.check_all_used("optimizer");
  for (size_t group = 0; group < states.size(); ++group) {  // in place: users hold references to options
    NumberReader option_reader(reader, group_prefix(group), /*may_lack=*/true);
    param_groups()[group].options().visit(option_reader);
  }
  cohorts_ = std::move(cohorts);
  states_ = std::move(states);
}

}  // namespace gradus::optim
