// ModuleHolder: a shared pointer to a module that constructs and calls like a value (torch::nn::ModuleHolder).
#pragma once

#include <gradus/layers/module.h>

namespace gradus::nn {

/// Copies are the same module. A holder made from nullptr is empty until a module is assigned.
template <class Contained>
class ModuleHolder {
 public:
  using ContainedType = Contained;

  /// A module made without arguments; where it needs some, write nullptr for an empty holder.
  ModuleHolder() requires std::is_default_constructible_v<Contained> : impl_(std::make_shared<Contained>()) {}
  ModuleHolder(std::nullptr_t) {}                                                // NOLINT(google-explicit-constructor)
  ModuleHolder(std::shared_ptr<Contained> module) : impl_(std::move(module)) {}  // NOLINT(google-explicit-constructor)
  /// A module made from the arguments of its constructor.
  template <class Head, class... Tail>
  requires std::is_constructible_v<Contained, Head, Tail...>
  explicit ModuleHolder(Head&& head, Tail&&... tail)
      : impl_(std::make_shared<Contained>(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}

  explicit operator bool() const { return impl_ != nullptr; }
  bool is_empty() const { return impl_ == nullptr; }
  Contained* operator->() const { return get(); }
  Contained& operator*() const { return *get(); }
  Contained* get() const {
    GRADUS_CHECK(impl_, ValueError, "this module holder is empty: assign it a module, usually from register_module");
    return impl_.get();
  }
  const std::shared_ptr<Contained>& ptr() const {
    get();
    return impl_;
  }
  /// forward of the module.
  template <class M = Contained, class... Args>
  auto operator()(Args&&... args) const -> decltype(std::declval<M&>().forward(std::forward<Args>(args)...)) {
    return get()->forward(std::forward<Args>(args)...);
  }

  friend std::ostream& operator<<(std::ostream& stream, const ModuleHolder& holder) {
    return stream << static_cast<const Module&>(*holder);
  }

 private:
  std::shared_ptr<Contained> impl_;
};

}  // namespace gradus::nn

/// Declares `Name`, the holder of `NameImpl` (LibTorch's TORCH_MODULE).
#define GRADUS_MODULE(Name)                                     \
  class Name : public ::gradus::nn::ModuleHolder<Name##Impl> {  \
   public:                                                      \
    using ::gradus::nn::ModuleHolder<Name##Impl>::ModuleHolder; \
    using Impl = Name##Impl;                                    \
  }
