// Modules to files and back, as safetensors with PyTorch's parameter names.
//
// A file goes both ways between here and PyTorch: safetensors.torch.load_model, load_file and save_model, save_file.
// Where several names stand for one tensor (tied weights), it is stored once, as save_model does: under the name that
// comes first in the alphabet, with a line "other name": "stored name" of metadata for each of the others.
#pragma once

#include <gradus/core/io/safetensors.h>
#include <gradus/layers/module.h>

namespace gradus {
namespace nn {

/// Writes parameters and buffers. A crash leaves the old file or the new one.
void save_safetensors(const Module& module, const std::string& path);
/// Copies a file's tensors into the module's parameters and buffers, converted to their types. A tied tensor may stand
/// in the file under any of its names, or under each. Errors as of load_state_dict and io::load_safetensors; they leave
/// the module as it was.
IncompatibleKeys load_safetensors(Module& module, const std::string& path, bool strict = true);

/// The same under the names torch::save and torch::load have.
inline void save(const Module& module, const std::string& path) { save_safetensors(module, path); }
inline IncompatibleKeys load(Module& module, const std::string& path, bool strict = true) {
  return load_safetensors(module, path, strict);
}

template <class M>
void save(const std::shared_ptr<M>& module, const std::string& path) {
  save_safetensors(static_cast<const Module&>(*module), path);
}
template <class M>
void save(const ModuleHolder<M>& module, const std::string& path) {
  save_safetensors(static_cast<const Module&>(*module), path);
}
template <class M>
IncompatibleKeys load(const std::shared_ptr<M>& module, const std::string& path, bool strict = true) {
  return load_safetensors(static_cast<Module&>(*module), path, strict);
}
template <class M>
IncompatibleKeys load(const ModuleHolder<M>& module, const std::string& path, bool strict = true) {
  return load_safetensors(static_cast<Module&>(*module), path, strict);
}

namespace detail {

/// Detached tensors in memory of their own.
StateDict copy_of(const StateDict& state);
/// Adds the tensors of `state` to what a file will hold, each name after `prefix`; tied ones as told above.
void store_state(const StateDict& state, const std::string& prefix, std::vector<std::pair<std::string, Array>>& tensors,
                 io::Metadata& metadata);
/// The tensors of a file whose names begin with `prefix`, without it, and those that its metadata ties to them (where
/// `own` is given, the ones named there: the metadata of other programs may say anything).
StateDict stored_state(const io::Safetensors& file, const std::string& prefix, const StateDict* own = nullptr);

}  // namespace detail
}  // namespace nn

using nn::load;
using nn::load_safetensors;
using nn::save;
using nn::save_safetensors;

}  // namespace gradus
