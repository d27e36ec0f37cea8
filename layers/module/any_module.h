// AnyModule holds a module of any type. Arguments and results of its forward are passed as AnyValues.
#pragma once

#include <any>
#include <span>
#include <typeinfo>

#include <gradus/layers/module/module.h>

namespace gradus::nn {

/// A value of any type that can be copied (torch::nn::AnyValue).
class AnyValue {
 public:
  AnyValue() = default;
  /// Arrays decay to pointers: AnyValue("text") holds a const char*.
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, AnyValue>) explicit AnyValue(T&& value)
      : value_(std::forward<T>(value)) {}

  /// Returns the value if it is a T, else null. Types are not converted: an int is not an int64_t.
  template <class T>
  T* try_get() {
    return std::any_cast<T>(&value_);
  }
  /// Returns the value. If it is of another type, throws a ValueError that names both types.
  template <class T>
  T& get() {
    T* value = try_get<T>();
    if (!value) [[unlikely]]
      fail_cast(typeid(T));
    return *value;
  }
  /// Type of the value; void if there is none.
  const std::type_info& type_info() const { return value_.type(); }

 private:
  [[noreturn]] void fail_cast(const std::type_info& wanted) const;
  std::any value_;
};

namespace detail {

[[noreturn]] void fail_cast(const Module& module, const std::type_info& wanted);
/// Returns `module` as an M, or as the module type that holder M holds. Throws a ValueError that names both types if it
/// is of another type.
template <class M>
auto& checked_as(Module& module) {
  auto* found = module.as<M>();
  if (!found) [[unlikely]]
    fail_cast(module, typeid(M));
  return *found;
}
[[noreturn]] void fail_argument(size_t i, const std::type_info& wanted, const std::type_info& given);
[[noreturn]] void fail_argument_count(const Module& module, size_t most, size_t given);

using AnyForward = AnyValue (*)(Module& module, std::span<AnyValue> values);

/// The parameter types of a forward that is neither overloaded nor a template.
template <class Function>
struct ForwardSignature;
template <class Result, class M, class... Args>
struct ForwardSignature<Result (M::*)(Args...)> {
  /// True for Tensor forward(Tensor), which is called without AnyValue.
  static constexpr bool is_plain = false;
  template <class Called>
  static AnyValue call(Module& module, std::span<AnyValue> values);
};
template <class Result, class M, class Arg>
requires(std::is_same_v<std::remove_cvref_t<Result>, Tensor>&&
             std::is_same_v<std::remove_cvref_t<Arg>, Tensor>) struct ForwardSignature<Result (M::*)(Arg)> {
  static constexpr bool is_plain = true;
};
template <class Result, class M, class... Args>
struct ForwardSignature<Result (M::*)(Args...) const> : ForwardSignature<Result (M::*)(Args...)> {};

template <class M>
concept MapsTensor = requires(M& module, const Tensor& x) {
  { module.forward(x) } -> std::convertible_to<Tensor>;
};
template <class M>
concept HasSignature = requires {
  ForwardSignature<decltype(&M::forward)>::is_plain;
};

/// Returns the I-th value as an Arg. Another type is a ValueError.
template <class Arg>
Arg&& argument(std::span<AnyValue> values, size_t i) {
  using Value = std::remove_cvref_t<Arg>;
  Value* value = values[i].template try_get<Value>();
  if (!value) [[unlikely]]
    fail_argument(i, typeid(Value), values[i].type_info());
  return static_cast<Arg&&>(*value);
}

template <class Result, class M, class... Args>
template <class Called>
AnyValue ForwardSignature<Result (M::*)(Args...)>::call(Module& module, std::span<AnyValue> values) {
  Called& called = static_cast<Called&>(module);
  AnyValue result;
  // Calls forward with N arguments; the remaining parameters have defaults.
  auto call_with = [&]<size_t... I>(std::index_sequence<I...>) {
    using All = std::tuple<Args&&...>;
    if constexpr (requires { called.forward(std::declval<std::tuple_element_t<I, All>>()...); }) {
      if (values.size() != sizeof...(I)) return false;
      result = AnyValue(nn::call(called, argument<std::tuple_element_t<I, std::tuple<Args...>>>(values, I)...));
      return true;
    }
    return false;
  };
  const bool was_called = [&]<size_t... N>(std::index_sequence<N...>) {
    return (call_with(std::make_index_sequence<N>{}) || ...);
  }
  (std::make_index_sequence<sizeof...(Args) + 1>{});
  if (!was_called) fail_argument_count(module, sizeof...(Args), values.size());
  return result;
}

}  // namespace detail

/// Holds a module of any type and calls its forward (torch::nn::AnyModule). The types of arguments and result are
/// deduced from the declaration of forward, and default arguments may be omitted. If forward is overloaded or a
/// template, it is called as Tensor forward(Tensor).
class AnyModule {
 public:
  AnyModule() = default;
  template <class M>
  requires std::is_base_of_v<Module, M>
  explicit AnyModule(std::shared_ptr<M> module) : module_(std::move(module)) {
    static_assert(detail::MapsTensor<M> || detail::HasSignature<M>,
                  "a module in a container needs a forward that is neither overloaded nor a template, or Tensor "
                  "forward(Tensor)");
    GRADUS_CHECK(module_, ValueError, "a container got a null module");
    if constexpr (detail::MapsTensor<M>)
      tensor_forward_ = [](Module& m, const Tensor& x) -> Tensor { return call(static_cast<M&>(m), x); };
    if constexpr (detail::HasSignature<M>) {
      using Signature = detail::ForwardSignature<decltype(&M::forward)>;
      if constexpr (!Signature::is_plain) any_forward_ = &Signature::template call<M>;
    }
  }
  template <class M>
  explicit AnyModule(const ModuleHolder<M>& holder) : AnyModule(holder.ptr()) {}
  template <class M>
  requires std::is_base_of_v<Module, std::remove_cvref_t<M>>
  explicit AnyModule(M&& module) : AnyModule(std::make_shared<std::remove_cvref_t<M>>(std::forward<M>(module))) {}
  template <class M>
  AnyModule& operator=(std::shared_ptr<M> module) {
    return *this = AnyModule(std::move(module));
  }

  /// Calls the module: any.forward(x), or any.forward<Result>(x, y) if the result is not a tensor. Argument types must
  /// be exactly those of forward's declaration; other types or a wrong number of arguments are a ValueError.
  template <class Result = Tensor, class... Args>
  Result forward(Args&&... args) const {
    if constexpr (std::is_same_v<Result, Tensor> && sizeof...(Args) == 1 &&
                  (std::is_same_v<std::remove_cvref_t<Args>, Tensor> && ...)) {
      if (tensor_forward_) return tensor_forward_(*module_, args...);
    }
    AnyValue values[sizeof...(Args) + 1] = {AnyValue(std::forward<Args>(args))...};
    return std::move(forward_any({values, sizeof...(Args)}).template get<Result>());
  }
  /// Calls the module with arguments and a result of any type.
  AnyValue forward_any(std::span<AnyValue> values) const;
  Tensor operator()(const Tensor& x) const;

  /// True if it holds no module.
  bool is_empty() const { return module_ == nullptr; }
  /// True if the module can be called with one tensor and returns a tensor.
  bool maps_tensor() const { return tensor_forward_ != nullptr; }
  /// The module. Throws a ValueError if there is none, as do the functions below.
  const std::shared_ptr<Module>& ptr() const;
  /// The module as an M. Another type is a ValueError.
  template <class M>
  std::shared_ptr<M> ptr() const {
    return std::shared_ptr<M>(ptr(), &get<M>());
  }
  /// The module as an M, or as a holder M: any.get<nn::LinearImpl>(), any.get<nn::Linear>().
  template <class M>
  decltype(auto) get() const {
    if constexpr (requires { typename M::ContainedType; }) return M(ptr<typename M::ContainedType>());
    else return detail::checked_as<M>(*ptr());
  }
  /// The type of the module itself.
  const std::type_info& type_info() const;
  /// A copy that calls a clone of the module.
  AnyModule clone(const std::optional<Device>& device = std::nullopt) const {
    AnyModule copy = *this;
    if (module_) copy.module_ = module_->clone(device);
    return copy;
  }

 private:
  std::shared_ptr<Module> module_;
  Tensor (*tensor_forward_)(Module&, const Tensor&) = nullptr;  // set if maps_tensor()
  detail::AnyForward any_forward_ = nullptr;                    // set if forward can be called in another way
};

/// A module with its name in a container: {"fc", nn::Linear(3, 4)}.
class NamedAnyModule {
 public:
  template <class M>
  NamedAnyModule(std::string name, M&& module) : name_(std::move(name)), module_(std::forward<M>(module)) {}
  /// The name, as given.
  const std::string& name() const { return name_; }
  /// The module, which may be changed.
  AnyModule& module() { return module_; }
  /// The module.
  const AnyModule& module() const { return module_; }

 private:
  std::string name_;
  AnyModule module_;
};

}  // namespace gradus::nn
