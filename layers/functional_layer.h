// Functional: a module that calls a function.
#pragma once

#include <gradus/layers/module/module.h>

namespace gradus::nn {

/// Calls function(x, args…): nn::Functional(relu), nn::Functional(log_softmax, 1), nn::Functional([](Tensor x) { … }).
/// Operators have a last parameter of type SourceLocation, and some an optional parameter before it; both may be
/// omitted in args.
struct FunctionalImpl : Cloneable<FunctionalImpl> {
  using Function = std::function<Tensor(const Tensor&)>;
  /// True if f(x, args…) returns a tensor.
  template <class F, class... Args>
  static constexpr bool takes = std::is_invocable_r_v<Tensor, const F&, const Tensor&, const Args&...>;
  template <class F, class... Args>
  static constexpr bool callable =
      takes<F, Args...> || takes<F, Args..., SourceLocation> || takes<F, Args..., std::nullopt_t, SourceLocation>;

  template <class F, class... Args>
  requires callable<F, Args...>
  explicit FunctionalImpl(F function, Args... args)
      : function_([function = std::move(function), ... args = std::move(args)](const Tensor& x) -> Tensor {
          if constexpr (takes<F, Args...>) return function(x, args...);
          else if constexpr (takes<F, Args..., SourceLocation>) return function(x, args..., SourceLocation{});
          else return function(x, args..., std::nullopt, SourceLocation{});
        }) {}
  void reset() override {}
  Tensor forward(const Tensor& x);
  Tensor operator()(const Tensor& x) { return forward(x); }
  void pretty_print(std::ostream& stream) const override;

 private:
  Function function_;
};
GRADUS_MODULE(Functional);

}  // namespace gradus::nn
