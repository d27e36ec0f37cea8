// A recorded call of any operation of Backend, made from the method and its arguments.
#pragma once

#include <functional>
#include <memory>
#include <tuple>

#include <gradus/core/backend_ops.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/graph/call.h>

namespace gradus::graph {
namespace detail {

/// The type that a call stores an argument as. Arguments that refer to arrays of the caller are copied.
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

template <class Argument>
void show_draws(Argument& argument, Call::Visitor& visitor) {
  if constexpr (std::is_same_v<Argument, RandomState>) visitor.draw(argument);
  else if constexpr (requires { argument.rule.random; }) visitor.draw(argument.rule.random);
}

/// RecordedCall::visit_arguments(), for the operation with the call's name. Defined in recorded_call.cpp, because the
/// code for all operations takes long to compile.
void visit_recorded(const Call& call, ArgumentVisitor& visitor);

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
  void visit(Visitor& visitor) override {
    const auto show = [&](auto& view) {
      if constexpr (std::is_same_v<decltype(view), View&>) visitor.read(view);
      else visitor.write(view);
    };
    std::apply([&](auto&... arguments) { (for_each_operand(arguments, show), ...); }, arguments_);
    std::apply([&](auto&... arguments) { (show_draws(arguments, visitor), ...); }, arguments_);
  }
  void visit_arguments(ArgumentVisitor& visitor) override { visit_recorded(*this, visitor); }

 private:
  const Method method_;
  std::tuple<typename Owned<std::remove_cvref_t<Params>>::type...> arguments_;
};

/// A RecordedCall with these arguments. Uses `new`, because std::make_unique would be compiled for each operation.
template <class... Params, class... Arguments>
std::unique_ptr<Call> make_call(void (Backend::*method)(Params...), const Arguments&... arguments) {
  return std::unique_ptr<Call>(new RecordedCall<Params...>(method, arguments...));
}

}  // namespace detail

/// A backend with the name, the device type and the libraries of `like`, which must outlive it. It runs nothing: it
/// passes each call with its arguments to `sink`.
std::unique_ptr<Backend> call_backend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink);

}  // namespace gradus::graph
