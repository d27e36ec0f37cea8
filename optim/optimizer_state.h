// What an optimizer with a rule keeps between steps: the state arrays of every parameter, and blocks of scalars that
// kernels read from device memory. In state dicts, with parameters numbered through all groups:
//   state.<parameter>.step            number of steps it made, float64; of NAdam also mu_product
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

/// Parameters of one group on one device that made the same steps, and so share a block of scalars. Where only some of
/// them have a gradient, these leave for a new cohort: as in PyTorch, every parameter counts its own steps.
struct Cohort {
  size_t group;
  Array block;           // StepBlock
  double learning_rate;  // in the block

  /// Writes a learning rate to the block if it has another.
  void upload(double lr);
};

struct ParameterState {
  int cohort = -1;  // -1: made no step yet
  Array arrays[kMaxOptimizerStates];

  /// The array of s_{k+1}, which is allocated at the first call and filled with `initial`.
  const Array& array(int k, const Array& parameter, double initial);
};

struct OptimizerState {
  using Members = std::vector<size_t>;  // positions of parameters in their group

  std::vector<Cohort> cohorts;
  std::vector<std::vector<ParameterState>> states;  // by group and position in it

  /// Brings the parameters of a group that take part in a step into cohorts without other members. Returns the numbers
  /// of these cohorts with their members.
  std::map<int, Members> cohorts_of_step(size_t group, const OptimizerParamGroup& parameters,
                                         const Members& taking_part);
  /// Returns the number of a cohort that made no step.
  int add_cohort(size_t group, const OptimizerParamGroup& parameters, Device device);

  void write(StateDict& state, const std::vector<OptimizerParamGroup>& groups) const;
  /// Reads what write() wrote into an empty state; the groups have the options that came with it.
  void read(StateReader& reader, const std::vector<OptimizerParamGroup>& groups);
};

/// While this exists, the optimizer has the state that it would have after a first step in which every trainable
/// parameter had a gradient. Memory plans record steps with it. The optimizer must have a rule.
class FreshState {
 public:
  explicit FreshState(Optimizer& optimizer);
  ~FreshState();
  FreshState(const FreshState&) = delete;
  FreshState& operator=(const FreshState&) = delete;
  int64_t bytes() const { return bytes_; }

 private:
  Optimizer& optimizer_;
  std::unique_ptr<OptimizerState> kept_;  // the optimizer's own
  int64_t bytes_ = 0;
};

}  // namespace gradus::optim
