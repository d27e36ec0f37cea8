// Archives: tensors under names, in memory until they go to a file or a stream, as safetensors. The classes follow
// torch::serialize.
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

/// What is to be saved. An archive written into another one has its names behind "key.".
///   serialize::OutputArchive archive;
///   archive.write("epoch", tensor(epoch));
///   net->save(archive);
///   archive.save_to("net.safetensors");
class OutputArchive {
 public:
  using Writer = std::function<size_t(const void* bytes, size_t count)>;  // returns how many it took

  /// A name that is there already is a ValueError when the archive is saved.
  void write(const std::string& key, const Tensor& tensor, bool is_buffer = false);
  void write(const std::string& key, const OutputArchive& nested);
  /// Writes all to a file: it is the old one or the new one, whatever happens.
  void save_to(const std::string& path) const;
  /// The same bytes to a stream, or to a function.
  void save_to(std::ostream& stream) const;
  /// Bytes that the function does not take are an IoError.
  void save_to(const Writer& writer) const;

  /// What the file will hold; tied tensors as layers/serialize.h tells.
  std::vector<std::pair<std::string, Array>> tensors;
  io::Metadata metadata{{"format", "pt"}};
};

/// What was saved, here or by PyTorch's safetensors. Errors as of io::load_safetensors.
class InputArchive {
 public:
  using Reader = std::function<size_t(uint64_t position, void* bytes, size_t count)>;  // returns how many it gave

  /// Tensors go to `device` when they are read.
  void load_from(const std::string& path, std::optional<Device> device = std::nullopt);
  void load_from(std::istream& stream, std::optional<Device> device = std::nullopt);
  void load_from(const char* bytes, size_t count, std::optional<Device> device = std::nullopt);
  void load_from(const Reader& reader, const std::function<size_t()>& size,
                 std::optional<Device> device = std::nullopt);

  /// The tensor of that name. One that is defined stays the same tensor and gets the numbers (set_data). False
  /// where there is none.
  bool try_read(const std::string& key, Tensor& tensor, bool is_buffer = false) const;
  /// An IoError where there is none.
  void read(const std::string& key, Tensor& tensor, bool is_buffer = false) const;
  /// The names behind "key.".
  bool try_read(const std::string& key, InputArchive& nested) const;
  /// An IoError where there are none.
  void read(const std::string& key, InputArchive& nested) const;
  /// Names of tensors and of what is nested, in the order of the alphabet.
  std::vector<std::string> keys() const;

  /// All that was loaded.
  const io::Safetensors& file() const { return *file_; }
  /// Of the names that belong to this archive: "" or "key.".
  const std::string& prefix() const { return prefix_; }

 private:
  std::shared_ptr<const io::Safetensors> file_ = std::make_shared<io::Safetensors>();
  std::string prefix_;
  std::optional<Device> device_;
};

}  // namespace gradus::serialize
