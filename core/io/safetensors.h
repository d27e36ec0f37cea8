// safetensors: the common safe format for weights. It holds only data, and loading it executes nothing.
//
//   8 bytes   N, little-endian
//   N bytes   JSON: {"__metadata__": {"key": "text"},
//                    "fc.weight": {"dtype": "F32", "shape": [10, 84], "data_offsets": [0, 3360]}, …}
//   the rest  the elements, row-major and little-endian; offsets count from here, in order, without gaps or overlaps
//
// Readers check every number against the size of the file before they allocate memory. For an invalid file they throw
// an IoError that names the file and the tensor; for a file of torch.save, NumPy, Keras or ONNX the message names the
// format and says how to convert the file. Offsets need not be aligned to the element size, because elements are copied
// out.
// Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/core/platform/file.h>

namespace gradus::io {

using Metadata = std::map<std::string, std::string>;
using NamedArrays = std::vector<std::pair<std::string, Array>>;  ///< arrays with their names, in any order

struct Safetensors {
  std::map<std::string, Array> tensors;
  Metadata metadata;
};

/// Loads the tensors of a file into CPU memory, and its metadata. dtypes: F32 F64 F16 BF16 I64 I32 U8 BOOL; others are
/// an IoError that names the dtype.
Safetensors load_safetensors_with_metadata(const std::string& path);
/// Loads only the tensors of a file.
inline std::map<std::string, Array> load_safetensors(const std::string& path) {
  return load_safetensors_with_metadata(path).tensors;
}
/// Parses a file in memory; `name` identifies it in messages.
Safetensors parse_safetensors(ByteSpan bytes, const std::string& name);

/// Writes a file that appears under its name only when complete (AtomicFile). The tensors have the order of the
/// reference implementation: widest dtype first, then by name. Arrays may have any strides and device. Throws a
/// ValueError for repeated names.
void save_safetensors(const std::string& path, const NamedArrays& tensors, const Metadata& metadata = {});
/// The bytes that save_safetensors would write.
Bytes format_safetensors(const NamedArrays& tensors, const Metadata& metadata = {});

/// Type and position of one tensor; offsets count from the end of the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  uint64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< sorted by offset
  Metadata metadata;
};

/// Reads only the header of a file.
SafetensorsHeader read_safetensors_header(const std::string& path);
/// Loads only the metadata of a file.
inline Metadata load_safetensors_metadata(const std::string& path) { return read_safetensors_header(path).metadata; }

}  // namespace gradus::io
