// Saves and loads modules as safetensors with PyTorch's parameter names.
//
// Files can be exchanged with PyTorch in both directions: safetensors.torch.load_model, load_file, save_model and
// save_file. A tensor with several names (tied weights) is stored once, as save_model does: under the name that comes
// first in alphabetical order. For each other name, the metadata contain an entry "other name": "stored name".
#pragma once

#include <gradus/core/io/safetensors.h>
#include <gradus/layers/module/module.h>

namespace gradus {
namespace nn {

/// Writes parameters and buffers. If the process crashes meanwhile, the file has either its old or its new content.
void save_safetensors(const Module& module, const std::string& path);
/// Copies the tensors of a file into the module's parameters and buffers, converted to the types of these. A tied
/// tensor may be stored under any or all of its names. Throws the same errors as load_state_dict and
/// io::load_safetensors, in which case the module is not changed.
IncompatibleKeys load_safetensors(Module& module, const std::string& path, bool strict = true);

/// save_safetensors() and load_safetensors() under LibTorch's names.
inline void save(const Module& module, const std::string& path) { save_safetensors(module, path); }
inline IncompatibleKeys load(Module& module, const std::string& path, bool strict = true) {
  return load_safetensors(module, path, strict);
}

/// The same for a holder of a module, or a shared_ptr to it.
template <class Pointer>
requires requires(const Pointer& module) { static_cast<const Module&>(*module); }
void save(const Pointer& module, const std::string& path) { save_safetensors(*module, path); }
template <class Pointer>
requires requires(const Pointer& module) { static_cast<Module&>(*module); }
IncompatibleKeys load(const Pointer& module, const std::string& path, bool strict = true) {
  return load_safetensors(*module, path, strict);
}

namespace detail {

/// Returns detached copies of the tensors.
StateDict copy_of(const StateDict& state);
/// Adds the tensors of `state` to the content of a file, with `prefix` before each name. Tied tensors are stored once,
/// as described at the head of this file.
void store_state(const StateDict& state, const std::string& prefix, io::NamedArrays& tensors, io::Metadata& metadata);
/// Returns the tensors whose names begin with `prefix`, under names without the prefix, and the tensors that the
/// metadata tie to them. If `own` is given, entries of the metadata whose names are not in `own` are ignored, because
/// other programs may store arbitrary metadata.
StateDict stored_state(const io::Safetensors& file, const std::string& prefix, const StateDict* own = nullptr);

}  // namespace detail
}  // namespace nn

using nn::load, nn::load_safetensors, nn::save, nn::save_safetensors;

}  // namespace gradus
