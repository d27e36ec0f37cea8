// AnyModule holds one module of any type. Sequential calls several modules one after another. ModuleList, ModuleDict,
// ParameterList and ParameterDict have no forward; the module that owns the container uses its elements.
#pragma once

#include <any>
#include <concepts>
#include <span>
#include <typeinfo>

#include <gradus/core/platform/process.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

// ---- AnyModule ----

/// A value of any type that can be copied (torch::nn::AnyValue).
class AnyValue {
 public:
  AnyValue() = default;
  /// Arrays decay to pointers: AnyValue("text") holds a const char*.
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, AnyValue>) explicit AnyValue(T&& value)
      : value_(std::forward<T>(value)) {}

  /// Returns a pointer to the value if it is a T, else null. Types are not converted: an int is not an int64_t.
  template <class T>
  T* try_get() {
    return std::any_cast<T>(&value_);
  }
  /// Returns the value. If it is of another type, throws a ValueError that names both types.
  template <class T>
  T& get() {
    T* value = try_get<T>();
    GRADUS_CHECK(value, ValueError, "a value was requested as ", platform::demangled(typeid(T)), ", but it is ",
                 platform::demangled(type_info()));
    return *value;
  }
  /// The type of the value; typeid(void) if there is no value.
  const std::type_info& type_info() const { return value_.type(); }

 private:
  std::any value_;
};

namespace detail {

/// Returns `module` as an M, or as the module type that holder M holds. Throws a ValueError that names both types if it
/// is of another type.
template <class M>
auto& checked_as(Module& module) {
  auto* found = module.as<M>();
  GRADUS_CHECK(found, ValueError, "this module is a ", module.name(), ", not a ", platform::demangled(typeid(M)));
  return *found;
}
[[noreturn]] void fail_argument_count(const Module& module, size_t most, size_t given);

using AnyForward = AnyValue (*)(Module& module, std::span<AnyValue> values);

/// Deduces the parameter types of a forward that is neither overloaded nor a template.
template <class Function>
struct ForwardSignature;
template <class Result, class M, class... Args>
struct ForwardSignature<Result (M::*)(Args...)> {
  /// True in the specialisation below for Tensor forward(Tensor), which AnyModule calls directly, without AnyValues.
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

/// Returns values[i] as an Arg. Throws a ValueError if it has another type.
template <class Arg>
Arg&& argument(std::span<AnyValue> values, size_t i) {
  using Value = std::remove_cvref_t<Arg>;
  Value* value = values[i].template try_get<Value>();
  GRADUS_CHECK(value, ValueError, "argument ", i, " of forward is ", platform::demangled(typeid(Value)), ", got ",
               platform::demangled(values[i].type_info()), ": values in an AnyModule are not converted");
  return static_cast<Arg&&>(*value);
}

template <class Result, class M, class... Args>
template <class Called>
AnyValue ForwardSignature<Result (M::*)(Args...)>::call(Module& module, std::span<AnyValue> values) {
  Called& called = static_cast<Called&>(module);
  AnyValue result;
  // Calls forward if sizeof...(I) values are given and all further parameters have defaults. Returns false otherwise.
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
  Tensor operator()(const Tensor& x) const { return forward(x); }

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
  /// Returns a copy that holds a clone of the module.
  AnyModule clone(const std::optional<Device>& device = std::nullopt) const {
    return module_ ? with(module_->clone(device)) : *this;
  }
  /// Returns a copy that holds `module` instead, which must be of the same type.
  AnyModule with(std::shared_ptr<Module> module) const {
    AnyModule copy = *this;
    copy.module_ = std::move(module);
    return copy;
  }

 private:
  std::shared_ptr<Module> module_;
  Tensor (*tensor_forward_)(Module&, const Tensor&) = nullptr;  // set if maps_tensor()
  detail::AnyForward any_forward_ = nullptr;                    // set if forward has another, deducible signature
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

// ---- Containers ----

namespace detail {

/// Base of the containers whose modules have positions: Sequential and ModuleList. Element holds one module: AnyModule
/// or shared_ptr.
template <class Derived, class Element>
class ModuleSequence : public Cloneable<Derived> {
 public:
  using Iterator = typename std::vector<Element>::iterator;
  using ConstIterator = typename std::vector<Element>::const_iterator;

  size_t size() const { return modules_.size(); }
  bool is_empty() const { return modules_.empty(); }
  Iterator begin() { return modules_.begin(); }
  ConstIterator begin() const { return modules_.begin(); }
  Iterator end() { return modules_.end(); }
  ConstIterator end() const { return modules_.end(); }
  /// The module at `index`. An index beyond the end is an IndexError.
  const std::shared_ptr<Module>& ptr(size_t index) const;
  const std::shared_ptr<Module>& operator[](size_t index) const { return ptr(index); }
  /// The module as an M (an Impl or its holder): net->at<nn::Linear>(0).weight. Another type is a ValueError.
  template <class M>
  auto& at(size_t index) const {
    return checked_as<M>(*ptr(index));
  }
  template <class M>
  std::shared_ptr<M> ptr(size_t index) const {
    return {ptr(index), &checked_as<M>(*ptr(index))};
  }

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

 protected:
  std::vector<Element> modules_;
};

}  // namespace detail

/// Passes its input through its modules in order (torch::nn::Sequential). Modules are named "0", "1", … unless names
/// are given:
///   nn::Sequential net(nn::Linear(784, 64), nn::ReLU(), nn::Linear(64, 10));
///   nn::Sequential net({{"fc1", nn::Linear(784, 64)}, {"relu", nn::ReLU()}});
class SequentialImpl : public detail::ModuleSequence<SequentialImpl, AnyModule> {
 public:
  static constexpr const char* kName = "Sequential";
  template <class... Modules>
  static constexpr bool are_modules = sizeof...(Modules) > 0 && (std::is_constructible_v<AnyModule, Modules> && ...) &&
                                      !(std::is_base_of_v<SequentialImpl, std::remove_cvref_t<Modules>> || ...);

  SequentialImpl() = default;
  SequentialImpl(std::initializer_list<NamedAnyModule> modules) { extend(modules); }
  template <class... Modules>
  requires are_modules<Modules...>
  explicit SequentialImpl(Modules&&... modules) { (push_back(std::forward<Modules>(modules)), ...); }

  /// Passes x through all modules: net->forward(x). The first module may take other arguments and the last may return
  /// another type: net->forward<Result>(x, y). Between modules, values of any type are passed, including tuples. An
  /// empty Sequential is a ValueError.
  template <class Result = Tensor, class... Args>
  Result forward(Args&&... args) {
    if constexpr (std::is_same_v<Result, Tensor> && sizeof...(Args) == 1 &&
                  (std::is_same_v<std::remove_cvref_t<Args>, Tensor> && ...)) {
      return forward_tensor(args...);
    } else {
      AnyValue values[sizeof...(Args) + 1] = {AnyValue(std::forward<Args>(args))...};
      return std::move(forward_any({values, sizeof...(Args)}).template get<Result>());
    }
  }

  void push_back(AnyModule module) { push_back(std::to_string(modules_.size()), std::move(module)); }
  void push_back(std::string name, AnyModule module);
  void push_back(const NamedAnyModule& module) { push_back(module.name(), module.module()); }
  template <class M>
  requires std::is_constructible_v<AnyModule, M>
  void push_back(M&& module) { push_back(AnyModule(std::forward<M>(module))); }
  template <class M>
  requires std::is_constructible_v<AnyModule, M>
  void push_back(std::string name, M&& module) { push_back(std::move(name), AnyModule(std::forward<M>(module))); }
  /// Appends the modules of a Sequential, which may be this one, or of a vector of pointers. They are named by their
  /// new positions.
  template <class Modules>
  void extend(const Modules& modules) {
    const std::vector copies(modules.begin(), modules.end());
    for (const auto& module : copies) push_back(module);
  }

  /// Makes forward keep only the input of module `begin`, not the activations of the modules [begin, end). Backward
  /// then runs these modules again (Module::recompute). An empty or overlapping range is a ValueError, an index beyond
  /// the end an IndexError.
  void recompute_part(size_t begin, size_t end);
  /// Removes all ranges added by recompute_part.
  void keep_all() { parts_.clear(); }

 private:
  Tensor forward_tensor(const Tensor& x) const;
  /// Passes values of any type through all modules. Keeps all activations, even in the ranges of recompute_part().
  AnyValue forward_any(std::span<AnyValue> values) const;
  bool rebuild(const Module& original, const std::optional<Device>& device) override;
  std::vector<std::pair<size_t, size_t>> parts_;  // recomputed ranges, in order
};

/// Holder of SequentialImpl.
class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using Impl = SequentialImpl;
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  Sequential() = default;
  Sequential(std::initializer_list<NamedAnyModule> modules);
};

/// Modules by position, named "0", "1", … (torch::nn::ModuleList).
///   nn::ModuleList blocks(nn::Linear(3, 4), nn::ReLU());
///   for (const auto& block : *blocks) …
class ModuleListImpl : public detail::ModuleSequence<ModuleListImpl, std::shared_ptr<Module>> {
 public:
  static constexpr const char* kName = "ModuleList";
  ModuleListImpl() = default;
  template <class... Modules>
  requires(sizeof...(Modules) > 0 && !(std::is_base_of_v<ModuleListImpl, std::remove_cvref_t<Modules>> ||
                                       ...)) explicit ModuleListImpl(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }

  void push_back(std::shared_ptr<Module> module) { insert(size(), std::move(module)); }
  void push_back(const AnyModule& module) { push_back(module.ptr()); }
  template <class M>
  requires std::derived_from<std::remove_cvref_t<M>, Module>
  void push_back(M&& module) { push_back(std::make_shared<std::remove_cvref_t<M>>(std::forward<M>(module))); }
  /// Appends the modules of a container: another list, a Sequential, or a vector of pointers.
  template <class Container>
  void extend(const Container& container) {
    for (const auto& module : container) push_back(module);
  }
  /// Inserts before position `index`, which may be size(). A larger index is an IndexError.
  void insert(size_t index, std::shared_ptr<Module> module);

 private:
  bool rebuild(const Module& original, const std::optional<Device>& device) override;
};
GRADUS_MODULE(ModuleList);

/// Modules by name, in order of insertion (torch::nn::ModuleDict).
class ModuleDictImpl : public Cloneable<ModuleDictImpl> {
 public:
  using Modules = NamedModules;
  using Items = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;

  ModuleDictImpl() = default;
  explicit ModuleDictImpl(const Items& modules) { update(modules); }
  explicit ModuleDictImpl(const Modules& modules) { update(modules); }

  /// Adds a module, or replaces the module of that name.
  void insert(const std::string& name, std::shared_ptr<Module> module);
  /// Inserts all modules.
  void update(const Modules& modules) { update(modules.pairs()); }
  /// Inserts all modules of another ModuleDict.
  void update(const ModuleDictImpl& other) { update(other.named_children()); }
  /// Inserts all modules in the given order.
  void update(const Items& modules);
  /// Removes and returns the module. An unknown name is an IndexError.
  std::shared_ptr<Module> pop(const std::string& name);
  /// Removes all modules.
  void clear();

  size_t size() const { return children_.size(); }
  bool empty() const { return size() == 0; }
  bool contains(const std::string& name) const { return children_.contains(name); }
  /// Iterates over items with key() and value().
  auto begin() const { return children_.begin(); }
  auto end() const { return children_.end(); }
  std::vector<std::string> keys() const { return named_children().keys(); }
  std::vector<std::shared_ptr<Module>> values() const { return children(); }
  Items items() const { return named_children().pairs(); }
  /// The module of that name. An unknown name is an IndexError.
  std::shared_ptr<Module> operator[](const std::string& name) const { return named_children()[name]; }
  template <class M>
  auto& at(const std::string& name) const {
    return detail::checked_as<M>(*(*this)[name]);
  }

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

 private:
  bool rebuild(const Module& original, const std::optional<Device>& device) override;
};

/// Holder of ModuleDictImpl:  nn::ModuleDict heads({{"digits", nn::Linear(8, 10)}, {"sign", nn::Linear(8, 2)}});
class ModuleDict : public ModuleHolder<ModuleDictImpl> {
 public:
  using Impl = ModuleDictImpl;
  /// A name and a module, which may also be given as a holder.
  using Item = Impl::Items::value_type;
  using ModuleHolder<ModuleDictImpl>::ModuleHolder;
  ModuleDict() = default;
  ModuleDict(std::initializer_list<Item> items);
};

namespace detail {

/// Base of ParameterList and ParameterDict. Their content is the registered parameters of the module.
template <class Derived>
class ParameterContainer : public Cloneable<Derived> {
 public:
  size_t size() const { return this->parameters_.size(); }
  /// Iterates over items with key() and value(). The key of a parameter in a list is its position as text.
  auto begin() const { return this->parameters_.begin(); }
  auto end() const { return this->parameters_.end(); }
  void reset() override {}
  /// Prints in LibTorch's format, one line for each parameter: "(0): Parameter containing: [Float of size [2, 3]]".
  void pretty_print(std::ostream& stream) const override;

 private:
  /// Registers copies of the original's parameters.
  bool rebuild(const Module& original, const std::optional<Device>& device) override;
};

}  // namespace detail

/// Parameters by position (torch::nn::ParameterList).
struct ParameterListImpl : detail::ParameterContainer<ParameterListImpl> {
  static constexpr const char* kName = "ParameterList";
  ParameterListImpl() = default;
  explicit ParameterListImpl(const TensorList& parameters) { extend(parameters); }
  template <class... Tensors>
  requires(sizeof...(Tensors) > 0 && (std::same_as<std::remove_cvref_t<Tensors>, Tensor> &&
                                      ...)) explicit ParameterListImpl(Tensors&&... tensors) {
    (append(tensors), ...);
  }

  /// Adds a parameter. It requires gradients if `parameter` does.
  void append(const Tensor& parameter);
  void push_back(const Tensor& parameter) { append(parameter); }
  void extend(const TensorList& parameters);
  /// Appends the parameters of another list.
  void extend(const ParameterListImpl& other) { extend(other.parameters_.values()); }
  /// Appends the parameters of another list.
  ParameterListImpl& operator+=(const ParameterListImpl& other) { return extend(other), *this; }
  bool is_empty() const { return size() == 0; }
  /// The parameter at `index`. An index beyond the end is an IndexError.
  Tensor operator[](size_t index) const;
  Tensor at(size_t index) const { return (*this)[index]; }
};
GRADUS_MODULE(ParameterList);

/// Parameters by name (torch::nn::ParameterDict).
struct ParameterDictImpl : detail::ParameterContainer<ParameterDictImpl> {
  static constexpr const char* kName = "ParameterDict";
  ParameterDictImpl() = default;
  explicit ParameterDictImpl(const StateDict& parameters) { update(parameters); }

  /// Adds a parameter, or replaces the parameter of that name. It requires gradients if `parameter` does.
  void insert(const std::string& name, const Tensor& parameter);
  /// Inserts all parameters.
  void update(const StateDict& parameters);
  /// Inserts all parameters of another ParameterDict.
  void update(const ParameterDictImpl& other) { update(other.parameters_); }
  /// Removes and returns the parameter. An unknown name is an IndexError.
  Tensor pop(const std::string& name);
  /// Removes all parameters.
  void clear() { parameters_.clear(); }
  bool empty() const { return size() == 0; }
  bool contains(const std::string& name) const { return parameters_.contains(name); }
  std::vector<std::string> keys() const { return parameters_.keys(); }
  TensorList values() const { return parameters_.values(); }
  /// The parameter of that name. An unknown name is an IndexError.
  const Tensor& operator[](const std::string& name) const { return parameters_[name]; }
  const Tensor& get(const std::string& name) const { return parameters_[name]; }
};
GRADUS_MODULE(ParameterDict);

}  // namespace gradus::nn
