// Base classes of layers: Layer has options and prints them, and FunctionLayer calls a function of nn::functional.
// Functional is a layer that calls any function.
#pragma once

#include <concepts>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include <gradus/autograd/ops/nn/pool.h>
#include <gradus/core/options.h>
#include <gradus/core/platform/process.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

namespace detail {

/// The value of an option as text, in LibTorch's format: true, 0.5, [2, 2].
struct OptionText {
  // NOLINTBEGIN(google-explicit-constructor)
  OptionText(bool value) : text(value ? "true" : "false") {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) OptionText(T value) : text(std::to_string(value)) {}
  OptionText(double value);
  OptionText(const char* value) : text(value) {}
  OptionText(const std::string& value) : text(value) {}
  template <class List>
  requires requires(const List& values) { values.begin(); }
  OptionText(const List& values) : text("[") {
    for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + OptionText(value).text;
    text += "]";
  }
  OptionText(Pair size) : OptionText(Dims{size.h, size.w}) {}
  OptionText(const OutputSize& size);
  // NOLINTEND(google-explicit-constructor)
  std::string text;
};

/// Shortens "gradus::nn::Conv2dImpl" to "Conv2d".
std::string short_type(std::string name);
/// The short name of a layer's type.
template <class Layer>
std::string short_name() {
  return short_type(platform::demangled(typeid(Layer)));
}

/// Prints a layer's name and options in LibTorch's format. LayerPrinter(stream, "Name")("a", 1)("b", true); prints
/// gradus::nn::Name(a=1, b=true).
class LayerPrinter : NoCopy {
 public:
  LayerPrinter(std::ostream& stream, const std::string& name);
  ~LayerPrinter();

  /// Prints label=value if `shown` is true. LibTorch prints some options only if they differ from the default.
  LayerPrinter& operator()(const char* label, const OptionText& value, bool shown = true);
  /// Prints nothing for an absent value.
  template <class T>
  LayerPrinter& operator()(const char* label, const std::optional<T>& value) {
    return value ? (*this)(label, *value) : *this;
  }
  /// Prints a value without a label.
  LayerPrinter& value(const OptionText& value);

 private:
  std::ostream& stream_;
  const char* separator_ = "";
};

struct NoOptions {};
template <class Options>
concept PrintsItself = requires(const Options& options, LayerPrinter& printer) {
  options.print(printer);
};

/// Base of layers with options. The options are printed by their function print(LayerPrinter&), if there is one.
template <class Derived, class Options = NoOptions, class Base = Module>
struct Layer : Cloneable<Derived, Base> {
  Layer() requires std::is_default_constructible_v<Options>
  = default;
  explicit Layer(const Options& options_) : options(options_) {}
  /// Makes the options from several arguments.
  template <class... Args>
  requires(sizeof...(Args) > 1 && std::is_constructible_v<Options, Args...>) explicit Layer(Args&&... args)
      : options(std::forward<Args>(args)...) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    LayerPrinter printer(stream, short_name<Derived>());
    if constexpr (PrintsItself<Options>) options.print(printer);
  }

  Options options;
};

/// Base of layers that share the class Base, which holds their options and tensors and prints them.
template <class Derived, class Base>
struct LayerOf : Cloneable<Derived, Base> {
  using Cloneable<Derived, Base>::Cloneable;
  void reset() override { this->register_tensors(); }
  void pretty_print(std::ostream& stream) const override { this->print(stream, short_name<Derived>()); }
};

/// Base of layers whose forward(x…) is kFunction(x…, options, where), or kFunction(x…, where) without options. The
/// specialisations take the number of tensors x from the parameters of the function:
///   GRADUS_LAYER(ELU, FunctionLayer, functional::elu);
template <class Derived, auto kFunction, class Function = std::remove_pointer_t<decltype(kFunction)>, class... Tensors>
struct FunctionLayer;

template <class Derived, auto kFunction, class... Parameters, class... Tensors>
struct FunctionLayer<Derived, kFunction, Tensor(const Tensor&, Parameters...), Tensors...>
    : FunctionLayer<Derived, kFunction, Tensor(Parameters...), Tensors..., Tensor> {
  using FunctionLayer<Derived, kFunction, Tensor(Parameters...), Tensors..., Tensor>::FunctionLayer;
};

template <class Derived, auto kFunction, class Options, class... Tensors>
requires(
    !std::same_as<Options, Tensor>) struct FunctionLayer<Derived, kFunction, Tensor(const Options&, Loc), Tensors...>
    : Layer<Derived, Options> {
  using Layer<Derived, Options>::Layer;
  Tensor forward(const Tensors&... x) {
    const auto frame = this->enter();
    return kFunction(x..., this->options, Loc{});
  }
};

template <class Derived, auto kFunction, class... Tensors>
struct FunctionLayer<Derived, kFunction, Tensor(Loc), Tensors...> : Layer<Derived> {
  Tensor forward(const Tensors&... x) {
    const auto frame = this->enter();
    return kFunction(x..., Loc{});
  }
};

}  // namespace detail

/// Declares the layer NameImpl, which inherits all members and constructors of detail::Base<NameImpl, …>, and its
/// holder Name.
#define GRADUS_LAYER(Name, Base, ...) \
  struct Name##Impl : detail::Base<Name##Impl, __VA_ARGS__> { \
    using LayerBase = detail::Base<Name##Impl, __VA_ARGS__>; \
    using LayerBase::LayerBase; \
  }; \
  GRADUS_MODULE(Name)

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
  Tensor forward(const Tensor& x) {
    const auto frame = enter();
    return function_(x);
  }
  Tensor operator()(const Tensor& x) { return forward(x); }
  void pretty_print(std::ostream& stream) const override { detail::LayerPrinter(stream, "Functional"); }

 private:
  Function function_;
};
GRADUS_MODULE(Functional);

}  // namespace gradus::nn
