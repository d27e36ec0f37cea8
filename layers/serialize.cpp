#include <gradus/layers/serialize.h>

#include <gradus/core/io/safetensors.h>

namespace gradus::nn {

namespace {
constexpr std::string_view kTied = "tied.";
}  // namespace

void save(const Module& module, const std::string& path) {
  const OpContext context("save");
  std::vector<std::pair<std::string, Array>> stored;
  io::Metadata metadata{{"format", "gradus"}};
  for (const auto& item : module.state_dict()) {
    const Array& array = item->array();
    const std::string* first = nullptr;
    for (const auto& [name, other] : stored)
      if (other.storage() == array.storage() && other.offset() == array.offset() && other.shape() == array.shape() &&
          other.strides() == array.strides() && array.numel() > 0)
        first = &name;
    if (first) metadata[std::string(kTied) + item.key()] = *first;
    else stored.emplace_back(item.key(), array);
  }
  io::save_safetensors(path, stored, metadata);
}

IncompatibleKeys load(Module& module, const std::string& path, bool strict) {
  const OpContext context("load");
  const io::Safetensors file = io::load_safetensors_with_metadata(path);
  StateDict state("Key");
  for (const auto& [name, array] : file.tensors) state.append(name, Tensor(array));
  for (const auto& [key, name] : file.metadata) {
    if (!key.starts_with(kTied)) continue;
    const auto stored = file.tensors.find(name);
    GRADUS_CHECK(stored != file.tensors.end(), IoError, "'", path, "' ties '", key.substr(kTied.size()), "' to '", name,
                 "', which it does not hold");
    state.insert(key.substr(kTied.size()), Tensor(stored->second));
  }
  return module.load_state_dict(state, strict);
}

}  // namespace gradus::nn
