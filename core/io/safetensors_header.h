// The JSON header of a safetensors file. Internal to core/io.
#pragma once

#include <gradus/core/io/safetensors.h>

namespace gradus::io {

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

/// Parses and checks a header: dtypes must be known, sizes must match the shapes, and offsets must cover `data_bytes`
/// bytes exactly once.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& file);

/// The header of a file; no tensor is read.
SafetensorsHeader read_safetensors_header(const std::string& path);

/// Formats the header of `entries`, padded with spaces so that the data begins at a multiple of 8.
std::string write_safetensors_header(const std::vector<SafetensorsEntry>& entries, const Metadata& metadata);

/// Rank of a dtype in the order of the reference implementation's files: widest first.
int safetensors_rank(DType dtype);

}  // namespace gradus::io
