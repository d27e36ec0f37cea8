// KernelOptimizer: an optimizer whose step is one kernel over many parameters and reads its scalars from device memory.
//
// Nothing is read back to the host, so a step can be captured in a graph: take one eager step first (it allocates the
// state), capture, then replay; set_lr() between replays reaches them.
#pragma once

#include <gradus/core/kernel_args.h>
#include <gradus/optim/optimizer.h>

namespace gradus::optim {

/// Options that say what kernel runs.
class KernelOptimizerOptions : public OptimizerOptions {
 public:
  /// An array of a parameter's shape: its place among those that the rule reads (core/formulas/optimizer_rules.h), its name in
  /// state dicts, and what it holds at first.
  struct StateArray {
    int place;
    const char* name;
    double initial = 0;
  };
  /// A number that the step block keeps: its index there, and its name in state dicts.
  struct StateNumber {
    int index;
    const char* name;
  };
  virtual OptimizerRule rule() const = 0;
  /// The state that steps under these options need.
  virtual std::vector<StateArray> state_arrays() const = 0;
  virtual std::vector<StateNumber> state_numbers() const;
  /// Counts a step in the block, before the kernel runs.
  virtual void advance(const Array& block) const;
};

class KernelOptimizer : public Optimizer {
 public:
  ~KernelOptimizer() override;
  Tensor step(LossClosure closure = nullptr) override;
  /// step() on gradients that a loss scale still multiplies (amp::GradScaler): `scaling` holds, for each device that
  /// has some, two float64 numbers there: what they are multiplied with, and whether there is an inf or NaN among them
  /// (not 0: nothing changes).
  void step_scaled(const std::vector<Array>& scaling);
  using Optimizer::set_lr;
  void set_lr(size_t group, double lr) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

  /// The blocks of scalars in device memory that the steps read (StepBlock), as a rule one per group and device.
  std::vector<Array> step_blocks() const;
  /// Writes learning rates that were set in the groups' options to the blocks, as the next step() would: replayed steps
  /// read them there.
  void upload_learning_rates();

  /// Until the end of the scope the optimizer has the state, made anew, that it has after a step in which all
  /// parameters that want gradients had some. Memory plans record steps with it.
  class FreshState;

 protected:
  KernelOptimizer(std::vector<OptimizerParamGroup> groups, std::unique_ptr<KernelOptimizerOptions> defaults);
  KernelOptimizer(std::vector<Tensor> params, std::unique_ptr<KernelOptimizerOptions> defaults);

 private:
  /// Parameters of one group on one device that made the same steps, and so share a block. Those that sit out a step
  /// (no gradient) part from their companions: their count of steps is another from then on, as it is in PyTorch.
  struct Cohort {
    size_t group;
    Array block;
    double learning_rate;  // in the block
  };
  struct ParameterState {
    int cohort = -1;  // -1: made no step yet
    Array arrays[kMaxOptimizerStates];
  };

  const KernelOptimizerOptions& options_of(size_t group) const;
  static Array initial_state(const Array& parameter, double value);
  void step_group(size_t group);
  void step_cohort(int cohort, const std::vector<size_t>& members);
  void take_scaling(const Array& block) const;
  /// The cohort of a group's parameters on `device` whose first step this is.
  int new_cohort(size_t group, Device device);
  /// A cohort of `members` alone, split off theirs.
  int split_cohort(int cohort, const std::vector<size_t>& members);
  void upload_learning_rate(Cohort& cohort);

  const std::vector<Array>* scaling_ = nullptr;  // during step_scaled
  std::vector<Cohort> cohorts_;
  std::vector<std::vector<ParameterState>> states_;  // by group and position in it
};

class KernelOptimizer::FreshState {
 public:
  explicit FreshState(KernelOptimizer& optimizer);
  ~FreshState();
  FreshState(const FreshState&) = delete;
  FreshState& operator=(const FreshState&) = delete;
  int64_t bytes() const { return bytes_; }

 private:
  KernelOptimizer& optimizer_;
  std::vector<Cohort> cohorts_;  // of before
  std::vector<std::vector<ParameterState>> states_;
  int64_t bytes_ = 0;
};

/// The constructors that optimizers have alike: parameters, or groups of them, and the options of groups without their
/// own.
template <class Options>
class KernelOptimizerWith : public KernelOptimizer {
 public:
  explicit KernelOptimizerWith(std::vector<OptimizerParamGroup> groups, Options defaults = {})
      : KernelOptimizer(std::move(groups), std::unique_ptr<KernelOptimizerOptions>(new Options(defaults))) {}
  explicit KernelOptimizerWith(std::vector<Tensor> params, Options defaults = {})
      : KernelOptimizer(std::move(params), std::unique_ptr<KernelOptimizerOptions>(new Options(defaults))) {}
};

}  // namespace gradus::optim
