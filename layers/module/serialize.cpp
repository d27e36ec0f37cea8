#include <gradus/layers/module/serialize.h>

#include <algorithm>

#include <gradus/autograd/archive.h>
#include <gradus/autograd/ops/creation.h>

namespace gradus::nn {

namespace {

/// True if two arrays refer to the same elements in the same order.
bool same_elements(const Array& a, const Array& b) {
  return a.storage() == b.storage() && a.offset() == b.offset() && a.shape() == b.shape() &&
         a.strides() == b.strides() && a.dtype() == b.dtype();
}

}  // namespace

StateDict detail::copy_of(const StateDict& state) {
  const NoGradGuard no_grad;
  StateDict copy(state.key_description());
  for (const auto& item : state) copy.append(item.key(), item->detach().clone());
  return copy;
}

void detail::store_state(const StateDict& state, const std::string& prefix,
                         std::vector<std::pair<std::string, Array>>& tensors, io::Metadata& metadata) {
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
  std::vector<std::pair<std::string, Array>> tensors;
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
