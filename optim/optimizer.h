// Optimizer: parameter groups with options, and one step over all of them. Names and semantics follow torch::optim.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/core/options.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/optim/number_visitor.h>

namespace gradus::serialize {
class InputArchive;  // autograd/archive.h
class OutputArchive;
}  // namespace gradus::serialize

namespace gradus::optim {

/// Options of a parameter group; each optimizer derives its own, from OptimizerCloneableOptions as a rule.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  /// Of the class: "AdamOptions".
  virtual const char* name() const { return "options"; }
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  /// Shows all numbers, for state dicts and comparison.
  virtual void visit(NumberVisitor& visitor);
  /// Throws a ValueError that names the option and its value where options make no sense.
  virtual void check() const {}
};
/// Of one class, with the same numbers.
bool operator==(const OptimizerOptions& a, const OptimizerOptions& b);

/// The part of its options that every optimizer writes alike; Derived has an option `lr`.
template <class Derived, class Base = OptimizerOptions>
class OptimizerCloneableOptions : public Base {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::unique_ptr<OptimizerOptions>(new Derived(static_cast<const Derived&>(*this)));
  }
  double get_lr() const override { return static_cast<const Derived&>(*this).lr(); }
  void set_lr(double lr) override { static_cast<Derived&>(*this).lr(lr); }
};

/// Parameters that share options. Without options of its own a group has the optimizer's defaults.
class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params);  // NOLINT(google-explicit-constructor)
  OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options);
  OptimizerParamGroup(const OptimizerParamGroup& other);
  OptimizerParamGroup(OptimizerParamGroup&&) noexcept;
  OptimizerParamGroup& operator=(OptimizerParamGroup&&) noexcept;
  OptimizerParamGroup& operator=(const OptimizerParamGroup& other);
  ~OptimizerParamGroup();

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

  /// Changes the parameters by their gradients; those whose gradient is undefined stay. `closure`, where given,
  /// computes the loss and its gradients first; its loss is returned.
  virtual Tensor step(LossClosure closure = nullptr) = 0;

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
  virtual void set_lr(size_t group, double lr);
  void set_lr(double lr);

  /// What a checkpoint needs to go on as if nothing had happened; by default the options of the groups. Parameters are
  /// numbered as in parameters().
  virtual StateDict state_dict() const;
  /// The parameters must be those of the optimizer that `state` came from, in the same order.
  virtual void load_state_dict(const StateDict& state);
  /// The state dict into an archive, and back.
  virtual void save(serialize::OutputArchive& archive) const;
  /// What save() wrote.
  virtual void load(serialize::InputArchive& archive);

 protected:
  Optimizer(std::vector<OptimizerParamGroup> groups, std::unique_ptr<OptimizerOptions> defaults);
  /// Options of another optimizer are a ValueError.
  void check_type(const OptimizerOptions& options) const;

 private:
  std::unique_ptr<OptimizerOptions> defaults_;
  std::vector<OptimizerParamGroup> groups_;
};

}  // namespace gradus::optim
