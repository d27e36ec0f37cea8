// A call of any operation of Backend, made from the method and its arguments.
#pragma once

#include <memory>
#include <tuple>

#include <gradus/core/backend_ops.h>
#include <gradus/core/graph/call.h>
#include <gradus/core/optimizer_rules.h>

namespace gradus::graph {
namespace detail {

/// An argument that lives as long as the call. Most do anyway; those that refer to arrays of the caller copy them.
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
  OwnedStencil() = default;
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

template <class Argument>
void show_draws(Argument& argument, Call::Visitor& visitor) {
  if constexpr (std::is_same_v<Argument, RandomState>) visitor.draw(argument);
  else if constexpr (requires { argument.rule.random; }) visitor.draw(argument.rule.random);
}

/// The names of an enumeration's values, in order.
std::span<const char* const> names_of(UnaryOp);
std::span<const char* const> names_of(BinaryOp);
std::span<const char* const> names_of(ReduceOp);
std::span<const char* const> names_of(ArgReduceOp);
std::span<const char* const> names_of(ScanOp);
std::span<const char* const> names_of(Reduction);
/// Those of the rules of optimizers ("adam_step"), in the variant's order, and a rule by its place there.
std::span<const char* const> rule_names();
OptimizerRule default_rule(size_t place);
/// "x, w, bias": the names of an operation's parameters.
std::string_view parameter_names(std::string_view operation);
/// Takes the first name off such a list.
std::string take_name(std::string_view& names);

/// Shows `argument`, which is called `name`, or what it is made of.
template <class T>
void visit_argument(const std::string& name, T& argument, ArgumentVisitor& visitor);

template <class T>
void visit_fields(const std::string& prefix, T fields, std::string_view names, ArgumentVisitor& visitor) {
  std::apply([&](auto&... field) { (visit_argument(prefix + take_name(names), field, visitor), ...); }, fields);
}

/// Shows a value as a V of the variant, and takes over what the visitor has made of it.
template <class V, class T>
void visit_value(const std::string& name, T& argument, ArgumentVisitor& visitor) {
  Value value = static_cast<V>(argument);
  visitor.value(name, value);
  const V changed = std::get<V>(value);
  argument = static_cast<T>(changed);
  GRADUS_CHECK(static_cast<V>(argument) == changed, IndexError, "'", name, "' cannot be ", changed);
}

template <class T>
void visit_list(const std::string& name, T& list, ArgumentVisitor& visitor) {
  for (size_t i = 0; i < std::size(list); ++i) visit_argument(name + "." + std::to_string(i), list[i], visitor);
}

template <class T>
void visit_argument(const std::string& name, T& argument, ArgumentVisitor& visitor) {
  if constexpr (std::is_same_v<T, View> || std::is_same_v<T, MutableView>) visitor.operand(name, argument);
  else if constexpr (std::is_same_v<T, bool>) visit_value<bool>(name, argument, visitor);
  else if constexpr (std::is_integral_v<T>) visit_value<int64_t>(name, argument, visitor);
  else if constexpr (std::is_same_v<T, double>) {
    Value value = argument;
    visitor.value(name, value);
    argument = std::get<double>(value);
  } else if constexpr (std::is_same_v<T, rules::Decay>) {
    double decay = argument.value;
    visit_argument(name, decay, visitor);
    argument = decay;
  } else if constexpr (std::is_enum_v<T>) {
    Value value = Choice{static_cast<size_t>(argument), names_of(argument)};
    visitor.value(name, value);
    argument = static_cast<T>(std::get<Choice>(value).number);
  } else if constexpr (std::is_same_v<T, const uint64_t*>) {  // of RandomState
    bool draws_anew = argument;
    visit_value<bool>(name, draws_anew, visitor);
    if (draws_anew != (argument != nullptr)) argument = draws_anew ? visitor.generator_offset() : nullptr;
  } else if constexpr (std::is_same_v<T, Scalar> || std::is_same_v<T, std::vector<int64_t>> ||
                       std::is_same_v<T, std::vector<double>>) {
    Value value = std::move(argument);
    visitor.value(name, value);
    argument = std::get<T>(std::move(value));
  } else if constexpr (std::is_same_v<T, int64_t[2]>) {
    std::vector<int64_t> pair(argument, argument + 2);
    visit_argument(name, pair, visitor);
    GRADUS_CHECK(pair.size() == 2, IndexError, "'", name, "' must have two numbers, got ", pair.size());
    argument[0] = pair[0], argument[1] = pair[1];
  } else if constexpr (std::is_same_v<T, UnaryArgs>) {
    visit_fields("", std::tie(argument.a, argument.b), "a, b", visitor);
  } else if constexpr (std::is_same_v<T, OptimizerRule>) {
    Value value = Choice{argument.index(), rule_names()};
    visitor.value(name, value);
    if (const size_t kind = std::get<Choice>(value).number; kind != argument.index()) argument = default_rule(kind);
    std::visit([&](auto& rule) { visit_fields(name + ".", rule.fields(), rule.field_names(), visitor); },
               static_cast<rules::All<std::variant>&>(argument));
  } else if constexpr (requires { argument.fields(); }) {
    visit_fields(name == "args" ? "" : name + ".", argument.fields(), T::field_names(), visitor);
  } else {
    if constexpr (requires { argument.resize(0); }) {
      size_t length = argument.size();
      visitor.length(name, length);
      argument.resize(length);
    }
    visit_list(name, argument, visitor);
  }
}

template <class... Params>
class RecordedCall final : public Call {
 public:
  using Method = void (Backend::*)(Params...);
  RecordedCall(Method method, const std::remove_cvref_t<Params>&... arguments)
      : method_(method), arguments_(owned(arguments)...) {}
  /// With arguments that visit_arguments() is to set.
  explicit RecordedCall(Method method) requires(sizeof...(Params) > 0) : method_(method) {}
  Method method() const { return method_; }
  const auto& arguments() const { return arguments_; }

  void run(Backend& backend) const override {
    std::apply([&](const auto&... arguments) { (backend.*method_)(arguments...); }, arguments_);
  }
  void visit(Visitor& visitor) override {
    const auto show = [&](auto& view) {
      if constexpr (std::is_same_v<decltype(view), View&>) visitor.read(view);
      else visitor.write(view);
    };
    std::apply([&](auto&... arguments) { (for_each_operand(arguments, show), ...); }, arguments_);
    std::apply([&](auto&... arguments) { (show_draws(arguments, visitor), ...); }, arguments_);
  }
  void visit_arguments(ArgumentVisitor& visitor) override {
    std::string_view names = parameter_names(name);
    std::apply([&](auto&... arguments) { (visit_argument(take_name(names), arguments, visitor), ...); }, arguments_);
  }

 private:
  const Method method_;
  std::tuple<typename Owned<std::remove_cvref_t<Params>>::type...> arguments_;
};

}  // namespace detail

/// A call of the operation whose arguments are yet to be set; null where there is no such operation.
std::unique_ptr<Call> make_call(std::string_view operation);

}  // namespace gradus::graph
