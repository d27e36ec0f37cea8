// Sequential: modules called one after another.
#pragma once

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
  Tensor forward_in_parts(const Tensor& x) const;
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

}  // namespace gradus::nn
