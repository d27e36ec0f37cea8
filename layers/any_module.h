// AnyModule: any module whose forward takes one tensor and gives one.
#pragma once

#include <gradus/layers/module.h>

namespace gradus::nn {

/// Holds a module of any type and calls its forward (torch::nn::AnyModule, for the signature that containers need).
class AnyModule {
 public:
  AnyModule() = default;
  template <class M>
  requires std::is_base_of_v<Module, M>
  explicit AnyModule(std::shared_ptr<M> module) : module_(std::move(module)) {
    static_assert(
        requires(M & m, const Tensor& x) {
          { m.forward(x) } -> std::convertible_to<Tensor>;
        },
        "a module in a container needs Tensor forward(Tensor)");
    GRADUS_CHECK(module_, ValueError, "a container got a null module");
    forward_ = [](Module& m, const Tensor& x) -> Tensor { return call(static_cast<M&>(m), x); };
  }
  template <class M>
  explicit AnyModule(const ModuleHolder<M>& holder) : AnyModule(holder.ptr()) {}
  template <class M>
  requires std::is_base_of_v<Module, M>
  explicit AnyModule(M module) : AnyModule(std::make_shared<M>(std::move(module))) {}

  /// LibTorch's callers say what comes back: any.forward<>(x).
  template <class Result = Tensor>
  requires std::is_same_v<Result, Tensor> Tensor forward(const Tensor& x)
  const {
    GRADUS_CHECK(module_, ValueError, "this AnyModule is empty");
    return forward_(*module_, x);
  }
  Tensor operator()(const Tensor& x) const { return forward(x); }
  bool is_empty() const { return module_ == nullptr; }
  const std::shared_ptr<Module>& ptr() const { return module_; }
  /// The module as an M (an Impl or a holder of it); another type is a ValueError.
  template <class M>
  auto& get() const {
    auto* module = module_ ? module_->as<M>() : nullptr;
    GRADUS_CHECK(module, ValueError, "this module is a ", module_ ? module_->name() : "nullptr",
                 ", not what was asked for");
    return *module;
  }
  /// A copy that calls a clone of the module.
  AnyModule clone(const std::optional<Device>& device = std::nullopt) const {
    AnyModule copy = *this;
    if (module_) copy.module_ = module_->clone(device);
    return copy;
  }

 private:
  std::shared_ptr<Module> module_;
  Tensor (*forward_)(Module&, const Tensor&) = nullptr;
};

/// A module with the name that it gets in a container: {"fc", nn::Linear(3, 4)}.
class NamedAnyModule {
 public:
  template <class M>
  NamedAnyModule(std::string name, M&& module) : name_(std::move(name)), module_(std::forward<M>(module)) {}
  const std::string& name() const { return name_; }
  const AnyModule& module() const { return module_; }

 private:
  std::string name_;
  AnyModule module_;
};

}  // namespace gradus::nn
