// Sequential calls modules one after another. ModuleList and ModuleDict hold modules, ParameterList and ParameterDict
// hold tensors, so that a module can register any number of them; they have no forward, and the module that owns the
// container calls its elements.
#pragma once

#include <concepts>

#include <gradus/layers/module/any_module.h>

namespace gradus::nn {

/// Passes its input through its modules in order (torch::nn::Sequential). Modules are named "0", "1", … unless names
/// are given:
///   nn::Sequential net(nn::Linear(784, 64), nn::ReLU(), nn::Linear(64, 10));
///   nn::Sequential net({{"fc1", nn::Linear(784, 64)}, {"relu", nn::ReLU()}});
class SequentialImpl : public Cloneable<SequentialImpl> {
 public:
  using Iterator = std::vector<AnyModule>::iterator;
  using ConstIterator = std::vector<AnyModule>::const_iterator;
  template <class... Modules>
  static constexpr bool are_modules = sizeof...(Modules) > 0 && (std::is_constructible_v<AnyModule, Modules> && ...) &&
                                      !(std::is_base_of_v<SequentialImpl, std::remove_cvref_t<Modules>> || ...);

  SequentialImpl() = default;
  SequentialImpl(std::initializer_list<NamedAnyModule> modules);
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
  /// Appends the modules of `other`, named by their new positions, or those of a vector of pointers.
  void extend(const SequentialImpl& other);
  template <class M>
  void extend(const std::vector<M>& modules) {
    for (const M& module : modules) push_back(module);
  }

  size_t size() const { return modules_.size(); }
  bool is_empty() const { return modules_.empty(); }
  Iterator begin() { return modules_.begin(); }
  ConstIterator begin() const { return modules_.begin(); }
  Iterator end() { return modules_.end(); }
  ConstIterator end() const { return modules_.end(); }
  /// The module at `index`. An index beyond the end is an IndexError.
  const std::shared_ptr<Module>& ptr(size_t index) const;
  const std::shared_ptr<Module>& operator[](size_t index) const { return ptr(index); }
  /// The module as an M (an Impl or its holder): net->at<nn::Linear>(0).weight
  template <class M>
  auto& at(size_t index) const {
    return detail::checked_as<M>(*ptr(index));
  }
  template <class M>
  std::shared_ptr<M> ptr(size_t index) const {
    ptr(index);
    return modules_[index].ptr<M>();
  }

  /// Makes the modules [begin, end) one checkpoint: only its input is kept for backward (Module::recompute). An empty
  /// or overlapping range is a ValueError, an index beyond the end an IndexError.
  void recompute_part(size_t begin, size_t end);
  /// Removes all ranges added by recompute_part.
  void keep_all() { parts_.clear(); }

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

 private:
  Tensor forward_tensor(const Tensor& x) const;
  /// Does not recompute ranges.
  AnyValue forward_any(std::span<AnyValue> values) const;
  bool rebuild(const Module& original, const std::optional<Device>& device) override;
  std::vector<AnyModule> modules_;
  std::vector<std::pair<size_t, size_t>> parts_;  // recomputed ranges, in order
};

/// Holder of SequentialImpl.
class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using Impl = SequentialImpl;
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  Sequential();
  Sequential(std::initializer_list<NamedAnyModule> modules);
};

/// Modules by position, named "0", "1", … (torch::nn::ModuleList).
///   nn::ModuleList blocks(nn::Linear(3, 4), nn::ReLU());
///   for (const auto& block : *blocks) …
class ModuleListImpl : public Cloneable<ModuleListImpl> {
 public:
  using Iterator = std::vector<std::shared_ptr<Module>>::iterator;
  using ConstIterator = std::vector<std::shared_ptr<Module>>::const_iterator;

  ModuleListImpl() = default;
  template <class... Modules>
  requires(sizeof...(Modules) > 0 && !(std::is_base_of_v<ModuleListImpl, std::remove_cvref_t<Modules>> ||
                                       ...)) explicit ModuleListImpl(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }

  void push_back(std::shared_ptr<Module> module) { insert(size(), std::move(module)); }
  template <class M>
  void push_back(const ModuleHolder<M>& holder) {
    push_back(std::shared_ptr<Module>(holder.ptr()));
  }
  template <class M>
  requires std::derived_from<std::remove_cvref_t<M>, Module>
  void push_back(M&& module) { push_back(std::make_shared<std::remove_cvref_t<M>>(std::forward<M>(module))); }
  /// Appends the modules of a container: another list, a Sequential, or a vector of pointers.
  template <class Container>
  void extend(const Container& container) {
    for (const auto& module : container) {
      if constexpr (requires { module.ptr(); }) push_back(std::shared_ptr<Module>(module.ptr()));
      else push_back(std::shared_ptr<Module>(module));
    }
  }
  /// Inserts before position `index`, which may be size(). A larger index is an IndexError.
  void insert(size_t index, std::shared_ptr<Module> module);
  template <class M>
  void insert(size_t index, const ModuleHolder<M>& holder) {
    insert(index, std::shared_ptr<Module>(holder.ptr()));
  }

  size_t size() const { return modules_.size(); }
  bool is_empty() const { return modules_.empty(); }
  Iterator begin() { return modules_.begin(); }
  ConstIterator begin() const { return modules_.begin(); }
  Iterator end() { return modules_.end(); }
  ConstIterator end() const { return modules_.end(); }
  /// The module at `index`. An index beyond the end is an IndexError.
  const std::shared_ptr<Module>& ptr(size_t index) const;
  const std::shared_ptr<Module>& operator[](size_t index) const { return ptr(index); }
  /// The module as an M (an Impl or its holder): blocks->at<nn::Linear>(0).weight. Another type is a ValueError.
  template <class M>
  auto& at(size_t index) const {
    return detail::checked_as<M>(*ptr(index));
  }
  template <class M>
  std::shared_ptr<M> ptr(size_t index) const {
    return {ptr(index), &detail::checked_as<M>(*ptr(index))};
  }

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

 private:
  bool rebuild(const Module& original, const std::optional<Device>& device) override;
  std::vector<std::shared_ptr<Module>> modules_;
};
GRADUS_MODULE(ModuleList);

/// Modules by name, in order of insertion (torch::nn::ModuleDict).
class ModuleDictImpl : public Cloneable<ModuleDictImpl> {
 public:
  using Modules = OrderedDict<std::string, std::shared_ptr<Module>>;

  ModuleDictImpl() = default;
  explicit ModuleDictImpl(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules) {
    update(modules);
  }
  explicit ModuleDictImpl(const Modules& modules) { update(modules); }

  /// Adds a module, or replaces the module of that name.
  void insert(const std::string& name, std::shared_ptr<Module> module);
  template <class M>
  void insert(const std::string& name, const ModuleHolder<M>& holder) {
    insert(name, std::shared_ptr<Module>(holder.ptr()));
  }
  /// Inserts all modules.
  void update(const Modules& modules);
  /// Inserts all modules of another ModuleDict.
  void update(const ModuleDictImpl& other) { update(other.named_children()); }
  /// Inserts all modules in the given order.
  void update(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules);
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
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> items() const { return named_children().pairs(); }
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
  /// A module of any type with its name.
  struct Item {
    template <class M>
    Item(std::string name_, const ModuleHolder<M>& holder) : name(std::move(name_)), module(holder.ptr()) {}
    Item(std::string name_, std::shared_ptr<Module> module_) : name(std::move(name_)), module(std::move(module_)) {}
    std::string name;
    std::shared_ptr<Module> module;
  };
  using ModuleHolder<ModuleDictImpl>::ModuleHolder;
  ModuleDict();
  ModuleDict(std::initializer_list<Item> items);
};

/// Parameters by position (torch::nn::ParameterList).
class ParameterListImpl : public Cloneable<ParameterListImpl> {
 public:
  ParameterListImpl() = default;
  explicit ParameterListImpl(const std::vector<Tensor>& parameters) { extend(parameters); }
  template <class... Tensors>
  requires(sizeof...(Tensors) > 0 && (std::same_as<std::remove_cvref_t<Tensors>, Tensor> &&
                                      ...)) explicit ParameterListImpl(Tensors&&... tensors) {
    (append(tensors), ...);
  }
  void reset() override;

  /// Adds a parameter. It requires gradients if `parameter` does.
  void append(const Tensor& parameter);
  void push_back(const Tensor& parameter) { append(parameter); }
  void extend(const std::vector<Tensor>& parameters);
  /// Appends the parameters of another list.
  void extend(const ParameterListImpl& other) { extend(other.tensors_.values()); }
  /// Appends the parameters of another list.
  ParameterListImpl& operator+=(const ParameterListImpl& other) { return extend(other), *this; }
  size_t size() const { return tensors_.size(); }
  bool is_empty() const { return size() == 0; }
  /// The parameter at `index`. An index beyond the end is an IndexError.
  Tensor operator[](size_t index) const;
  Tensor at(size_t index) const { return (*this)[index]; }
  /// Iterates over items with key(), the position as text, and value().
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }
  void pretty_print(std::ostream& stream) const override;

 private:
  OrderedDict<std::string, Tensor> tensors_{"Parameter"};
};
GRADUS_MODULE(ParameterList);

/// Parameters by name (torch::nn::ParameterDict).
class ParameterDictImpl : public Cloneable<ParameterDictImpl> {
 public:
  ParameterDictImpl() = default;
  explicit ParameterDictImpl(const OrderedDict<std::string, Tensor>& parameters) { update(parameters); }
  void reset() override;

  /// Adds a parameter, or replaces the parameter of that name. It requires gradients if `parameter` does.
  void insert(const std::string& name, const Tensor& parameter);
  /// Inserts all parameters.
  void update(const OrderedDict<std::string, Tensor>& parameters);
  /// Inserts all parameters of another ParameterDict.
  void update(const ParameterDictImpl& other) { update(other.tensors_); }
  /// Removes and returns the parameter. An unknown name is an IndexError.
  Tensor pop(const std::string& name);
  /// Removes all parameters.
  void clear();
  size_t size() const { return tensors_.size(); }
  bool empty() const { return size() == 0; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> keys() const { return tensors_.keys(); }
  std::vector<Tensor> values() const { return tensors_.values(); }
  /// The parameter of that name. An unknown name is an IndexError.
  const Tensor& operator[](const std::string& name) const { return tensors_[name]; }
  const Tensor& get(const std::string& name) const { return tensors_[name]; }
  /// Iterates over items with key() and value().
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }
  void pretty_print(std::ostream& stream) const override;

 private:
  OrderedDict<std::string, Tensor> tensors_{"Parameter"};
};
GRADUS_MODULE(ParameterDict);

}  // namespace gradus::nn
