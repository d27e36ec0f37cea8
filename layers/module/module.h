// Module: holds named parameters, buffers and submodules. The base of every layer and every net.
//
//   struct NetImpl : nn::Module {
//     nn::Linear fc1 = register_module("fc1", nn::Linear(784, 64));
//     nn::Linear fc2 = register_module("fc2", nn::Linear(64, 10));
//     Tensor forward(const Tensor& x) { return fc2(relu(fc1(x))); }
//   };
//   GRADUS_MODULE(Net);
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/core/ordered_dict.h>

namespace gradus::serialize {
class InputArchive;  // autograd/archive.h
class OutputArchive;
}  // namespace gradus::serialize

namespace gradus::nn {

class Module;
template <class Contained>
class ModuleHolder;

/// Parameters and buffers by their dotted names: the content of a weight file.
using StateDict = OrderedDict<std::string, Tensor>;
/// Modules by their names.
using NamedModules = OrderedDict<std::string, std::shared_ptr<Module>>;

/// Called before forward with its tensor arguments. The hook may change `inputs`, which forward then receives.
using ForwardPreHook = std::function<void(Module& module, TensorList& inputs)>;
/// Called after forward with the tensors of its result; if the result is a tuple or a vector, with its tensors in
/// order. The hook may replace them in `outputs`.
using ForwardHook = std::function<void(Module& module, const TensorList& inputs, TensorList& outputs)>;
/// Called in the backward pass when the gradients of the module's inputs are known; gradients that are not needed are
/// undefined. The hook may replace `grad_inputs`. If no input requires gradients, the hook is called nevertheless, and
/// all `grad_inputs` are undefined.
using BackwardHook = std::function<void(Module& module, TensorList& grad_inputs, const TensorList& grad_outputs)>;

namespace detail {
struct ModuleHooks;
class HookedCall;
}  // namespace detail

/// The differences between the keys of a module and those of a state dict.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys, unexpected_keys;
};

/// Names, defaults and semantics follow torch::nn::Module. A module must be owned by a shared_ptr: use std::make_shared
/// or a holder.
class Module : public std::enable_shared_from_this<Module> {
 public:
  Module() = default;
  /// Makes a module whose name() is `name`.
  explicit Module(std::string name) : own_name_(std::move(name)) {}
  /// Shares parameters, buffers and children with `other` but has no parent and no hooks; clone() makes an independent
  /// copy.
  Module(const Module& other);
  /// Moves the content of `other` into this module.
  Module(Module&& other);
  virtual ~Module();

  // ---- Registration. A name that is empty, not unique or contains a dot is a ValueError. ----
  /// Registers `tensor` as a parameter, sets its requires_grad, and returns it. An undefined tensor, such as the bias
  /// of a layer without bias, only reserves the name.
  Tensor register_parameter(std::string name, Tensor tensor, bool requires_grad = true);
  /// Replaces the tensor of an existing name, to tie two parameters:
  ///   decoder->weight = decoder->replace_parameter("weight", encoder->weight);
  Tensor replace_parameter(const std::string& name, Tensor tensor, bool requires_grad = true);
  /// Registers a tensor that is saved and moved with the module but not trained.
  Tensor register_buffer(std::string name, Tensor tensor);
  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    add_child(std::move(name), module);
    return module;
  }
  template <class M>
  std::shared_ptr<M> register_module(std::string name, ModuleHolder<M> holder) {
    return register_module(std::move(name), holder.ptr());
  }
  /// Replaces the module of an existing name.
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, std::shared_ptr<M> module) {
    replace_child(name, module);
    return module;
  }
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, ModuleHolder<M> holder) {
    return replace_module(name, holder.ptr());
  }
  void unregister_module(const std::string& name);

  // ---- Listing ----
  // A module's own entries come first, then those of its children, depth first. A tensor or module with several names
  // is listed once.
  TensorList parameters(bool recurse = true) const { return named_parameters(recurse).values(); }
  StateDict named_parameters(bool recurse = true) const { return named_tensors(&Module::parameters_, recurse); }
  TensorList buffers(bool recurse = true) const { return named_buffers(recurse).values(); }
  StateDict named_buffers(bool recurse = true) const { return named_tensors(&Module::buffers_, recurse); }
  std::vector<std::shared_ptr<Module>> children() const { return children_.values(); }
  NamedModules named_children() const { return children_; }
  std::vector<std::shared_ptr<Module>> modules(bool include_self = true) const {
    return named_modules("", include_self).values();
  }
  NamedModules named_modules(const std::string& name_prefix = {}, bool include_self = true) const;
  /// Number of elements of all parameters, or only of those that require gradients.
  int64_t num_parameters(bool only_trainable = false) const;

  // ---- Mode ----
  /// Sets training mode for this module and all submodules. Dropout, for example, depends on it.
  virtual void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return is_training_; }
  /// Makes the gradients of all parameters undefined or, without set_to_none, fills them with zeros.
  void zero_grad(bool set_to_none = true);
  /// Calls `function` with this module and all its submodules.
  void apply(const std::function<void(Module&)>& function);
  void apply(const std::function<void(const std::shared_ptr<Module>&)>& function);
  void apply(const std::function<void(const Module&)>& function) const;
  void apply(const std::function<void(const std::string&, Module&)>& function, const std::string& name_prefix = {});
  void apply(const std::function<void(const std::string&, const Module&)>& function,
             const std::string& name_prefix = {}) const;
  void apply(const std::function<void(const std::string&, const std::shared_ptr<Module>&)>& function,
             const std::string& name_prefix = {});

  // ---- Hooks ----
  // A call of the module, net(x), runs its hooks in order of registration; containers call their modules in this way.
  // As in PyTorch, net->forward(x) runs no hooks. Registration returns an id for remove_hook(). Copies and clones of a
  // module have no hooks.
  unsigned register_forward_pre_hook(ForwardPreHook hook);
  unsigned register_forward_hook(ForwardHook hook);
  /// A module with a backward hook receives copies of its inputs, so that its in-place operators do not change the
  /// tensors whose gradients the hook gets.
  unsigned register_backward_hook(BackwardHook hook);
  /// Throws an IndexError if there is no hook with this id.
  void remove_hook(unsigned id);
  bool has_hooks() const { return hooks_ != nullptr; }

  /// If on, a call of the module, net(x), keeps only its inputs for backward, and backward runs forward again to
  /// compute the other tensors that it needs (autograd/checkpoint.h). training/recomputation.h chooses modules for
  /// which this is worthwhile.
  void recompute(bool on = true);
  bool is_recomputed() const;

  // ---- Moving and converting ----
  // Parameters and buffers remain the same tensors, with new data. Gradients move with their parameters. Tensors of
  // integer types keep their type.
  void to(Device device, DType dtype, bool non_blocking = false) { convert(device, dtype, non_blocking); }
  void to(DType dtype, bool non_blocking = false) { convert(std::nullopt, dtype, non_blocking); }
  void to(Device device, bool non_blocking = false) { convert(device, std::nullopt, non_blocking); }
  void to(DeviceType type, bool non_blocking = false) { to(Device(type), non_blocking); }
  /// Converts all 4-D parameters and buffers to a memory format.
  void to(MemoryFormat format);

  // ---- Saving ----
  /// Detached parameters and buffers, which share memory with the module. Tied tensors are listed under each of their
  /// names.
  StateDict state_dict() const;
  /// Copies `state` into the parameters and buffers. If strict, missing and unexpected keys are a ValueError. Different
  /// sizes are always a ShapeError. If there is an error, nothing is copied.
  IncompatibleKeys load_state_dict(const StateDict& state, bool strict = true);

  /// Writes the state dict into an archive, or reads it from one.
  virtual void save(serialize::OutputArchive& archive) const;
  virtual void load(serialize::InputArchive& archive);

  /// Makes an independent copy of this module and all its submodules, on `device` if given. Parameters that are tied
  /// here are tied in the copy too. Only modules derived from Cloneable, as all layers are, can be cloned; others throw
  /// a ValueError. A submodule that is not derived from Cloneable is constructed by the reset() of its parent, and only
  /// its parameters and buffers are copied.
  virtual std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const;

  /// The name passed to the constructor, or by default the type name, such as "NetImpl".
  std::string name() const;
  /// Dotted path from the outermost module, such as "features.3"; "" for the outermost module.
  std::string path() const;
  /// The module that registered this one first; null for the outermost module.
  const Module* parent() const { return parent_; }
  /// The module whose forward opened `frame`; null if something else opened it, such as the autograd engine for a node.
  static const Module* of(const ModuleFrame& frame) {
    return frame.path == &path_of ? static_cast<const Module*>(frame.module) : nullptr;
  }
  /// Writes the line of this module in a printed tree.
  virtual void pretty_print(std::ostream& stream) const;
  /// The bytes of this object, which training/replayed_step.cpp compares to detect that an option has changed. Empty
  /// unless the module is a Cloneable.
  virtual std::span<const std::byte> object_bytes() const { return {}; }

  /// This module as an M (an Impl or its holder), or null if it is of another type: module->as<nn::Linear>().
  template <class M>
  auto* as() {
    if constexpr (requires { typename M::ContainedType; }) return dynamic_cast<typename M::ContainedType*>(this);
    else return dynamic_cast<M*>(this);
  }
  template <class M>
  const auto* as() const {
    return const_cast<Module*>(this)->as<M>();
  }

 protected:
  /// Call this at the start of forward:  auto frame = enter();
  /// While the frame exists, errors and recorded nodes name this layer.
  ModuleFrame enter() const { return ModuleFrame(static_cast<const Module*>(this), &path_of); }

  /// Shares the content of `other` as the copy constructor does, but keeps this module's parent and hooks.
  Module& operator=(const Module& other);

  /// Makes this copy of `original`, which still shares its tensors, independent of it.
  void finish_clone(const Module& original, const std::optional<Device>& device);
  /// Registers the names that `original` has registered. Returns true if the children still have to be cloned.
  virtual bool rebuild(const Module& original, const std::optional<Device>& device);
  /// Turns this submodule, which the reset() of its cloned parent has constructed, into a clone of `original`.
  virtual void assign_clone(const Module& original, const std::optional<Device>& device);

  StateDict parameters_{"Parameter"}, buffers_{"Buffer"};
  NamedModules children_{"Submodule"};

 private:
  struct Cloning;
  StateDict named_tensors(StateDict Module::*entries, bool recurse) const;
  template <class Visit>
  void visit_modules(const std::string& prefix, Visit&& visit) const;
  template <class Convert>
  void convert_tensors(Convert&& convert);
  void convert(std::optional<Device> device, std::optional<DType> dtype, bool non_blocking);
  /// Adds all parameters and buffers of this module and its submodules to `state`. A tensor that has several names is
  /// added under each of them. Also adds the names that a loaded state may lack to `optional`.
  void collect_state(const std::string& prefix, StateDict& state, std::vector<std::string>& optional) const;
  void add_child(std::string name, std::shared_ptr<Module> module);
  void replace_child(const std::string& name, std::shared_ptr<Module> module);
  void adopt(const std::string& name, Module& child);
  void release_children();
  void copy_numbers(const Module& original, const std::optional<Device>& device);
  void clone_children(const Module& original, const std::optional<Device>& device);
  detail::ModuleHooks& need_hooks();
  /// Throws unless `name` can be the name of a new entry. `is_taken` says whether entries of `other` kinds have it.
  void check_name(const char* what, const std::string& name, bool is_taken, const char* other) const;
  void print_tree(std::ostream& stream, const std::string& indentation) const;
  static std::string path_of(const void* module);
  friend std::ostream& operator<<(std::ostream& stream, const Module& module);
  friend class detail::HookedCall;

  std::shared_ptr<detail::ModuleHooks> hooks_;  // null without hooks and recomputation
  std::string own_name_;
  bool is_training_ = true;
  Cloning* cloning_ = nullptr;  // set while this clone runs rebuild()
  Module* parent_ = nullptr;    // the module that registered this one first; set to null by that module's destructor
  std::string name_in_parent_;  // unspecified without a parent
};

/// Prints the tree of modules as LibTorch does.
std::ostream& operator<<(std::ostream& stream, const Module& module);

/// A module that can be cloned. Derived registers all its parameters, buffers and children in reset(), which its
/// constructor also calls, and stores the tensors that register_parameter() returns. clone() copies the other members
/// by Derived's copy constructor, and those of submodules by copy assignment, as in LibTorch.
template <class Derived, class Base = Module>
class Cloneable : public Base {
 public:
  using Base::Base;
  virtual void reset() = 0;
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override {
    // The conversion to Module makes the compiler instantiate only one kind of shared_ptr for all layers.
    std::shared_ptr<Module> copy(static_cast<Module*>(new Derived(static_cast<const Derived&>(*this))));
    static_cast<Cloneable&>(*copy).finish_clone(*this, device);
    return copy;
  }
  std::span<const std::byte> object_bytes() const override {
    // std::as_bytes() would need a span of Derived, which costs 10 ms of compile time for each layer.
    return {reinterpret_cast<const std::byte*>(static_cast<const Derived*>(this)), sizeof(Derived)};
  }

 protected:
  bool rebuild(const Module&, const std::optional<Device>&) override { return reset(), true; }
  void assign_clone(const Module& original, const std::optional<Device>& device) override {
    const std::shared_ptr<Module> copy = original.clone(device);
    const auto* same = dynamic_cast<const Derived*>(copy.get());
    GRADUS_CHECK(same, ValueError, "a module within the clone is a ", this->name(), ", in the original it is a ",
                 original.name(), ": make modules of the same type in reset()");
    if constexpr (std::is_copy_assignable_v<Derived>) static_cast<Derived&>(*this) = *same;
    else GRADUS_FAIL(ValueError, this->name(), " cannot be cloned within another module: it has no copy assignment");
  }
};

}  // namespace gradus::nn

#include <gradus/layers/module/module_holder.h>
