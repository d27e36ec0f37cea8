// safetensors, the field's safe format for weights: data only, nothing in it is executed.
//
//   8 bytes   N, little-endian
//   N bytes   JSON: {"__metadata__": {"key": "text"}, "fc.weight": {"dtype": "F32", "shape": [10, 84], "data_offsets": [0, 3360]}, …}
//   the rest  the elements, row-major and little-endian; offsets count from here, in order, without gaps or overlaps
//
// Every number is checked against the size of the file before anything is allocated: a wrong file is an IoError that
// names the file and the tensor; one of torch.save, NumPy, Keras or ONNX is told as such, with how to convert it.
// Offsets need not be aligned to the element size: elements are copied out.
// Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/core/io/file.h>

namespace gradus::io {

using Metadata = std::map<std::string, std::string>;

struct Safetensors {
  std::map<std::string, Array> tensors;
  Metadata metadata;
};

/// The tensors of a file, on the CPU. dtypes: F32 F64 F16 BF16 I64 I32 U8 BOOL; others are an IoError by name.
std::map<std::string, Array> load_safetensors(const std::string& path);
/// The same with the file's metadata.
Safetensors load_safetensors_with_metadata(const std::string& path);
/// The metadata alone; reads no tensor.
Metadata load_safetensors_metadata(const std::string& path);
/// A whole file in memory; `name` stands for it in messages.
Safetensors parse_safetensors(ByteSpan bytes, const std::string& name);

/// Writes all tensors at once (see AtomicFile), in the reference implementation's order: widest dtype first, then by
/// name. Arrays may have any strides and device. Repeated names are a ValueError.
void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& tensors,
                      const Metadata& metadata = {});
/// What that file would hold.
std::vector<std::byte> format_safetensors(const std::vector<std::pair<std::string, Array>>& tensors,
                                          const Metadata& metadata = {});

}  // namespace gradus::io
