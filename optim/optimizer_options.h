// Options of optimizers. A class of options visits its numbers by name, so that one function serves for writing them to
// a state dict, reading them back and comparing them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/core/options.h>
#include <gradus/core/ordered_dict.h>

namespace gradus {
struct OptimizerRule;  // core/formulas/optimizer_rules.h
}

namespace gradus::optim {

/// Numbers by name, as safetensors files hold them.
using StateDict = OrderedDict<std::string, Tensor>;

/// Visits numbers by their names, and may change them.
class NumberVisitor {
 public:
  using Betas = std::tuple<double, double>;
  virtual ~NumberVisitor() = default;
  virtual void operator()(const std::string& name, double& value) = 0;
  void operator()(const std::string& name, bool& value);  ///< as 0 or 1
  void operator()(const std::string& name,
                  int64_t& value);                         ///< not negative; another number from a file is a ValueError
  void operator()(const std::string& name, Betas& value);  ///< as name.0 and name.1
};

/// Calls function(name, value) for each number.
template <class Function>
class NumberFunction final : public NumberVisitor {
 public:
  explicit NumberFunction(Function function) : function_(std::move(function)) {}
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override { function_(name, value); }

 private:
  Function function_;
};

namespace detail {
/// Takes the first name off the list that GRADUS_FIELDS makes of members ("lr_, betas_"), without its underscore.
std::string take_option_name(std::string_view& members);
}  // namespace detail

/// Shows the members of an object that GRADUS_FIELDS lists.
template <class Object>
void visit_fields(Object& object, NumberVisitor& visitor) {
  std::string_view members = Object::field_names();
  object.with_fields([&](auto&... fields) { (visitor(detail::take_option_name(members), fields), ...); });
}

/// Appends numbers to a state dict as float64 scalars.
class NumberWriter final : public NumberVisitor {
 public:
  explicit NumberWriter(StateDict& state, std::string prefix = "") : state_(state), prefix_(std::move(prefix)) {}
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override;

 private:
  StateDict& state_;
  std::string prefix_;
};

/// Finds entries of a state dict and counts them. Its errors are ValueErrors that name the entry.
class StateReader {
 public:
  explicit StateReader(const StateDict& state) : state_(state) {}
  bool contains(const std::string& key) const { return state_.contains(key); }
  const Tensor& get(const std::string& key);
  double number(const std::string& key);
  /// Call this at the end: an entry that was not read belongs to something else.
  void check_all_used(const char* owner) const;

 private:
  const StateDict& state_;
  size_t used_ = 0;
};

/// Reads numbers from a state dict. A number that it lacks is an error or, with `may_lack`, keeps its value.
class NumberReader final : public NumberVisitor {
 public:
  explicit NumberReader(StateReader& reader, std::string prefix = "", bool may_lack = false)
      : reader_(reader), prefix_(std::move(prefix)), may_lack_(may_lack) {}
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override;

 private:
  StateReader& reader_;
  std::string prefix_;
  bool may_lack_;
};

/// Options of a parameter group. Each optimizer derives its own, usually from OptimizerCloneableOptions.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  using Betas = NumberVisitor::Betas;
  /// The name of the class: "AdamOptions".
  virtual const char* name() const { return "options"; }
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  /// Shows all numbers, for state dicts and comparison.
  virtual void visit(NumberVisitor& visitor);
  /// Throws a ValueError that names the option and its value where options make no sense.
  virtual void check() const {}

  /// The rule with these options. A ValueError unless overridden, as for optimizers that have their own step().
  virtual OptimizerRule rule() const;
  /// The value of all elements of the rule's state arrays before the first step.
  virtual double initial_state() const { return 0; }
  /// Counts a step in the block of scalars (StepBlock), before the kernel runs.
  virtual void advance(const Array& block) const;
  /// The scalars that advance() changes: their places in the block, and their names in state dicts.
  virtual std::vector<std::pair<int, const char*>> counters() const;
};
/// True for options of one class with the same numbers.
bool operator==(const OptimizerOptions& a, const OptimizerOptions& b);

/// Implements what is the same for all options. Derived has an option `lr`. If state dicts hold others too, it lists
/// all of them with GRADUS_FIELDS.
template <class Derived>
class OptimizerCloneableOptions : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::unique_ptr<OptimizerOptions>(new Derived(static_cast<const Derived&>(*this)));
  }
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

/// Options of which every number is checked by check_numbers().
template <class Derived>
class CheckedOptions : public OptimizerCloneableOptions<Derived> {
 public:
  void check() const override { check_numbers(*this); }
};

}  // namespace detail

}  // namespace gradus::optim
