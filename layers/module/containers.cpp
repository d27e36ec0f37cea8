#include <gradus/layers/module/containers.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

namespace gradus::nn {

// ---- AnyModule ----

void detail::fail_argument_count(const Module& module, size_t most, size_t given) {
  GRADUS_FAIL(ValueError, "forward of ", module.name(), " takes ", most,
              " arguments (fewer where parameters have defaults), ", "got ", given);
}

AnyValue AnyModule::forward_any(std::span<AnyValue> values) const {
  GRADUS_CHECK(module_, ValueError, "cannot call forward of an empty AnyModule");
  if (any_forward_) return any_forward_(*module_, values);
  if (values.size() != 1) detail::fail_argument_count(*module_, 1, values.size());
  return AnyValue(tensor_forward_(*module_, detail::argument<const Tensor&>(values, 0)));
}

const std::shared_ptr<Module>& AnyModule::ptr() const {
  GRADUS_CHECK(module_, ValueError, "this AnyModule is empty");
  return module_;
}

const std::type_info& AnyModule::type_info() const {
  const Module& module = *ptr();
  return typeid(module);
}

// ---- Containers with positions ----

namespace {

/// Returns a function that clones modules. It clones a module that occurs several times once.
auto cloner(const std::optional<Device>& device) {
  std::map<const Module*, std::shared_ptr<Module>> done;
  return [done, &device](const std::shared_ptr<Module>& module) mutable {
    std::shared_ptr<Module>& copy = done[module.get()];
    if (!copy) copy = module->clone(device);
    return copy;
  };
}

}  // namespace

template <class Derived, class Element>
const std::shared_ptr<Module>& detail::ModuleSequence<Derived, Element>::ptr(size_t index) const {
  GRADUS_CHECK(index < size(), IndexError, "index ", index, " is out of range for a ", Derived::kName, " of ", size());
  if constexpr (std::is_same_v<Element, AnyModule>) return modules_[index].ptr();
  else return modules_[index];
}

template <class Derived, class Element>
void detail::ModuleSequence<Derived, Element>::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::" << Derived::kName;
}

template class detail::ModuleSequence<SequentialImpl, AnyModule>;
template class detail::ModuleSequence<ModuleListImpl, std::shared_ptr<Module>>;

// ---- Sequential ----

Sequential::Sequential(std::initializer_list<NamedAnyModule> modules)
    : ModuleHolder(std::make_shared<SequentialImpl>(modules)) {}

Tensor SequentialImpl::forward_tensor(const Tensor& x) const {
  if (modules_.empty() || !std::ranges::all_of(modules_, &AnyModule::maps_tensor)) {
    AnyValue value(x);
    return forward_any({&value, 1}).get<Tensor>();
  }
  const auto run = [](std::span<const AnyModule> modules, Tensor y) {
    for (const AnyModule& module : modules) y = module.forward(y);
    return y;
  };
  Tensor y = x;
  size_t next = 0;
  const std::span<const AnyModule> all = modules_;
  for (const auto& [begin, end] : parts_) {
    y = run(all.subspan(next, begin - next), y);
    const std::vector<AnyModule> part(modules_.begin() + static_cast<std::ptrdiff_t>(begin),
                                      modules_.begin() + static_cast<std::ptrdiff_t>(end));
    y = autograd::checkpoint([run, part](const Tensor& input) { return run(part, input); }, y);
    next = end;
  }
  return run(all.subspan(next), y);
}

AnyValue SequentialImpl::forward_any(std::span<AnyValue> values) const {
  GRADUS_CHECK(!modules_.empty(), ValueError, "cannot call forward of an empty Sequential: push_back modules first");
  AnyValue value = modules_[0].forward_any(values);
  for (size_t i = 1; i < modules_.size(); ++i) value = modules_[i].forward_any({&value, 1});
  return value;
}

void SequentialImpl::recompute_part(size_t begin, size_t end) {
  GRADUS_CHECK(end <= modules_.size(), IndexError, "end ", end, " is out of range for a Sequential of ",
               modules_.size());
  GRADUS_CHECK(begin < end, ValueError, "the part of a Sequential to recompute is empty: [", begin, ", ", end, ")");
  const auto behind = std::lower_bound(parts_.begin(), parts_.end(), std::pair(begin, end));
  const bool overlaps = (behind != parts_.end() && behind->first < end) ||
                        (behind != parts_.begin() && std::prev(behind)->second > begin);
  GRADUS_CHECK(!overlaps, ValueError, "modules [", begin, ", ", end, ") of a Sequential overlap with others that are ",
               "recomputed: call keep_all() first");
  parts_.insert(behind, {begin, end});
}

void SequentialImpl::push_back(std::string name, AnyModule module) {
  register_module(std::move(name), module.ptr());
  modules_.push_back(std::move(module));
}

bool SequentialImpl::rebuild(const Module& original, const std::optional<Device>& device) {
  const std::vector<AnyModule> modules = std::exchange(modules_, {});
  parts_.clear();
  const std::vector<std::string> names = original.named_children().keys();
  auto clone_of = cloner(device);
  for (size_t i = 0; i < modules.size(); ++i) push_back(names[i], modules[i].with(clone_of(modules[i].ptr())));
  return false;
}

// ---- ModuleList ----

void ModuleListImpl::insert(size_t index, std::shared_ptr<Module> module) {
  GRADUS_CHECK(index <= size(), IndexError, "position ", index, " is out of range for a ModuleList of ", size());
  GRADUS_CHECK(module, ValueError, "a ModuleList got a null module");
  modules_.insert(modules_.begin() + static_cast<std::ptrdiff_t>(index), module);
  for (size_t i = index; i + 1 < modules_.size(); ++i) replace_module(std::to_string(i), modules_[i]);
  register_module(std::to_string(modules_.size() - 1), modules_.back());
}

bool ModuleListImpl::rebuild(const Module& original, const std::optional<Device>& device) {
  modules_.clear();
  auto clone_of = cloner(device);
  for (const auto& module : static_cast<const ModuleListImpl&>(original)) push_back(clone_of(module));
  return false;
}

// ---- ModuleDict ----

void ModuleDictImpl::update(const Items& modules) {
  for (const auto& [name, module] : modules) insert(name, module);
}

void ModuleDictImpl::insert(const std::string& name, std::shared_ptr<Module> module) {
  if (contains(name)) replace_module(name, std::move(module));
  else register_module(name, std::move(module));
}

std::shared_ptr<Module> ModuleDictImpl::pop(const std::string& name) {
  std::shared_ptr<Module> module = (*this)[name];
  unregister_module(name);
  return module;
}

void ModuleDictImpl::clear() {
  for (const std::string& name : keys()) unregister_module(name);
}

bool ModuleDictImpl::rebuild(const Module& original, const std::optional<Device>& device) {
  auto clone_of = cloner(device);
  for (const auto& item : original.named_children()) insert(item.key(), clone_of(item.value()));
  return false;
}

void ModuleDictImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::ModuleDict"; }

ModuleDict::ModuleDict(std::initializer_list<Item> items)
    : ModuleHolder(std::make_shared<ModuleDictImpl>(std::vector(items))) {}

// ---- ParameterList and ParameterDict ----

template <class Derived>
void detail::ParameterContainer<Derived>::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::" << Derived::kName << "(\n";
  for (const auto& item : *this) {
    stream << "(" << item.key() << "): Parameter containing: [" << type_name(item->dtype()) << " of size [";
    for (int64_t d = 0; d < item->dim(); ++d) stream << (d ? ", " : "") << item->size(d);
    stream << "]]\n";
  }
  stream << ")";
}

template <class Derived>
bool detail::ParameterContainer<Derived>::rebuild(const Module& original, const std::optional<Device>&) {
  for (const auto& item : static_cast<const ParameterContainer&>(original))
    this->register_parameter(item.key(), item->detach().clone(), item->requires_grad());
  return false;
}

template class detail::ParameterContainer<ParameterListImpl>;
template class detail::ParameterContainer<ParameterDictImpl>;

void ParameterListImpl::append(const Tensor& parameter) {
  register_parameter(std::to_string(size()), parameter, parameter.requires_grad());
}

void ParameterListImpl::extend(const TensorList& parameters) {
  for (const Tensor& parameter : parameters) append(parameter);
}

Tensor ParameterListImpl::operator[](size_t index) const {
  GRADUS_CHECK(index < size(), IndexError, "index ", index, " is out of range for a ParameterList of ", size());
  return parameters_[index].value();
}

void ParameterDictImpl::insert(const std::string& name, const Tensor& parameter) {
  if (contains(name)) replace_parameter(name, parameter, parameter.requires_grad());
  else register_parameter(name, parameter, parameter.requires_grad());
}

void ParameterDictImpl::update(const StateDict& parameters) {
  for (const auto& item : parameters) insert(item.key(), item.value());
}

Tensor ParameterDictImpl::pop(const std::string& name) {
  Tensor parameter = parameters_[name];
  parameters_.erase(name);
  return parameter;
}

}  // namespace gradus::nn
