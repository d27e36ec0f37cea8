// Conversion of modules to state dicts and back, and files that contain state dicts.
#include <gradus/layers/module/serialize.h>

#include <algorithm>
#include <map>

#include <gradus/autograd/archive.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/layers/norm.h>

namespace gradus::nn {

// ---- State dicts ----

namespace {

/// True if two arrays refer to the same elements in the same order, as tied parameters do.
bool same_elements(const Array& a, const Array& b) {
  return a.storage() == b.storage() && a.offset() == b.offset() && a.shape() == b.shape() &&
         a.strides() == b.strides() && a.dtype() == b.dtype();
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

void Module::collect_state(const std::string& prefix, StateDict& state, std::vector<std::string>& optional) const {
  for (const auto* tensors : {&parameters_, &buffers_})
    for (const auto& item : *tensors) {
      if (item->defined()) state.append(prefix + item.key(), item->detach());
      if (is_optional(*this, item.key())) optional.push_back(prefix + item.key());
    }
  for (const auto& child : children_) child.value()->collect_state(prefix + child.key() + ".", state, optional);
}

StateDict Module::state_dict() const {
  StateDict state("Key");
  std::vector<std::string> optional;
  collect_state("", state, optional);
  return state;
}

IncompatibleKeys Module::load_state_dict(const StateDict& state, bool strict) {
  StateDict own("Key");
  std::vector<std::string> optional;
  collect_state("", own, optional);
  IncompatibleKeys keys;
  gradus::detail::Message problems, wrong_sizes;
  for (const auto& item : own) {
    const Tensor* source = state.find(item.key());
    if (!source) {
      // A file may contain a tied tensor under only one of its names, so this key is not missing if another name of the
      // same tensor is present.
      bool provided = std::ranges::count(optional, item.key()) > 0;
      for (const auto& other : own)
        provided = provided || (state.contains(other.key()) && same_elements(item->array(), other->array()));
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

// ---- Files ----

StateDict detail::copy_of(const StateDict& state) {
  const NoGradGuard no_grad;
  StateDict copy(state.key_description());
  for (const auto& item : state) copy.append(item.key(), item->detach().clone());
  return copy;
}

void detail::store_state(const StateDict& state, const std::string& prefix, io::NamedArrays& tensors,
                         io::Metadata& metadata) {
  std::vector<std::string> names = state.keys();
  std::sort(names.begin(), names.end());
  std::map<const void*, std::vector<size_t>> stored;  // indices into `tensors` by address of the first element
  for (const std::string& name : names) {
    const Array& array = state[name].array();
    std::vector<size_t>& places = stored[array.data()];
    const auto same = std::find_if(places.begin(), places.end(),
                                   [&](size_t place) { return same_elements(tensors[place].second, array); });
    if (same != places.end() && array.numel() > 0) {
      metadata[prefix + name] = tensors[*same].first;
    } else {
      places.push_back(tensors.size());
      tensors.emplace_back(prefix + name, array);
    }
  }
}

StateDict detail::stored_state(const io::Safetensors& file, const std::string& prefix, const StateDict* own) {
  StateDict state("Key");
  for (const auto& [name, array] : file.tensors)
    if (name.starts_with(prefix)) state.append(name.substr(prefix.size()), Tensor(array));
  for (const auto& [name, stored_name] : file.metadata) {
    if (!name.starts_with(prefix) || file.tensors.contains(name)) continue;
    const auto stored = file.tensors.find(stored_name);
    const std::string key = name.substr(prefix.size());
    if (stored != file.tensors.end() && (!own || own->contains(key))) state.append(key, Tensor(stored->second));
  }
  return state;
}

void Module::save(serialize::OutputArchive& archive) const {
  detail::store_state(state_dict(), "", archive.tensors, archive.metadata);
}

void Module::load(serialize::InputArchive& archive) {
  const OpContext context("load");
  const StateDict own = state_dict();
  load_state_dict(detail::stored_state(archive.file(), archive.prefix(), &own));
}

void save_safetensors(const Module& module, const std::string& path) {
  const OpContext context("save");
  io::NamedArrays tensors;
  io::Metadata metadata{{"format", "pt"}};  // PyTorch's loaders need this entry
  detail::store_state(module.state_dict(), "", tensors, metadata);
  io::save_safetensors(path, tensors, metadata);
}

IncompatibleKeys load_safetensors(Module& module, const std::string& path, bool strict) {
  const OpContext context("load");
  const StateDict own = module.state_dict();
  return module.load_state_dict(detail::stored_state(io::load_safetensors_with_metadata(path), "", &own), strict);
}

}  // namespace gradus::nn
