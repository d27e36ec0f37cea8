// Conversion of modules to state dicts and back.
#include <set>

#include <gradus/layers/module/module.h>
#include <gradus/layers/norm.h>

namespace gradus::nn {

StateDict Module::state_dict() const {
  StateDict state("Key");
  auto walk = [&](auto&& self, const std::string& prefix, const Module& module) -> void {
    for (const auto* tensors : {&module.parameters_, &module.buffers_})
      for (const auto& item : *tensors)
        if (item->defined()) state.append(prefix + item.key(), item->detach());
    for (const auto& child : module.children_) self(self, prefix + child.key() + ".", *child.value());
  };
  walk(walk, "", *this);
  return state;
}

namespace {

/// True if two tensors are the same view of the same memory, as tied parameters are.
bool tied(const Tensor& a, const Tensor& b) {
  return a.array().storage() == b.array().storage() && a.storage_offset() == b.storage_offset() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

gradus::detail::Message listed(const std::vector<std::string>& keys) {
  gradus::detail::Message text;
  for (const std::string& key : keys) text << (text.empty() ? "'" : ", '") << key << "'";
  return text;
}

/// True for a buffer that a state may lack. PyTorch before 0.4.1 had no num_batches_tracked.
bool is_optional(const Module& module, const std::string& buffer) {
  return buffer == "num_batches_tracked" && (dynamic_cast<const detail::NormBase<BatchNormOptions>*>(&module) ||
                                             dynamic_cast<const detail::NormBase<InstanceNormOptions>*>(&module));
}

}  // namespace

IncompatibleKeys Module::load_state_dict(const StateDict& state, bool strict) {
  const StateDict own = state_dict();
  IncompatibleKeys keys;
  gradus::detail::Message problems, wrong_sizes;
  std::set<std::string> optional;
  const auto walk = [&](const auto& self, const std::string& prefix, const Module& module) -> void {
    for (const auto& buffer : module.buffers_)
      if (is_optional(module, buffer.key())) optional.insert(prefix + buffer.key());
    for (const auto& child : module.children_) self(self, prefix + child.key() + ".", *child.value());
  };
  walk(walk, "", *this);
  for (const auto& item : own) {
    const Tensor* source = state.find(item.key());
    if (!source) {
      // A file may contain a tied tensor under only one of its names.
      bool provided = optional.contains(item.key());
      for (const auto& other : own) provided = provided || (state.contains(other.key()) && tied(*item, *other));
      if (!provided) keys.missing_keys.push_back(item.key());
    } else if (!source->defined() || source->sizes() != item->sizes()) {
      wrong_sizes << "\n  '" << item.key() << "': the state has "
                  << (source->defined() ? to_string(source->sizes()) : std::string("no tensor")) << ", the module "
                  << item->sizes();
    }
  }
  for (const auto& item : state)
    if (!own.contains(item.key())) keys.unexpected_keys.push_back(item.key());

  if (strict && !keys.missing_keys.empty()) problems << "\n  missing keys: " << listed(keys.missing_keys);
  if (strict && !keys.unexpected_keys.empty()) problems << "\n  unexpected keys: " << listed(keys.unexpected_keys);
  GRADUS_CHECK(wrong_sizes.empty(), ShapeError, "the state does not fit ", name(), ":", problems, wrong_sizes);
  GRADUS_CHECK(problems.empty(), ValueError, "the state does not fit ", name(), ":", problems,
               "\n(strict = false loads the keys that both have)");

  NoGradGuard no_grad;
  for (const auto& item : own)
    if (const Tensor* source = state.find(item.key())) item->copy_(*source);
  return keys;
}

}  // namespace gradus::nn
