// Module: what holds parameters, buffers and other modules under names. The base of every layer and every net.
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

/// Parameters and buffers under their dotted names: what files hold.
using StateDict = OrderedDict<std::string, Tensor>;

/// Called with the tensors among the arguments of forward, before it; what it assigns to `inputs` is what forward gets.
using ForwardPreHook = std::function<void(Module& module, TensorList& inputs)>;
/// Called with the tensors of forward's result (those of tuples and vectors in order), which it may replace.
using ForwardHook = std::function<void(Module& module, const TensorList& inputs, TensorList& outputs)>;
/// Called in the backward pass once the gradients of the module's inputs are known; undefined where nobody wants one.
/// What it assigns to `grad_inputs` flows on. Without an input that wants gradients it is called with those of the
/// outputs alone.
using BackwardHook = std::function<void(Module& module, TensorList& grad_inputs, const TensorList& grad_outputs)>;

namespace detail {
struct ModuleHooks;
class HookedCall;
}  // namespace detail

/// Keys on which a module and a state dict do not agree.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys, unexpected_keys;
};

/// Names, defaults and semantics follow torch::nn::Module. Modules live in shared_ptr: std::make_shared, or a holder.
class Module : public std::enable_shared_from_this<Module> {
 public:
  Module();
  /// A module with a name of its own, which name() returns.
  explicit Module(std::string name);
  /// Shares parameters, buffers and children with `other` but has no parent and no hooks; clone() makes an independent
  /// copy.
  Module(const Module& other);
  /// Takes over what `other` holds.
  Module(Module&& other);
  virtual ~Module();

  // ---- Registration. Names are not empty and hold no dot; a name that is taken is a ValueError. ----
  /// Returns `tensor`, which wants gradients from now on. An undefined tensor (no bias) keeps the name only.
  Tensor register_parameter(std::string name, Tensor tensor, bool requires_grad = true);
  /// Puts another tensor under a name that exists, to tie two parameters into one:
  ///   decoder->weight = decoder->replace_parameter("weight", encoder->weight);
  Tensor replace_parameter(const std::string& name, Tensor tensor, bool requires_grad = true);
  /// A tensor that is saved and moved with the module but not trained.
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
  /// Puts another module under a name that exists.
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

  // ---- Listing: own entries first, then those of children, depth first, each tensor and module once. ----
  std::vector<Tensor> parameters(bool recurse = true) const;
  OrderedDict<std::string, Tensor> named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  OrderedDict<std::string, Tensor> named_buffers(bool recurse = true) const;
  std::vector<std::shared_ptr<Module>> children() const { return children_.values(); }
  OrderedDict<std::string, std::shared_ptr<Module>> named_children() const { return children_; }
  std::vector<std::shared_ptr<Module>> modules(bool include_self = true) const;
  OrderedDict<std::string, std::shared_ptr<Module>> named_modules(const std::string& name_prefix = {},
                                                                  bool include_self = true) const;
  /// Number of elements of all parameters (of those that want gradients, when asked).
  int64_t num_parameters(bool only_trainable = false) const;

  // ---- Mode ----
  /// Training mode of this module and all below it; dropout looks at it.
  virtual void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return is_training_; }
  /// Drops (or, without set_to_none, zeroes) the gradients of all parameters.
  void zero_grad(bool set_to_none = true);
  /// Calls `function` with this module, then with all below it.
  void apply(const std::function<void(Module&)>& function);
  void apply(const std::function<void(const std::shared_ptr<Module>&)>& function);
  void apply(const std::function<void(const Module&)>& function) const;
  void apply(const std::function<void(const std::string&, Module&)>& function, const std::string& name_prefix = {});
  void apply(const std::function<void(const std::string&, const Module&)>& function,
             const std::string& name_prefix = {}) const;
  void apply(const std::function<void(const std::string&, const std::shared_ptr<Module>&)>& function,
             const std::string& name_prefix = {});

  // ---- Hooks: called in order of registration when the module is called, net(x), also by a container; as in PyTorch
  // net->forward(x) passes them by. They return an id for remove_hook. Copies and clones have none. ----
  unsigned register_forward_pre_hook(ForwardPreHook hook);
  unsigned register_forward_hook(ForwardHook hook);
  /// The module then works on copies of its inputs, so that the hook sees what it does to them in place.
  unsigned register_backward_hook(BackwardHook hook);
  /// An id that is not there is an IndexError.
  void remove_hook(unsigned id);
  bool has_hooks() const { return hooks_ != nullptr; }

  /// Whether calls of the module, net(x), are checkpoints (autograd/checkpoint.h): what it would keep for backward is
  /// made again there. training/recomputation.h finds out where that pays.
  void recompute(bool on = true);
  bool is_recomputed() const;

  // ---- Moving. Parameters stay the same tensors; gradients move with them. Only floating types are converted. ----
  void to(Device device, DType dtype, bool non_blocking = false);
  void to(DType dtype, bool non_blocking = false);
  void to(Device device, bool non_blocking = false);
  void to(DeviceType type, bool non_blocking = false) { to(Device(type), non_blocking); }
  /// Order in memory of all 4-D parameters and buffers.
  void to(MemoryFormat format);

  // ---- Saving ----
  /// Parameters and buffers, detached: they share memory with the module. Tied tensors appear under each name.
  StateDict state_dict() const;
  /// Copies `state` into the parameters and buffers. When strict, keys that are missing or unexpected are a ValueError;
  /// sizes that differ always are a ShapeError. Nothing is copied unless everything fits.
  IncompatibleKeys load_state_dict(const StateDict& state, bool strict = true);

  /// The state dict into an archive, and back.
  virtual void save(serialize::OutputArchive& archive) const;
  virtual void load(serialize::InputArchive& archive);

  /// An independent copy, on `device` if one is given: with the members, numbers and ties of this module and of all
  /// below it. Layers and modules derived from Cloneable have it; for others it is a ValueError. Below a Cloneable the
  /// others keep the members that its reset() gives them; their numbers are copied.
  virtual std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const;

  /// Name of the type, "NetImpl", or what the constructor was given.
  std::string name() const;
  /// Dotted path from the outermost module, "features.3"; "" for that module itself.
  std::string path() const;
  /// The first module that registered this one; null for the outermost.
  const Module* parent() const { return parent_; }
  /// The module whose forward `frame` stands for; null where the frame is not a module's.
  static const Module* of(const ModuleFrame& frame) {
    return frame.path == &path_of ? static_cast<const Module*>(frame.module) : nullptr;
  }
  /// Writes the line that stands for this module in a printed tree.
  virtual void pretty_print(std::ostream& stream) const;
  /// The bytes of the object itself, by which a change of its options is noticed cheaply (training/step_conditions.h);
  /// empty unless the module is a Cloneable.
  virtual std::span<const std::byte> object_bytes() const { return {}; }

  /// This module as an M (an Impl or a holder of it), or null when it is none: module->as<nn::Linear>().
  template <class M>
  auto* as() {
    if constexpr (requires { typename M::ContainedType; }) return dynamic_cast<typename M::ContainedType*>(this);
    else return dynamic_cast<M*>(this);
  }
  template <class M>
  const auto* as() const {
    if constexpr (requires { typename M::ContainedType; }) return dynamic_cast<const typename M::ContainedType*>(this);
    else return dynamic_cast<const M*>(this);
  }

 protected:
  /// Names this layer in the messages and recorded nodes of what its forward runs:  auto frame = enter();
  ModuleFrame enter() const { return ModuleFrame(static_cast<const Module*>(this), &path_of); }

  /// Shares what `other` holds, as the copy constructor does; keeps the own parent and hooks.
  Module& operator=(const Module& other);

  /// Makes this fresh copy of `original` independent of it.
  void finish_clone(const Module& original, const std::optional<Device>& device);
  /// Registers anew what `original` holds. True if the children, too, are yet to become clones.
  virtual bool rebuild(const Module& original, const std::optional<Device>& device);
  /// Becomes a clone of `original`. Called for a module that the clone of its parent has made.
  virtual void assign_clone(const Module& original, const std::optional<Device>& device);

  OrderedDict<std::string, Tensor> parameters_{"Parameter"}, buffers_{"Buffer"};
  OrderedDict<std::string, std::shared_ptr<Module>> children_{"Submodule"};

 private:
  struct Cloning;
  template <class Visit>
  void visit_modules(const std::string& prefix, Visit&& visit) const;
  template <class Convert>
  void convert_tensors(Convert&& convert);
  void add_child(std::string name, std::shared_ptr<Module> module);
  void replace_child(const std::string& name, std::shared_ptr<Module> module);
  void adopt(const std::string& name, Module& child);
  void release_children();
  void copy_numbers(const Module& original, const std::optional<Device>& device);
  void clone_children(const Module& original, const std::optional<Device>& device);
  detail::ModuleHooks& need_hooks();
  void check_name(const std::string& name, const char* what) const;
  void print_tree(std::ostream& stream, const std::string& indentation) const;
  static std::string path_of(const void* module);
  friend std::ostream& operator<<(std::ostream& stream, const Module& module);
  friend class detail::HookedCall;

  std::shared_ptr<detail::ModuleHooks> hooks_;  // null while there are none
  std::string own_name_;
  bool is_training_ = true;
  Cloning* cloning_ = nullptr;  // while this clone registers what the original holds
  Module* parent_ = nullptr;    // the first module that registered this one; its destructor clears this
  std::string name_in_parent_;
};

/// The tree of modules as LibTorch prints it.
std::ostream& operator<<(std::ostream& stream, const Module& module);

/// A module that clones itself. Derived registers all its parameters, buffers and children in reset(), which its
/// constructor calls too, and keeps what register_parameter returns. Other members are copied; for modules within
/// modules by Derived's copy assignment, as in LibTorch.
template <class Derived, class Base = Module>
class Cloneable : public Base {
 public:
  using Base::Base;
  virtual void reset() = 0;
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override {
    // By way of Module, so that the compiler makes one kind of shared_ptr for all layers.
    std::shared_ptr<Module> copy(static_cast<Module*>(new Derived(static_cast<const Derived&>(*this))));
    static_cast<Cloneable&>(*copy).finish_clone(*this, device);
    return copy;
  }
  std::span<const std::byte> object_bytes() const override {
    return std::as_bytes(std::span(static_cast<const Derived*>(this), 1));
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

namespace detail {

struct NoOptions {};

/// A layer without parameters: options, and a forward that the derived layer writes.
template <class Derived, class Options = NoOptions>
class PlainLayer : public Cloneable<Derived> {
 public:
  PlainLayer() requires std::is_default_constructible_v<Options>
  = default;
  explicit PlainLayer(const Options& options_) : options(options_) {}
  void reset() override {}

  Options options;
};

}  // namespace detail
}  // namespace gradus::nn

#include <gradus/layers/module_holder.h>
