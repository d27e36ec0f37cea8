#include <gradus/layers/module/module.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <ostream>
#include <unordered_set>

#include <gradus/core/platform/process.h>
#include <gradus/core/runtime/random.h>

namespace gradus::nn {

namespace {

std::string join_name(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : name.empty() ? prefix : prefix + "." + name;
}

}  // namespace

// ---- Construction and destruction ----

// The base is not copied: no shared_ptr owns the copy yet. NOLINTNEXTLINE(bugprone-copy-constructor-init)
Module::Module(const Module& other)
    : std::enable_shared_from_this<Module>(), parameters_(other.parameters_), buffers_(other.buffers_),
      children_(other.children_), own_name_(other.own_name_), is_training_(other.is_training_) {}

Module::Module(Module&& other)
    : std::enable_shared_from_this<Module>(), parameters_(std::move(other.parameters_)),
      buffers_(std::move(other.buffers_)), children_(std::move(other.children_)), hooks_(std::move(other.hooks_)),
      own_name_(std::move(other.own_name_)), is_training_(other.is_training_) {
  for (auto& child : children_)
    if (child.value()->parent_ == &other) child.value()->parent_ = this;
}

Module& Module::operator=(const Module& other) {
  if (this != &other) release_children();
  parameters_ = other.parameters_;
  buffers_ = other.buffers_;
  children_ = other.children_;
  own_name_ = other.own_name_;
  is_training_ = other.is_training_;
  return *this;
}

namespace {
// Children of destroyed modules. The outermost destructor that runs on this thread releases them.
thread_local constinit std::vector<std::shared_ptr<Module>>* orphans = nullptr;
}  // namespace

Module::~Module() {
  release_children();
  if (children_.is_empty()) return;
  // Destroying a child destroys its children, and so on down the tree. Children are therefore released in a loop
  // instead of recursively.
  std::vector<std::shared_ptr<Module>> children = children_.values();
  children_.clear();
  if (orphans) {
    std::ranges::move(children, std::back_inserter(*orphans));
    return;
  }
  orphans = &children;
  while (!children.empty()) {
    const std::shared_ptr<Module> next = std::move(children.back());
    children.pop_back();
  }
  orphans = nullptr;
}

void Module::release_children() {
  for (auto& child : children_)
    if (child.value()->parent_ == this) child.value()->parent_ = nullptr;
}

void Module::adopt(const std::string& name, Module& child) {
  if (child.parent_) return;
  child.parent_ = this;
  child.name_in_parent_ = name;
}

// ---- Cloning ----

namespace {

using TensorClones = std::map<const TensorImpl*, Tensor>;  // maps each parameter of the original to that of the clone
thread_local constinit TensorClones* tensor_clones = nullptr;

}  // namespace

struct Module::Cloning {
  const Module& original;
  TensorList replaced;  // parameters of reset() that were replaced by an existing clone of the tied parameter

  Tensor clone_of(const std::string& name, Tensor fresh) {
    const Tensor* source = original.parameters_.find(name);
    const auto known = source ? tensor_clones->find(source->impl()) : tensor_clones->end();
    if (known == tensor_clones->end() || !fresh.defined() || known->second.is_same(fresh)) return fresh;
    replaced.push_back(std::move(fresh));
    return known->second;
  }
};

void Module::finish_clone(const Module& original, const std::optional<Device>& device) {
  // Tied parameters remain tied, because the outermost clone() remembers all parameters that have been cloned.
  TensorClones clones;
  const ScopedValue<TensorClones*> outermost(tensor_clones, tensor_clones ? tensor_clones : &clones);
  parameters_.clear();
  buffers_.clear();
  children_.clear();
  Cloning cloning{original, {}};
  cloning_ = &cloning;
  Generator& generator = default_generator();
  const uint64_t seed = generator.seed(), offset = generator.offset();
  const bool children_too = rebuild(original, device);
  generator.set_state(seed, offset);  // rebuild() may draw initial values, but cloning must not change the generator
  cloning_ = nullptr;

  copy_numbers(original, device);
  if (children_too) clone_children(original, device);
  for (const Tensor& fresh : cloning.replaced)
    GRADUS_CHECK(fresh.use_count() == 1, ValueError, "the clone of a ", name(),
                 " does not tie a parameter as the original does: keep what register_parameter() returns in reset()");
}

void Module::copy_numbers(const Module& original, const std::optional<Device>& device) {
  GRADUS_CHECK(parameters_.keys() == original.parameters_.keys() && buffers_.keys() == original.buffers_.keys() &&
                   children_.keys() == original.children_.keys(),
               ValueError, "the clone of a ", name(), " registered ", parameters_.size(), " parameters, ",
               buffers_.size(), " buffers and ", children_.size(), " modules, the original has ",
               original.parameters_.size(), ", ", original.buffers_.size(), " and ", original.children_.size(),
               ": register all of them in reset(), under the same names");
  NoGradGuard no_grad;
  auto copy_of = [&](const Tensor& source) {
    return device ? source.detach().to(*device, false, true) : source.detach().clone();
  };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor &tensor = *parameters_[i], &source = *original.parameters_[i];
    if (!source.defined()) continue;
    GRADUS_CHECK(tensor_clones->emplace(source.impl(), tensor).first->second.is_same(tensor), ValueError,
                 "the clone of a ", name(), " does not tie '", parameters_[i].key(),
                 "' to another parameter as the original does: tie them in reset(), in modules derived from Cloneable");
    tensor.set_data(copy_of(source));
    tensor.set_requires_grad(source.requires_grad());
  }
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (original.buffers_[i]->defined()) buffers_[i]->set_data(copy_of(*original.buffers_[i]));
  is_training_ = original.is_training_;
}

void Module::clone_children(const Module& original, const std::optional<Device>& device) {
  for (size_t i = 0; i < children_.size(); ++i) {
    Module& child = *children_[i].value();
    child.assign_clone(*original.children_[i].value(), device);
    for (auto& below : child.children_) child.adopt(below.key(), *below.value());
  }
}

bool Module::rebuild(const Module&, const std::optional<Device>&) { return false; }

void Module::assign_clone(const Module& original, const std::optional<Device>& device) {
  copy_numbers(original, device);
  clone_children(original, device);
}

std::shared_ptr<Module> Module::clone(const std::optional<Device>&) const {
  GRADUS_FAIL(ValueError, name(), " cannot be cloned: derive it from nn::Cloneable<", name(),
              "> and register its parameters, buffers and modules in reset()");
}

// ---- Registration ----

void Module::check_name(const char* what, const std::string& name, bool is_taken, const char* other) const {
  GRADUS_CHECK(!name.empty(), ValueError, what, " of ", this->name(), " needs a name that is not empty");
  GRADUS_CHECK(name.find('.') == std::string::npos, ValueError, what, " name '", name, "' of ", this->name(),
               " must not contain a dot");
  GRADUS_CHECK(!is_taken, ValueError, what, " '", name, "' of ", this->name(), " has the name of a ", other);
}

Tensor Module::register_parameter(std::string name, Tensor tensor, bool requires_grad) {
  check_name("Parameter", name, buffers_.contains(name) || children_.contains(name), "buffer or module");
  if (cloning_) tensor = cloning_->clone_of(name, std::move(tensor));
  if (tensor.defined()) tensor.set_requires_grad(requires_grad);
  return parameters_.insert(std::move(name), std::move(tensor));
}

Tensor Module::replace_parameter(const std::string& name, Tensor tensor, bool requires_grad) {
  Tensor& entry = parameters_[name];
  if (tensor.defined()) tensor.set_requires_grad(requires_grad);
  return entry = std::move(tensor);
}

Tensor Module::register_buffer(std::string name, Tensor tensor) {
  check_name("Buffer", name, parameters_.contains(name) || children_.contains(name), "parameter or module");
  return buffers_.insert(std::move(name), std::move(tensor));
}

void Module::add_child(std::string name, std::shared_ptr<Module> module) {
  check_name("Submodule", name, parameters_.contains(name) || buffers_.contains(name), "parameter or buffer");
  GRADUS_CHECK(module, ValueError, "Submodule '", name, "' of ", this->name(), " is null");
  for (const Module* above = this; above; above = above->parent_)
    GRADUS_CHECK(above != module.get(), ValueError, "Submodule '", name, "' of ", this->name(), " contains it already");
  Module& child = *children_.insert(name, std::move(module));
  adopt(name, child);
}

void Module::replace_child(const std::string& name, std::shared_ptr<Module> module) {
  GRADUS_CHECK(module, ValueError, "Submodule '", name, "' of ", this->name(), " is null");
  std::shared_ptr<Module>& child_of_name = children_[name];
  release_children();
  // This may destroy the replaced module, whose children then have no parent. The new module may be one of them.
  child_of_name = std::move(module);
  for (auto& child : children_) adopt(child.key(), *child.value());
}

void Module::unregister_module(const std::string& name) {
  Module& child = *children_[name];
  if (child.parent_ == this) child.parent_ = nullptr;
  children_.erase(name);
}

// ---- Listing ----

/// Calls visit(name, module) for this module and all its submodules, depth first. A module with several names is
/// visited once.
template <class Visit>
void Module::visit_modules(const std::string& prefix, Visit&& visit) const {
  struct Level {
    const Module* module;
    size_t next_child, name_above;  // name_above: length of the parent's name
  };
  std::unordered_set<const Module*> seen{this};
  std::string name = prefix;
  visit(name, *this);
  // An explicit stack, because recursion in a deep net would overflow the stack of the thread.
  std::vector<Level> levels{{this, 0, 0}};
  while (!levels.empty()) {
    Level& level = levels.back();
    if (level.next_child == level.module->children_.size()) {
      name.resize(level.name_above);
      levels.pop_back();
      continue;
    }
    const auto& child = level.module->children_[level.next_child++];
    if (!seen.insert(child.value().get()).second) continue;
    const size_t name_above = name.size();
    name += (name.empty() ? "" : ".") + child.key();
    visit(name, *child.value());
    levels.push_back({child.value().get(), 0, name_above});
  }
}

/// Returns the tensors in `entries` (parameters_ or buffers_) of this module and, if `recurse`, of its submodules.
StateDict Module::named_tensors(StateDict Module::*entries, bool recurse) const {
  StateDict found;
  const auto add_entries = [&](const std::string& prefix, const Module& module) {
    for (const auto& item : module.*entries) {
      const auto is_same = [&](const auto& other) { return other->is_same(item.value()); };
      if (item->defined() && std::ranges::none_of(found, is_same))
        found.append(join_name(prefix, item.key()), item.value());
    }
  };
  if (recurse) visit_modules("", add_entries);
  else add_entries("", *this);
  return found;
}

NamedModules Module::named_modules(const std::string& name_prefix, bool include_self) const {
  NamedModules found;
  visit_modules(name_prefix, [&](const std::string& name, const Module& module) {
    if (&module == this && !include_self) return;
    std::shared_ptr<const Module> shared = module.weak_from_this().lock();
    GRADUS_CHECK(shared, ValueError, "modules() needs a module that is held by a shared_ptr: make ", this->name(),
                 " with std::make_shared, or list with include_self = false");
    found.append(name, std::const_pointer_cast<Module>(std::move(shared)));
  });
  return found;
}

int64_t Module::num_parameters(bool only_trainable) const {
  int64_t count = 0;
  for (const Tensor& parameter : parameters())
    if (!only_trainable || parameter.requires_grad()) count += parameter.numel();
  return count;
}

// ---- Mode ----

void Module::train(bool on) {
  for (auto& child : children_) child.value()->train(on);
  is_training_ = on;
}

void Module::zero_grad(bool set_to_none) {
  for (const Tensor& parameter : parameters()) parameter.zero_grad(set_to_none);
}

void Module::apply(const std::function<void(Module&)>& function) {
  visit_modules("", [&](const std::string&, const Module& module) { function(const_cast<Module&>(module)); });
}

void Module::apply(const std::function<void(const std::shared_ptr<Module>&)>& function) {
  std::ranges::for_each(modules(), function);
}

void Module::apply(const std::function<void(const std::string&, Module&)>& function, const std::string& name_prefix) {
  visit_modules(name_prefix,
                [&](const std::string& name, const Module& module) { function(name, const_cast<Module&>(module)); });
}

void Module::apply(const std::function<void(const Module&)>& function) const {
  visit_modules("", [&](const std::string&, const Module& module) { function(module); });
}

void Module::apply(const std::function<void(const std::string&, const Module&)>& function,
                   const std::string& name_prefix) const {
  visit_modules(name_prefix, function);
}

void Module::apply(const std::function<void(const std::string&, const std::shared_ptr<Module>&)>& function,
                   const std::string& name_prefix) {
  for (const auto& item : named_modules(name_prefix)) function(item.key(), item.value());
}

// ---- Moving ----

/// Replaces the data of every parameter, its gradient and every buffer by convert(tensor).
template <class Convert>
void Module::convert_tensors(Convert&& convert) {
  NoGradGuard no_grad;
  for (const Tensor& parameter : parameters()) {
    const Tensor gradient = parameter.grad();
    if (gradient.defined()) parameter.mutable_grad() = Tensor();
    parameter.set_data(convert(parameter));
    if (gradient.defined()) parameter.mutable_grad() = convert(gradient);
  }
  for (const Tensor& buffer : buffers()) buffer.set_data(convert(buffer));
}

void Module::convert(std::optional<Device> device, std::optional<DType> dtype, bool non_blocking) {
  GRADUS_CHECK(!dtype || is_floating(*dtype), DTypeError, "a module's parameters need a floating type, got ", *dtype);
  convert_tensors([&](const Tensor& tensor) {
    const DType type = dtype && tensor.is_floating_point() ? *dtype : tensor.dtype();
    return tensor.to(device.value_or(tensor.device()), type, non_blocking, false, Loc{});
  });
}

void Module::to(MemoryFormat format) {
  convert_tensors([&](const Tensor& tensor) { return tensor.dim() == 4 ? tensor.to(format) : tensor; });
}

// ---- Names and printing ----

std::string Module::name() const { return own_name_.empty() ? platform::demangled(typeid(*this)) : own_name_; }

std::string Module::path() const {
  std::vector<const Module*> modules;  // from this one to the root's child
  for (const Module* module = this; module->parent_; module = module->parent_) modules.push_back(module);
  std::string path;
  for (auto module = modules.rbegin(); module != modules.rend(); ++module) {
    if (!path.empty()) path += '.';
    path += (*module)->name_in_parent_;
  }
  return path;
}

std::string Module::path_of(const void* module) { return static_cast<const Module*>(module)->path(); }

void Module::pretty_print(std::ostream& stream) const { stream << name(); }

void Module::print_tree(std::ostream& stream, const std::string& indentation) const {
  pretty_print(stream);
  if (children_.is_empty()) return;
  const std::string deeper = indentation + "  ";
  stream << "(\n";
  for (const auto& child : children_) {
    stream << deeper << "(" << child.key() << "): ";
    child.value()->print_tree(stream, deeper);
    stream << "\n";
  }
  stream << indentation << ")";
}

std::ostream& operator<<(std::ostream& stream, const Module& module) {
  module.print_tree(stream, "");
  return stream;
}

}  // namespace gradus::nn
