// RecordedCall: a recorded call of any method of Backend, with copies of the arguments.
#pragma once

#include <tuple>

#include <gradus/core/backend_interceptor.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/op_lists.h>
#include <gradus/graph/call.h>

namespace gradus::graph {
namespace detail {

/// The type in which a call stores an argument of type T. A span is stored as a vector, because the caller owns the
/// span's elements.
template <class T>
struct Owned {
  using type = T;
};
template <class T>
struct Owned<std::span<const T>> {
  using type = std::vector<T>;
};
struct OwnedStencil {
  OwnedStencil(const Stencil& stencil)  // NOLINT(google-explicit-constructor)
      : size_in(stencil.size_in), size_out(stencil.size_out), begin(stencil.begin.begin(), stencil.begin.end()),
        source(stencil.source.begin(), stencil.source.end()), weight(stencil.weight.begin(), stencil.weight.end()) {}
  operator Stencil() const { return {size_in, size_out, begin, source, weight}; }  // NOLINT
  int64_t size_in = 0, size_out = 0;
  std::vector<int64_t> begin, source;
  std::vector<double> weight;
  GRADUS_FIELDS(size_in, size_out, begin, source, weight)
};
template <>
struct Owned<Stencil> {
  using type = OwnedStencil;
};
template <class T>
typename Owned<T>::type owned(const T& argument) {
  if constexpr (requires {
                  argument.begin();
                  argument.end();
                })
    return {argument.begin(), argument.end()};
  else return argument;
}

template <class Argument, class F>
void for_each_draw(Argument& argument, const F& f) {
  if constexpr (std::is_same_v<Argument, RandomState>) f(argument);
  else if constexpr (requires { argument.rule.random; }) f(argument.rule.random);
}

inline constexpr const char* kArgReduceNames[] = {"argmax", "argmin"};
inline constexpr const char* kScanNames[] = {"sum", "prod"};
inline constexpr const char* kReductionNames[] = {"none", "mean", "sum"};
inline constexpr const char* kSoftmaxNames[] = {"softmax", "log_softmax", "or_zeros"};
template <class... Rules>
struct RuleNames {
  static constexpr const char* names[] = {Rules::kName...};
};

using ValueNames = std::span<const char* const>;
/// The names of an enumeration's values, in order.
inline ValueNames names_of(UnaryOp) { return kUnaryNames; }
inline ValueNames names_of(BinaryOp) { return kBinaryNames; }
inline ValueNames names_of(ReduceOp) { return kReduceNames; }
inline ValueNames names_of(ArgReduceOp) { return kArgReduceNames; }
inline ValueNames names_of(ScanOp) { return kScanNames; }
inline ValueNames names_of(Reduction) { return kReductionNames; }
inline ValueNames names_of(SoftmaxKind) { return kSoftmaxNames; }
inline ValueNames names_of(RecurrentCell) { return kRecurrentCellNames; }
/// The names of the optimizers' rules ("adam_step"), in the variant's order.
inline ValueNames names_of(const OptimizerRule&) { return rules::All<RuleNames>::names; }

/// Removes the first name from a list such as "x, w, bias", and returns the name.
inline std::string take_name(std::string_view& names) {
  const size_t end = names.find(", ");
  const std::string name(names.substr(0, end));
  names.remove_prefix(end == std::string_view::npos ? names.size() : end + 2);
  return name;
}

/// Passes the argument `name` to the visitor; the members of a struct and the elements of a list one by one.
template <class T>
void visit_argument(const std::string& name, const T& argument, ArgumentVisitor& visitor);

template <class T>
void visit_fields(const std::string& prefix, const T& argument, ArgumentVisitor& visitor) {
  std::string_view names = T::field_names();
  argument.with_fields(
      [&](const auto&... fields) { (visit_argument(prefix + take_name(names), fields, visitor), ...); });
}

template <class T>
void visit_argument(const std::string& name, const T& argument, ArgumentVisitor& visitor) {
  if constexpr (std::is_same_v<T, View> || std::is_same_v<T, MutableView>) {
    if (argument) visitor.operand(name, argument, std::is_same_v<T, MutableView>);
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double> || std::is_same_v<T, Scalar> ||
                       std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<double>>) {
    visitor.value(name, argument);
  } else if constexpr (std::is_integral_v<T>) {
    visitor.value(name, static_cast<int64_t>(argument));
  } else if constexpr (std::is_same_v<T, rules::Decay>) {
    visitor.value(name, argument.value);
  } else if constexpr (std::is_enum_v<T>) {
    visitor.value(name, Choice{static_cast<size_t>(argument), names_of(argument)});
  } else if constexpr (std::is_same_v<T, const uint64_t*>) {  // RandomState::device_offset
    visitor.value(name, argument != nullptr);
  } else if constexpr (std::is_same_v<T, int64_t[2]>) {
    visitor.value(name, std::vector<int64_t>(argument, argument + 2));
  } else if constexpr (std::is_same_v<T, UnaryArgs>) {
    visit_argument("a", argument.a, visitor), visit_argument("b", argument.b, visitor);
  } else if constexpr (std::is_same_v<T, OptimizerRule>) {
    visitor.value(name, Choice{argument.index(), names_of(argument)});
    std::visit([&](const auto& rule) { visit_fields(name + ".", rule, visitor); },
               static_cast<const rules::All<std::variant>&>(argument));
  } else if constexpr (requires { T::field_names(); }) {
    visit_fields(name == "args" ? "" : name + ".", argument, visitor);
  } else {
    for (size_t i = 0; i < std::size(argument); ++i)
      visit_argument(name + "." + std::to_string(i), argument[i], visitor);
  }
}

template <class... Params>
class RecordedCall final : public Call {
 public:
  using Method = void (Backend::*)(Params...);
  RecordedCall(Method called, const std::remove_cvref_t<Params>&... arguments)
      : method_(called), arguments_(owned(arguments)...) {}
  Method method() const { return method_; }
  const auto& arguments() const { return arguments_; }
  auto& arguments() { return arguments_; }

  void run(Backend& backend) const override {
    std::apply([&](const auto&... arguments) { (backend.*method_)(arguments...); }, arguments_);
  }
  void visit(const std::function<void(Place)>& use) override {
    const auto show = [&](auto& place) { use(&place); };
    std::apply([&](auto&... arguments) { (for_each_operand(arguments, show), ...); }, arguments_);
    std::apply([&](auto&... arguments) { (for_each_draw(arguments, show), ...); }, arguments_);
  }
  void visit_arguments(ArgumentVisitor& visitor) override {
    std::string_view names = parameters;
    std::apply([&](const auto&... arguments) { (visit_argument(take_name(names), arguments, visitor), ...); },
               arguments_);
  }

 private:
  const Method method_;
  std::tuple<typename Owned<std::remove_cvref_t<Params>>::type...> arguments_;
};

/// Makes a RecordedCall. Uses `new`, because std::make_unique would be compiled for each operation.
template <class... Params, class... Arguments>
std::unique_ptr<Call> make_call(void (Backend::*method)(Params...), const Arguments&... arguments) {
  return std::unique_ptr<Call>(new RecordedCall<Params...>(method, arguments...));
}

}  // namespace detail

}  // namespace gradus::graph
