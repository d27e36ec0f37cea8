// Optimizer: parameter groups with options, and one step over all of them. Names and semantics follow torch::optim.
//
// An optimizer such as Adam (adam.h) adds only its options. They give the rule, which is the formula for one element
// (core/formulas/optimizer_rules.h), and Optimizer does the rest: in a step it applies the rule by one kernel to all
// parameters that have a gradient and share a step count. The kernel reads its scalars, such as the learning rate, from
// device memory, and nothing is read back. So a step can be captured in a graph: take one eager step first (it
// allocates the state), capture, then replay; set_lr() between replays reaches them.
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

/// Parameters that share options. A group that is made without options gets the optimizer's defaults.
class OptimizerParamGroup {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options = nullptr);
  OptimizerParamGroup(const OptimizerParamGroup& other);
  OptimizerParamGroup(OptimizerParamGroup&&) noexcept = default;
  OptimizerParamGroup& operator=(OptimizerParamGroup&&) noexcept = default;
  OptimizerParamGroup& operator=(const OptimizerParamGroup& other) { return *this = OptimizerParamGroup(other); }

  bool has_options() const { return options_ != nullptr; }
  OptimizerOptions& options();
  const OptimizerOptions& options() const { return const_cast<OptimizerParamGroup*>(this)->options(); }
  void set_options(std::unique_ptr<OptimizerOptions> options) { options_ = std::move(options); }
  /// What learning-rate schedules start from: the rate that the group had when the first one was made.
  double initial_lr();
  void set_initial_lr(double lr) { initial_lr_ = lr; }
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }

 private:
  std::vector<Tensor> params_;
  std::unique_ptr<OptimizerOptions> options_;
  std::optional<double> initial_lr_;
};

class Optimizer {
 public:
  using LossClosure = std::function<Tensor()>;
  /// Numbers by name: "state.0.momentum_buffer", "param_groups.0.lr".
  using StateDict = optim::StateDict;

  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Changes the parameters by their gradients; parameters whose gradient is undefined stay as they are. `closure`, if
  /// given, computes the loss and its gradients first; its loss is returned.
  virtual Tensor step(LossClosure closure = nullptr);

  /// Drops (or, without set_to_none, zeroes) the gradients of all parameters.
  void zero_grad(bool set_to_none = true);

  /// A parameter that is undefined, no leaf, or in a group already is a ValueError, as are options of another
  /// optimizer.
  void add_param_group(OptimizerParamGroup group);
  std::vector<OptimizerParamGroup>& param_groups() { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return groups_; }
  /// All parameters, group after group.
  std::vector<Tensor> parameters() const;
  size_t size() const { return parameters().size(); }
  OptimizerOptions& defaults() { return *defaults_; }
  const OptimizerOptions& defaults() const { return *defaults_; }

  /// Sets the learning rate of one group, or of all. Unlike group.options().set_lr(lr), which the next step() sees,
  /// this also reaches steps replayed from a captured graph.
  void set_lr(size_t group, double lr);
  void set_lr(double lr);

  /// What a checkpoint needs to continue with the same bits: the state of the parameters, numbered as in parameters(),
  /// and the options of the groups.
  virtual StateDict state_dict() const;
  /// The parameters must be those of the optimizer that `state` came from, in the same order. An optimizer with a rule
  /// does not change if `state` does not fit.
  virtual void load_state_dict(const StateDict& state);
  /// The state dict into an archive, and back.
  virtual void save(serialize::OutputArchive& archive) const;
  /// What save() wrote.
  virtual void load(serialize::InputArchive& archive);

  /// False for an optimizer that overrides step() instead of giving a rule.
  bool has_rule() const { return has_rule_; }
  /// step() on gradients that a loss scale still multiplies (amp::GradScaler). For each device that has gradients,
  /// `scaling` holds an array there of two float64 numbers: the factor for the gradients, and whether one of them is
  /// inf or NaN (not 0: nothing changes).
  void step_scaled(const std::vector<Array>& scaling);
  /// The blocks of scalars in device memory that the steps read (StepBlock), usually one per group and device.
  std::vector<Array> step_blocks() const;
  /// Writes learning rates that were set in the groups' options to the blocks, as the next step() would, so that
  /// replayed steps read them.
  void upload_learning_rates();

 protected:
  /// For an optimizer that overrides step().
  Optimizer(std::vector<OptimizerParamGroup> groups, std::unique_ptr<OptimizerOptions> defaults);
  /// For an optimizer whose steps apply the rule of the options.
  Optimizer(std::vector<OptimizerParamGroup> groups, const OptimizerOptions& defaults);
  Optimizer(std::vector<Tensor> params, const OptimizerOptions& defaults)
      : Optimizer(std::vector{OptimizerParamGroup(std::move(params))}, defaults) {}
  /// Options of another optimizer are a ValueError.
  void check_type(const OptimizerOptions& options) const;

 private:
  friend class FreshState;
  const OptimizerOptions& options_of(size_t group) const;
  void step_groups(const std::vector<Array>* scaling);
  void step_cohort(Cohort& cohort, const std::vector<size_t>& members, const std::vector<Array>* scaling);

  std::unique_ptr<OptimizerOptions> defaults_;
  std::vector<OptimizerParamGroup> groups_;
  std::unique_ptr<OptimizerState> state_;
  bool has_rule_ = false;
};

/// Base of the optimizers that are nothing but the rule of their options.
template <class Options>
class RuleOptimizer : public Optimizer {
 public:
  explicit RuleOptimizer(std::vector<OptimizerParamGroup> groups, Options defaults = {})
      : Optimizer(std::move(groups), defaults) {}
  explicit RuleOptimizer(std::vector<Tensor> params, Options defaults = {}) : Optimizer(std::move(params), defaults) {}
};

}  // namespace gradus::optim
