// Archives hold named tensors in memory until they are written to a file or a stream in the safetensors format. The
// classes follow torch::serialize.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/core/io/safetensors.h>

namespace gradus::serialize {

/// An archive to write to. A nested archive written under `key` prefixes its names with "key.".
///   serialize::OutputArchive archive;
///   archive.write("epoch", tensor(epoch));
///   net->save(archive);
///   archive.save_to("net.safetensors");
class OutputArchive {
 public:
  using Writer = std::function<size_t(const void* bytes, size_t count)>;  // returns how many bytes it wrote

  /// Adds a tensor. Writing one name twice is a ValueError, which save_to() throws. `is_buffer` has no effect; it
  /// exists because LibTorch has it.
  void write(const std::string& key, const Tensor& tensor, bool is_buffer = false);
  void write(const std::string& key, const OutputArchive& nested);
  /// Writes the archive to a file. If this fails, the old file remains intact.
  void save_to(const std::string& path) const;
  /// Writes the bytes of such a file to a stream.
  void save_to(std::ostream& stream) const;
  /// Passes the bytes of such a file to `writer` in one call. Throws an IoError if `writer` returns a smaller number.
  void save_to(const Writer& writer) const;

  /// What will be written to the file. Tied tensors are stored as layers/module/serialize.h describes.
  io::NamedArrays tensors;
  io::Metadata metadata{{"format", "pt"}};
};

/// Reads files that gradus or PyTorch's safetensors wrote. Throws the same errors as io::load_safetensors.
class InputArchive {
 public:
  using Reader = std::function<size_t(uint64_t position, void* bytes, size_t count)>;  // returns how many bytes it read

  /// try_read() and read() will place tensors on `device`, by default on the CPU.
  void load_from(const std::string& path, std::optional<Device> device = {});
  void load_from(std::istream& stream, std::optional<Device> device = {});
  void load_from(const char* bytes, size_t count, std::optional<Device> device = {});
  void load_from(const Reader& reader, const std::function<size_t()>& size, std::optional<Device> device = {});

  /// Reads the tensor named `key`. If `tensor` is defined, its data are replaced by set_data(), so that all handles of
  /// that tensor see the new data. Returns false if the archive has no such tensor.
  bool try_read(const std::string& key, Tensor& tensor, bool is_buffer = false) const;
  /// Like try_read, but throws an IoError if the archive has no such tensor.
  void read(const std::string& key, Tensor& tensor, bool is_buffer = false) const;
  /// Makes `nested` the part of the archive whose names begin with "key.". Returns false if there is no such name.
  bool try_read(const std::string& key, InputArchive& nested) const;
  /// Like try_read, but throws an IoError if there is no such name.
  void read(const std::string& key, InputArchive& nested) const;
  /// The names of this archive up to their first dot, in alphabetical order: names of tensors and of nested archives.
  std::vector<std::string> keys() const;

  /// The whole file, even if this archive is nested in it.
  const io::Safetensors& file() const { return *file_; }
  /// The beginning of this archive's names in the file: "", or "key." for a nested archive.
  const std::string& prefix() const { return prefix_; }

 private:
  std::shared_ptr<const io::Safetensors> file_ = std::make_shared<io::Safetensors>();
  std::string prefix_;
  std::optional<Device> device_;
};

}  // namespace gradus::serialize
