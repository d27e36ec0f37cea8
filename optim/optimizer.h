// Optimizer: holds parameters in groups with options and updates them in step(). Names and semantics follow
// torch::optim.
//
// An optimizer such as Adam (optimizers.h) adds only a class of options. Their rule() is the update formula for one
// element of a parameter (core/formulas/optimizer_rules.h). step() launches one kernel that applies the rule to all
// parameters that have a gradient and have made equally many steps. The kernel reads the learning rate and its other
// scalars from device memory, and the host reads nothing back. Therefore a step can be captured in a CUDA graph: take
// one eager step, which allocates the optimizer's state, then capture a step and replay it. set_lr() also changes the
// learning rate of replayed steps.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/optim/optimizer_options.h>

namespace gradus {
namespace serialize {
class InputArchive;  // autograd/archive.h
class OutputArchive;
}  // namespace serialize
}  // namespace gradus

namespace gradus::optim {

struct Cohort;  // optimizer_state.h
struct OptimizerState;

/// Parameters that share options. A group without options gets the optimizer's defaults when it is added to an
/// optimizer.
class OptimizerParamGroup {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  OptimizerParamGroup(TensorList params, std::unique_ptr<OptimizerOptions> options = nullptr);
  OptimizerParamGroup(const OptimizerParamGroup& other);
  OptimizerParamGroup(OptimizerParamGroup&&) noexcept = default;
  OptimizerParamGroup& operator=(OptimizerParamGroup&&) noexcept = default;
  OptimizerParamGroup& operator=(const OptimizerParamGroup& other) { return *this = OptimizerParamGroup(other); }

  bool has_options() const { return options_ != nullptr; }
  OptimizerOptions& options();
  const OptimizerOptions& options() const { return const_cast<OptimizerParamGroup*>(this)->options(); }
  void set_options(std::unique_ptr<OptimizerOptions> options) { options_ = std::move(options); }
  /// The learning rate from which schedules start: the group's rate when its first schedule was constructed.
  double initial_lr();
  void set_initial_lr(double lr) { initial_lr_ = lr; }
  TensorList& params() { return params_; }
  const TensorList& params() const { return params_; }

 private:
  TensorList params_;
  std::unique_ptr<OptimizerOptions> options_;
  std::optional<double> initial_lr_;
};

/// The groups of an optimizer.
using ParamGroups = std::vector<OptimizerParamGroup>;

class Optimizer : NoCopy {
 public:
  using LossClosure = std::function<Tensor()>;
  /// Numbers by name: "state.0.momentum_buffer", "param_groups.0.lr".
  using StateDict = optim::StateDict;

  virtual ~Optimizer();

  /// Updates every parameter that has a gradient. If `closure` is given, step() first calls it to compute the loss and
  /// the gradients, and returns that loss.
  virtual Tensor step(LossClosure closure = nullptr);

  /// Makes the gradients of all parameters undefined or, without set_to_none, fills them with zeros.
  void zero_grad(bool set_to_none = true);

  /// Throws a ValueError if a parameter is undefined, is not a leaf or already belongs to a group, or if the group's
  /// options are those of another optimizer.
  void add_param_group(OptimizerParamGroup group);
  ParamGroups& param_groups() { return groups_; }
  const ParamGroups& param_groups() const { return groups_; }
  /// All parameters, in the order of the groups.
  TensorList parameters() const;
  size_t size() const { return parameters().size(); }
  OptimizerOptions& defaults() { return *defaults_; }
  const OptimizerOptions& defaults() const { return *defaults_; }

  /// Sets the learning rate of one group, or of all groups. It also takes effect in steps that are replayed from a
  /// captured graph, whereas group.options().set_lr(lr) takes effect only in the next call of step().
  void set_lr(size_t group, double lr);
  void set_lr(double lr);

  /// Everything that is needed to resume training with bit-identical results: the state of each parameter, numbered as
  /// in parameters(), and the options of each group.
  virtual StateDict state_dict() const;
  /// Restores a state dict. The optimizer that made it must have had the same parameters in the same order. If `state`
  /// does not fit, an optimizer with a rule throws and remains unchanged.
  virtual void load_state_dict(const StateDict& state);
  /// Writes the state dict to an archive.
  virtual void save(serialize::OutputArchive& archive) const;
  /// Restores what save() wrote.
  virtual void load(serialize::InputArchive& archive);

  /// False for an optimizer such as LBFGS that overrides step() instead of defining a rule.
  bool has_rule() const { return has_rule_; }
  /// Makes a step with gradients that amp::GradScaler has not unscaled yet. For each device that has gradients,
  /// `scaling` contains an array on that device with two float64 numbers: the factor by which the kernel multiplies the
  /// gradients, and a flag that is not 0 if a gradient is inf or NaN. If the flag is set, no parameter changes.
  void step_scaled(const std::vector<Array>& scaling);
  /// The arrays of scalars that step kernels read from device memory (StepBlock in core/kernel_args.h), usually one for
  /// each group and device.
  std::vector<Array> step_blocks() const;
  /// Copies the learning rates from the groups' options to the step blocks, as step() does, so that replayed steps use
  /// them.
  void upload_learning_rates();

 protected:
  /// For an optimizer that overrides step().
  Optimizer(ParamGroups groups, std::unique_ptr<OptimizerOptions> defaults);
  /// For an optimizer whose steps apply the rule of the options.
  Optimizer(ParamGroups groups, const OptimizerOptions& defaults);
  Optimizer(TensorList params, const OptimizerOptions& defaults)
      : Optimizer(std::vector{OptimizerParamGroup(std::move(params))}, defaults) {}
  /// Throws a ValueError if `options` are those of another optimizer.
  void check_type(const OptimizerOptions& options) const;

 private:
  friend class FreshState;
  const OptimizerOptions& options_of(size_t group) const;
  void step_groups(const std::vector<Array>* scaling);
  void step_cohort(Cohort& cohort, const std::vector<size_t>& members, const std::vector<Array>* scaling);

  std::unique_ptr<OptimizerOptions> defaults_;
  ParamGroups groups_;
  std::unique_ptr<OptimizerState> state_;
  bool has_rule_ = false;
};

/// An optimizer that is defined by its options alone: step() applies the rule that Options::rule() returns.
template <class Options>
struct RuleOptimizer : Optimizer {
  explicit RuleOptimizer(ParamGroups groups, Options defaults = {}) : Optimizer(std::move(groups), defaults) {}
  explicit RuleOptimizer(TensorList params, Options defaults = {}) : Optimizer(std::move(params), defaults) {}
};

}  // namespace gradus::optim
