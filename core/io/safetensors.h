// safetensors: the common safe format for weights. It holds only data, and loading it executes nothing.
//
//   8 bytes   N, little-endian
//   N bytes   JSON: {"__metadata__": {"key": "text"}, "fc.weight": {"dtype": "F32", "shape": [10, 84], "data_offsets": [0, 3360]}, …}
//   the rest  the elements, row-major and little-endian; offsets count from here, in order, without gaps or overlaps
//
// Every number is checked against the size of the file before anything is allocated. An invalid file is an IoError that
// names the file and the tensor; for a file of torch.save, NumPy, Keras or ONNX the message says so and how to convert
// it. Offsets need not be aligned to the element size, because elements are copied out.
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

struct Safetensors {
  std::map<std::string, Array> tensors;
  Metadata metadata;
};

/// Loads the tensors of a file into CPU memory. dtypes: F32 F64 F16 BF16 I64 I32 U8 BOOL; others are an IoError that
/// names the dtype.
std::map<std::string, Array> load_safetensors(const std::string& path);
/// Same, with the file's metadata.
Safetensors load_safetensors_with_metadata(const std::string& path);
/// The metadata alone; no tensor is read.
Metadata load_safetensors_metadata(const std::string& path);
/// Parses a file in memory; `name` identifies it in messages.
Safetensors parse_safetensors(ByteSpan bytes, const std::string& name);

/// Writes all tensors at once (AtomicFile) in the reference implementation's order: widest dtype first, then by name.
/// Arrays may have any strides and device. Throws a ValueError for repeated names.
void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& tensors,
                      const Metadata& metadata = {});
/// The bytes that save_safetensors would write.
std::vector<std::byte> format_safetensors(const std::vector<std::pair<std::string, Array>>& tensors,
                                          const Metadata& metadata = {});

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

/// The header of a file; no tensor is read.
SafetensorsHeader read_safetensors_header(const std::string& path);

}  // namespace gradus::io
