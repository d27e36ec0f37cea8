// The state that an optimizer with a rule keeps between steps: arrays for each parameter, such as Adam's moments, and
// blocks of scalars, such as the step count, that kernels read from device memory. The state has these names in state
// dicts, where parameters are numbered through all groups:
//   state.<parameter>.step            number of steps of the parameter, float64; NAdam also stores mu_product
//   state.<parameter>.<state name>    shape and dtype of the parameter
//   param_groups.<group>.<option>     float64, booleans as 0 or 1
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/kernel_args.h>
#include <gradus/optim/optimizer.h>

namespace gradus::optim {

/// Parameters of one group on one device that have made the same steps and therefore share a block of scalars. If only
/// some of these parameters have a gradient in a step, they move to a new cohort, because every parameter counts its
/// own steps, as in PyTorch.
struct Cohort {
  size_t group;
  Array block;           // scalars at the indices of StepBlock
  double learning_rate;  // the value in the block

  /// Writes `lr` to the block, unless the block has this value already.
  void upload(double lr);
};

struct ParameterState {
  int cohort = -1;  // index into OptimizerState::cohorts; -1 before the parameter's first step
  Array arrays[kMaxOptimizerStates];

  /// The k-th state array of the rule. The first call allocates it and fills it with `initial`.
  const Array& array(int k, const Array& parameter, double initial);
};

struct OptimizerState {
  using Members = std::vector<size_t>;  // positions of parameters in their group

  std::vector<Cohort> cohorts;
  std::vector<std::vector<ParameterState>> states;  // indexed by group and by position in the group

  /// Splits cohorts for a step in which only the parameters `taking_part` of a group have gradients, so that each
  /// cohort of the step contains only such parameters. Returns the indices of these cohorts with their members.
  std::map<int, Members> cohorts_of_step(size_t group, const OptimizerParamGroup& parameters,
                                         const Members& taking_part);
  /// Appends a cohort whose step count is 0 and returns its index.
  int add_cohort(size_t group, const OptimizerParamGroup& parameters, Device device);

  void write(StateDict& state, const ParamGroups& groups) const;
  /// Fills this state, which must be empty, from what write() wrote. The groups must already have the options of that
  /// state dict.
  void read(StateReader& reader, const ParamGroups& groups);
};

/// While this exists, the optimizer has the state that it would have after a first step in which every trainable
/// parameter had a gradient. training/memory_report.h records a step under a FreshState to find the memory that such a
/// step needs. The optimizer must have a rule.
class FreshState : NoCopy {
 public:
  explicit FreshState(Optimizer& optimizer);
  ~FreshState();
  int64_t bytes() const { return bytes_; }

 private:
  Optimizer& optimizer_;
  std::unique_ptr<OptimizerState> kept_;  // the optimizer's own state
  int64_t bytes_ = 0;
};

}  // namespace gradus::optim
