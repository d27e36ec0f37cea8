// How modules are called: call(module, x…) runs forward between the module's hooks. ModuleHolder is a shared pointer to
// a module that is constructed and called like a value (torch::nn::ModuleHolder).
#pragma once

#include <gradus/autograd/checkpoint.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

namespace detail {

/// One call of a module that has hooks.
class HookedCall {
 public:
  explicit HookedCall(Module& module);
  ~HookedCall();
  /// Runs the forward pre-hooks on `inputs`.
  void before(TensorList inputs);
  /// Runs the forward hooks on `outputs`, which they may replace.
  void after(TensorList& outputs);
  const TensorList& inputs() const { return inputs_; }

 private:
  struct BackwardCall;
  Module& module_;
  const std::shared_ptr<ModuleHooks> hooks_;  // shared, because a hook may remove itself while it runs
  TensorList inputs_;
  std::shared_ptr<BackwardCall> backward_;
};

template <class T>
constexpr bool is_tensor_argument = std::is_same_v<std::remove_cvref_t<T>, Tensor>;

/// Calls visit(tensor) for each tensor of a result: a tensor, or tensors in tuples and vectors.
template <class Result, class Visit>
void visit_tensors(Result& result, const Visit& visit) {
  if constexpr (is_tensor_argument<Result>) visit(result);
  else if constexpr (requires { std::tuple_size<Result>::value; })
    std::apply([&](auto&... parts) { (visit_tensors(parts, visit), ...); }, result);
  else if constexpr (requires { result.begin()->defined(); })
    for (auto& part : result) visit_tensors(part, visit);
}

/// Returns the I-th argument of forward. Tensors are taken from `inputs`, in which hooks may have replaced them.
template <size_t I, class... Args>
decltype(auto) hooked_argument(const TensorList& inputs, std::tuple<Args&&...>& args) {
  using Arg = std::tuple_element_t<I, std::tuple<Args&&...>>;
  if constexpr (is_tensor_argument<Arg>) {
    constexpr size_t position = [] {
      constexpr bool tensors[] = {is_tensor_argument<Args>...};
      size_t count = 0;
      for (size_t i = 0; i < I; ++i) count += tensors[i];
      return count;
    }();
    return Tensor(inputs[position]);
  } else {
    return static_cast<Arg>(std::get<I>(args));
  }
}

/// Returns module.forward(args…), as a checkpoint if the module is recomputed.
template <class M, class... Args>
auto forward_of(M& module, Args&&... args) -> decltype(module.forward(std::forward<Args>(args)...)) {
  if constexpr (requires(const std::remove_cvref_t<Args>&... fixed) {
                  { module.forward(fixed...) } -> std::same_as<decltype(module.forward(std::forward<Args>(args)...))>;
                  requires !std::is_void_v<decltype(module.forward(fixed...))>;
                }) {
    if (module.is_recomputed())
      return autograd::checkpoint(
          [&module, alive = module.weak_from_this().lock()](const auto&... again) { return module.forward(again...); },
          args...);
  }
  return module.forward(std::forward<Args>(args)...);
}

template <class M, class... Args>
auto call_hooked(M& module, Args&&... args) -> decltype(module.forward(std::forward<Args>(args)...)) {
  HookedCall call(module);
  TensorList inputs;
  auto note = [&](const auto& arg) {
    if constexpr (is_tensor_argument<decltype(arg)>) inputs.push_back(arg);
  };
  (note(args), ...);
  call.before(std::move(inputs));
  std::tuple<Args&&...> all(std::forward<Args>(args)...);
  auto forward = [&]<size_t... I>(std::index_sequence<I...>)->decltype(auto) {
    return forward_of(module, hooked_argument<I, Args...>(call.inputs(), all)...);
  };
  TensorList outputs;
  if constexpr (std::is_void_v<decltype(module.forward(std::forward<Args>(args)...))>) {
    forward(std::index_sequence_for<Args...>{});
    call.after(outputs);
  } else {
    auto result = forward(std::index_sequence_for<Args...>{});
    visit_tensors(result, [&](const Tensor& tensor) { outputs.push_back(tensor); });
    call.after(outputs);
    size_t next = 0;
    visit_tensors(result, [&](Tensor& tensor) { tensor = outputs[next++]; });
    return result;
  }
}

/// Does the same as call_hooked for a module with Tensor forward(Tensor), as most modules have. It is not a template,
/// so it is compiled only once.
Tensor call_hooked_tensor(Module& module, const Tensor& x, Tensor (*forward)(Module& module, const Tensor& x));
template <class M>
concept TensorForward = requires(M& module, const Tensor& x) {
  { module.forward(x) } -> std::same_as<Tensor>;
  static_cast<M&>(static_cast<Module&>(module));
};

}  // namespace detail

/// Returns module.forward(args…) and runs the module's hooks.
template <class M, class... Args>
auto call(M& module, Args&&... args) -> decltype(module.forward(std::forward<Args>(args)...)) {
  if (module.has_hooks()) [[unlikely]] {
    if constexpr (sizeof...(Args) == 1 && (detail::is_tensor_argument<Args> && ...) && detail::TensorForward<M>) {
      const auto forward = [](Module& m, const Tensor& x) -> Tensor { return static_cast<M&>(m).forward(x); };
      return detail::call_hooked_tensor(module, args..., forward);
    } else {
      return detail::call_hooked(module, std::forward<Args>(args)...);
    }
  }
  return module.forward(std::forward<Args>(args)...);
}

namespace detail {

/// The part of ModuleHolder that does not depend on the module's type. It is compiled only once.
class AnyHolder {
 public:
  explicit operator bool() const { return impl_ != nullptr; }
  bool is_empty() const { return impl_ == nullptr; }
  /// The module, for functions that take modules of any type.
  operator std::shared_ptr<Module>() const { return module(), impl_; }  // NOLINT(google-explicit-constructor)

 protected:
  AnyHolder() = default;
  explicit AnyHolder(Module* module) : impl_(module) {}
  explicit AnyHolder(std::shared_ptr<Module> module) : impl_(std::move(module)) {}
  Module& module() const {
    GRADUS_CHECK(impl_, ValueError, "this module holder is empty: assign it a module, usually from register_module");
    return *impl_;
  }
  friend std::ostream& operator<<(std::ostream& stream, const AnyHolder& holder) { return stream << holder.module(); }
  std::shared_ptr<Module> impl_;
};

}  // namespace detail

/// Copies refer to the same module. A holder made from nullptr is empty until a module is assigned.
template <class Contained>
class ModuleHolder : public detail::AnyHolder {
 public:
  using ContainedType = Contained;

  /// Makes a module without arguments. If the module needs arguments, use nullptr for an empty holder.
  ModuleHolder() requires std::is_default_constructible_v<Contained> : AnyHolder(new Contained()) {}
  ModuleHolder(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  ModuleHolder(std::shared_ptr<Contained> module)
      : AnyHolder(std::move(module)) {}  // NOLINT(google-explicit-constructor)
  /// Makes a module with the given constructor arguments.
  template <class Head, class... Tail>
  requires std::is_constructible_v<Contained, Head, Tail...>
  explicit ModuleHolder(Head&& head, Tail&&... tail)
      : AnyHolder(new Contained(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}

  Contained* operator->() const { return get(); }
  Contained& operator*() const { return *get(); }
  Contained* get() const { return static_cast<Contained*>(&module()); }
  std::shared_ptr<Contained> ptr() const { return {impl_, get()}; }
  /// Calls the module: runs its forward and its hooks.
  template <class M = Contained, class... Args>
  auto operator()(Args&&... args) const -> decltype(std::declval<M&>().forward(std::forward<Args>(args)...)) {
    return call(static_cast<M&>(*get()), std::forward<Args>(args)...);
  }

  /// Returns (*holder)[index]. Available if the module has an operator[], as containers do.
  template <class Index>
  requires requires(Contained& module, Index&& index) { module[std::forward<Index>(index)]; }
  decltype(auto) operator[](Index&& index) const { return (*get())[std::forward<Index>(index)]; }
};

}  // namespace gradus::nn

/// Declares `Name`, the holder of `NameImpl` (LibTorch's TORCH_MODULE).
#define GRADUS_MODULE(Name) \
  class Name : public ::gradus::nn::ModuleHolder<Name##Impl> { \
   public: \
    using ::gradus::nn::ModuleHolder<Name##Impl>::ModuleHolder; \
    using Impl = Name##Impl; \
  }
