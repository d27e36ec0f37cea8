// Modules to files and back, as safetensors with PyTorch's parameter names.
#pragma once

#include <gradus/layers/module.h>

namespace gradus {
namespace nn {

/// Writes parameters and buffers (LibTorch's torch::save). Tied tensors are stored once, under their first name; the
/// metadata "tied.<other name>" tells the rest. A crash leaves the old file or the new one.
void save(const Module& module, const std::string& path);
/// Copies a file's tensors into the module's parameters and buffers (torch::load). Errors as load_state_dict and
/// io::load_safetensors; they leave the module as it was.
IncompatibleKeys load(Module& module, const std::string& path, bool strict = true);

template <class M>
void save(const std::shared_ptr<M>& module, const std::string& path) {
  save(static_cast<const Module&>(*module), path);
}
template <class M>
void save(const ModuleHolder<M>& module, const std::string& path) {
  save(static_cast<const Module&>(*module), path);
}
template <class M>
IncompatibleKeys load(const std::shared_ptr<M>& module, const std::string& path, bool strict = true) {
  return load(static_cast<Module&>(*module), path, strict);
}
template <class M>
IncompatibleKeys load(const ModuleHolder<M>& module, const std::string& path, bool strict = true) {
  return load(static_cast<Module&>(*module), path, strict);
}

}  // namespace nn

using nn::load;
using nn::save;

}  // namespace gradus
