// The JSON header of a safetensors file. Internal to core/io.
#pragma once

#include <gradus/core/io/safetensors.h>

namespace gradus::io {

/// Where one tensor lies; offsets count from the end of the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  uint64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in order of their offsets
  Metadata metadata;
};

/// Parses and checks a header: known dtypes, sizes that fit the shapes, and offsets that cover `data_bytes` bytes
/// exactly once.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& file);

/// The header of a file; reads no tensor.
SafetensorsHeader read_safetensors_header(const std::string& path);

/// The header of `entries`, padded with spaces so that the data begins at a multiple of 8.
std::string write_safetensors_header(const std::vector<SafetensorsEntry>& entries, const Metadata& metadata);

/// Order of dtypes in files that the reference implementation writes: the widest first.
int safetensors_rank(DType dtype);

}  // namespace gradus::io
