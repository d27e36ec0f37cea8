#include <gradus/core/io/safetensors.h>

#include <algorithm>
#include <cstring>

#include <gradus/core/io/array_bytes.h>
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/file_kind.h>
#include <gradus/core/io/safetensors_header.h>

namespace gradus::io {
namespace {

constexpr uint64_t kPrefixBytes = 8;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the reference implementation's limit

// Length of the header, from the first bytes of a file of `file_bytes` bytes.
uint64_t header_length(ByteSpan start, uint64_t file_bytes, const std::string& name) {
  const bool has_header = start.size() > kPrefixBytes && start[kPrefixBytes] == std::byte{'{'};
  const std::string kind = has_header ? "" : described(start);
  GRADUS_CHECK(kind.empty(), IoError, "'", name, "' is not a safetensors file", kind);
  GRADUS_CHECK(file_bytes >= kPrefixBytes, IoError, "'", name, "' is not a safetensors file: it has ", file_bytes,
               " bytes, fewer than the 8 of the header's length");
  const uint64_t length = read_little_endian<uint64_t>(start.data());
  GRADUS_CHECK(length <= kMostHeaderBytes, IoError, "'", name, "' is not a safetensors file: it announces a header of ",
               length, " bytes, at most ", kMostHeaderBytes, " are accepted");
  GRADUS_CHECK(length <= file_bytes - kPrefixBytes, IoError, "'", name, "' is truncated: the header has ", length,
               " bytes, the file ", file_bytes);
  return length;
}

// The tensors of a checked header; read(offset, to, bytes) reads their data.
template <class Read>
std::map<std::string, Array> read_tensors(const SafetensorsHeader& header, const std::string& name, const Read& read) {
  std::map<std::string, Array> tensors;
  for (const SafetensorsEntry& entry : header.entries) {
    const Array array = Array::empty(entry.shape, entry.dtype);
    read(entry.begin, array.data(), array.nbytes());
    convert_byte_order(array.data(), static_cast<size_t>(array.numel()), size_of(entry.dtype), std::endian::little);
    check_booleans(array, "'" + name + "': tensor '" + entry.name + "'");
    tensors.emplace(entry.name, array);
  }
  return tensors;
}

struct OpenSafetensors {
  InputFile file;
  uint64_t data_begin = 0;
  SafetensorsHeader header;

  explicit OpenSafetensors(const std::string& path) : file(path) {
    std::string json(header_length(file.start(kFileKindBytes), file.size(), path), '\0');
    file.read_at(kPrefixBytes, json.data(), json.size());
    data_begin = kPrefixBytes + json.size();
    header = parse_safetensors_header(json, file.size() - data_begin, path);
  }
};

}  // namespace

Safetensors load_safetensors_with_metadata(const std::string& path) {
  OpenSafetensors open(path);
  return {read_tensors(
              open.header, path,
              [&](uint64_t offset, void* to, size_t bytes) { open.file.read_at(open.data_begin + offset, to, bytes); }),
          std::move(open.header.metadata)};
}

std::map<std::string, Array> load_safetensors(const std::string& path) {
  return load_safetensors_with_metadata(path).tensors;
}

SafetensorsHeader read_safetensors_header(const std::string& path) { return OpenSafetensors(path).header; }

Metadata load_safetensors_metadata(const std::string& path) { return read_safetensors_header(path).metadata; }

Safetensors parse_safetensors(ByteSpan bytes, const std::string& name) {
  const uint64_t length = header_length(bytes.first(std::min(bytes.size(), kFileKindBytes)), bytes.size(), name);
  const std::string_view json(reinterpret_cast<const char*>(bytes.data() + kPrefixBytes), length);
  const ByteSpan data = bytes.subspan(kPrefixBytes + length);
  SafetensorsHeader header = parse_safetensors_header(json, data.size(), name);
  return {read_tensors(header, name,
                       [&](uint64_t offset, void* to, size_t count) {
                         if (count > 0) std::memcpy(to, data.data() + offset, count);
                       }),
          std::move(header.metadata)};
}

namespace {

/// Calls write(data, bytes) for one piece of the file after another.
template <class Write>
void write_safetensors(const std::vector<std::pair<std::string, Array>>& tensors, const Metadata& metadata,
                       const Write& write) {
  std::vector<const std::pair<std::string, Array>*> order;
  for (const auto& tensor : tensors) {
    GRADUS_CHECK(tensor.first != "__metadata__", ValueError, "a tensor cannot be named '__metadata__'");
    GRADUS_CHECK(tensor.second.defined(), ValueError, "tensor '", tensor.first, "' is undefined");
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    const int rank_a = safetensors_rank(a->second.dtype()), rank_b = safetensors_rank(b->second.dtype());
    return rank_a != rank_b ? rank_a < rank_b : a->first < b->first;
  });

  std::vector<SafetensorsEntry> entries;
  std::map<std::string, int> names;
  uint64_t offset = 0;
  for (const auto* tensor : order) {
    const auto& [name, array] = *tensor;
    GRADUS_CHECK(++names[name] == 1, ValueError, "two tensors are named '", name, "'");
    entries.push_back({name, array.dtype(), array.shape(), offset, offset + array.nbytes()});
    offset += array.nbytes();
  }
  const std::string header = write_safetensors_header(entries, metadata);
  std::byte prefix[kPrefixBytes];
  write_little_endian<uint64_t>(header.size(), prefix);

  write(prefix, kPrefixBytes);
  write(header.data(), header.size());
  for (const auto* tensor : order) {
    Array array = contiguous_on_cpu(tensor->second);
    if constexpr (std::endian::native != std::endian::little) {
      const Array swapped = Array::empty(array.shape(), array.dtype());
      if (array.nbytes() > 0) std::memcpy(swapped.data(), array.data(), array.nbytes());
      convert_byte_order(swapped.data(), static_cast<size_t>(swapped.numel()), size_of(swapped.dtype()),
                         std::endian::little);
      array = swapped;
    }
    write(array.data(), array.nbytes());
  }
}

}  // namespace

void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& tensors,
                      const Metadata& metadata) {
  AtomicFile file(path);
  write_safetensors(tensors, metadata, [&](const void* data, size_t bytes) { file.write(data, bytes); });
  file.commit();
}

std::vector<std::byte> format_safetensors(const std::vector<std::pair<std::string, Array>>& tensors,
                                          const Metadata& metadata) {
  std::vector<std::byte> file;
  write_safetensors(tensors, metadata, [&](const void* data, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    file.insert(file.end(), begin, begin + bytes);
  });
  return file;
}

}  // namespace gradus::io
