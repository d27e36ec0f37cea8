// State dicts of kernel optimizers. Keys, with parameters numbered through all groups:
//   state.<parameter>.step            how many steps it made, float64
//   state.<parameter>.<state name>    shape and dtype of the parameter
//   param_groups.<group>.lr           float64
#include <map>

#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim {

namespace {

std::string state_prefix(size_t parameter) { return "state." + std::to_string(parameter) + "."; }
std::string lr_key(size_t group) { return "param_groups." + std::to_string(group) + ".lr"; }

/// Finds entries of a state dict and counts them.
class Reader {
 public:
  explicit Reader(const Optimizer::StateDict& state) : state_(state) {}
  const Tensor* find(const std::string& key) {
    const Tensor* tensor = state_.find(key);
    if (tensor) ++used_;
    GRADUS_CHECK(!tensor || tensor->defined(), ValueError, "'", key, "' is undefined");
    return tensor;
  }
  const Tensor& get(const std::string& key) {
    const Tensor* tensor = find(key);
    GRADUS_CHECK(tensor, ValueError, "the state has no '", key, "'");
    return *tensor;
  }
  double number(const std::string& key, const Tensor& tensor) const {
    GRADUS_CHECK(tensor.numel() == 1, ValueError, "'", key, "' must be one number, has shape ", tensor.sizes());
    return ops::item(tensor.array()).to_double();
  }
  size_t unused() const { return state_.size() - used_; }

 private:
  const Optimizer::StateDict& state_;
  size_t used_ = 0;
};

}  // namespace

Optimizer::StateDict KernelOptimizer::state_dict() const {
  StateDict state("Optimizer state");
  size_t number = 0;
  for (size_t group = 0; group < param_groups().size(); ++group) {
    const std::vector<StateArray> arrays = state_arrays(param_groups()[group].options());
    for (size_t i = 0; i < param_groups()[group].params().size(); ++i) {
      const std::string prefix = state_prefix(number++);
      if (group >= states_.size() || i >= states_[group].size() || states_[group][i].cohort < 0) continue;
      const ParameterState& parameter = states_[group][i];
      // Copies: companions share a block, and later steps go on counting in it.
      state.append(prefix + "step", Tensor(ops::clone(cohorts_[parameter.cohort].block.select(0, StepBlock::step))));
      for (const StateArray& array : arrays) state.append(prefix + array.name, Tensor(parameter.arrays[array.place]));
    }
  }
  for (size_t group = 0; group < param_groups().size(); ++group)
    state.append(lr_key(group), Tensor(ops::full({}, param_groups()[group].options().get_lr(), DType::f64)));
  return state;
}

void KernelOptimizer::load_state_dict(const StateDict& state) {
  const OpContext context("optimizer load_state_dict");
  Reader reader(state);
  std::vector<Cohort> cohorts;
  std::vector<std::vector<ParameterState>> states(param_groups().size());
  std::vector<double> learning_rates;
  size_t number = 0;
  for (size_t group = 0; group < states.size(); ++group) {
    const double lr = reader.number(lr_key(group), reader.get(lr_key(group)));
    learning_rates.push_back(lr);
    const std::vector<StateArray> arrays = state_arrays(param_groups()[group].options());
    std::map<std::pair<std::string, double>, int> cohort_of;  // by device and count of steps
    for (const Tensor& parameter : param_groups()[group].params()) {
      ParameterState& loaded = states[group].emplace_back();
      const std::string prefix = state_prefix(number++);
      const Tensor* step = reader.find(prefix + "step");
      if (!step) continue;
      const double steps = reader.number(prefix + "step", *step);
      auto [entry, is_new] = cohort_of.try_emplace({parameter.device().str(), steps}, static_cast<int>(cohorts.size()));
      if (is_new) {
        cohorts.push_back({group, ops::step_block(lr, parameter.device()), lr});
        ops::set_step_block(cohorts.back().block, StepBlock::step, steps);
      }
      loaded.cohort = entry->second;
      for (const auto& [place, name, initial] : arrays) {
        const Tensor& source = reader.get(prefix + name);
        GRADUS_CHECK(source.sizes() == parameter.sizes(), ShapeError, "'", prefix, name, "' has shape ", source.sizes(),
                     ", its parameter ", parameter.sizes());
        loaded.arrays[place] = Array::empty_like(parameter.array());
        ops::copy_into(loaded.arrays[place], source.array());
      }
    }
  }
  GRADUS_CHECK(reader.unused() == 0, ValueError, "the state has ", reader.unused(),
               " entries that this optimizer does not know: it comes from another optimizer or other parameters");
  for (size_t group = 0; group < states.size(); ++group) param_groups()[group].options().set_lr(learning_rates[group]);
  cohorts_ = std::move(cohorts);
  states_ = std::move(states);
}

}  // namespace gradus::optim
