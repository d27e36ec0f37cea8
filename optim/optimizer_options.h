// Options of optimizers. A class of options visits its numbers by name, so that one function serves for writing them to
// a state dict, reading them back and comparing them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/tensor.h>
#include <gradus/core/options.h>
#include <gradus/core/ordered_dict.h>

namespace gradus {
struct OptimizerRule;  // core/formulas/optimizer_rules.h
}

namespace gradus::optim {

/// Numbers by name, as safetensors files hold them.
using StateDict = OrderedDict<std::string, Tensor>;

/// An object calls its visitor with the name and the value of each of its numbers. The visitor may change the value.
class NumberVisitor {
 public:
  using Betas = std::tuple<double, double>;
  using Function = std::function<void(const std::string& name, double& value)>;
  explicit NumberVisitor(Function function) : function_(std::move(function)) {}
  void operator()(const std::string& name, double& value) { function_(name, value); }
  /// Visits a bool as the number 0 or 1.
  void operator()(const std::string& name, bool& value);
  /// Visits an integer as a double. Throws a ValueError if the visitor sets it to a negative or fractional number.
  void operator()(const std::string& name, int64_t& value);
  /// Visits the two numbers under the names name.0 and name.1.
  void operator()(const std::string& name, Betas& value);

 private:
  Function function_;
};

namespace detail {
/// Removes the first name from a list of members as GRADUS_FIELDS makes it ("lr_, betas_") and returns it without its
/// underscore ("lr").
std::string take_option_name(std::string_view& members);
}  // namespace detail

/// Calls the visitor with each member that the object lists in GRADUS_FIELDS.
template <class Object>
void visit_fields(Object& object, NumberVisitor& visitor) {
  std::string_view members = Object::field_names();
  object.with_fields([&](auto&... fields) { (visitor(detail::take_option_name(members), fields), ...); });
}

/// A visitor that appends each number to a state dict as a float64 scalar.
struct NumberWriter final : NumberVisitor {
  explicit NumberWriter(StateDict& state, const std::string& prefix = "");
};

/// Reads entries of a state dict and counts them. A missing or unsuitable entry is a ValueError that names the entry.
class StateReader {
 public:
  explicit StateReader(const StateDict& state) : state_(state) {}
  bool contains(const std::string& key) const { return state_.contains(key); }
  const Tensor& get(const std::string& key);
  double number(const std::string& key);
  /// Throws a ValueError if some entries were not read, because the state dict then belongs to another object. Call
  /// this last.
  void check_all_used(const char* owner) const;

 private:
  const StateDict& state_;
  size_t used_ = 0;
};

/// A visitor that sets each number to its value in a state dict. If the state dict lacks the number, the visitor throws
/// a ValueError or, with `may_lack`, leaves the number unchanged.
struct NumberReader final : NumberVisitor {
  explicit NumberReader(StateReader& reader, const std::string& prefix = "", bool may_lack = false);
};

/// Options of a parameter group. Each optimizer has its own class of options, which usually derives from
/// OptimizerCloneableOptions.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  using Betas = NumberVisitor::Betas;
  /// The name of the class, such as "AdamOptions".
  virtual const char* name() const { return "options"; }
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  /// Calls the visitor with each option that state dicts contain and operator== compares.
  virtual void visit(NumberVisitor& visitor);
  /// Throws a ValueError that names the option and its value if an option is invalid.
  virtual void check() const {}

  /// The update formula with these options. By default this throws a ValueError, for optimizers that override step().
  virtual OptimizerRule rule() const;
  /// The value of all elements of the rule's state arrays before the first step.
  virtual double initial_state() const { return 0; }
  /// Increments the step count in `block`, the device scalars of a StepBlock (core/kernel_args.h). Called before the
  /// kernel of the step.
  virtual void advance(const Array& block) const;
  /// Indices of scalars in a StepBlock, and their names in state dicts.
  using Counters = std::vector<std::pair<int, const char*>>;
  /// The scalars that advance() changes.
  virtual Counters counters() const;
};
/// True if both options are of the same class and have the same numbers.
bool operator==(const OptimizerOptions& a, const OptimizerOptions& b);

/// Implements the virtual functions of OptimizerOptions for Derived, which must have an option `lr`. Derived lists the
/// options that belong in state dicts with GRADUS_FIELDS; without such a list, state dicts contain only `lr`.
template <class Derived>
struct OptimizerCloneableOptions : OptimizerOptions {
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::unique_ptr<OptimizerOptions>(new Derived(static_cast<const Derived&>(*this)));
  }
  const char* name() const override { return gradus::detail::node_name<Derived>(); }
  double get_lr() const override { return static_cast<const Derived&>(*this).lr(); }
  void set_lr(double lr) override { static_cast<Derived&>(*this).lr(lr); }
  void visit(NumberVisitor& visitor) override {
    if constexpr (requires { Derived::field_names(); }) visit_fields(static_cast<Derived&>(*this), visitor);
    else OptimizerOptions::visit(visitor);
  }
};

namespace detail {

void check_not_negative(const std::string& option, double value);
/// Throws a ValueError unless all numbers of the options are finite and not negative, and betas are below 1.
void check_numbers(const OptimizerOptions& options);

/// Base of options that need no check other than check_numbers().
template <class Derived>
struct CheckedOptions : OptimizerCloneableOptions<Derived> {
  void check() const override { check_numbers(*this); }
};

}  // namespace detail

}  // namespace gradus::optim
