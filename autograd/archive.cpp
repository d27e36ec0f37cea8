#include <gradus/autograd/archive.h>

#include <istream>
#include <iterator>
#include <ostream>
#include <span>

namespace gradus::serialize {

void OutputArchive::write(const std::string& key, const Tensor& tensor, bool /*is_buffer*/) {
  GRADUS_CHECK(tensor.defined(), ValueError, "an archive got an undefined tensor for '", key, "'");
  tensors.emplace_back(key, tensor.array());
}

void OutputArchive::write(const std::string& key, const OutputArchive& nested) {
  for (const auto& [name, array] : nested.tensors) tensors.emplace_back(key + "." + name, array);
  for (const auto& [name, stored] : nested.metadata)
    if (name != "format") metadata[key + "." + name] = key + "." + stored;
}

void OutputArchive::save_to(const std::string& path) const { io::save_safetensors(path, tensors, metadata); }

void OutputArchive::save_to(std::ostream& stream) const {
  const io::Bytes bytes = io::format_safetensors(tensors, metadata);
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  GRADUS_CHECK(stream, IoError, "could not write an archive of ", bytes.size(), " bytes to the stream");
}

void OutputArchive::save_to(const Writer& writer) const {
  const io::Bytes bytes = io::format_safetensors(tensors, metadata);
  const size_t taken = writer(bytes.data(), bytes.size());
  GRADUS_CHECK(taken == bytes.size(), IoError, "an archive has ", bytes.size(), " bytes, but only ", taken,
               " were written");
}

void InputArchive::load_from(const std::string& path, std::optional<Device> device) {
  file_ = std::make_shared<io::Safetensors>(io::load_safetensors_with_metadata(path));
  prefix_.clear();
  device_ = device;
}

void InputArchive::load_from(std::istream& stream, std::optional<Device> device) {
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  load_from(text.data(), text.size(), device);
}

void InputArchive::load_from(const char* bytes, size_t count, std::optional<Device> device) {
  file_ =
      std::make_shared<io::Safetensors>(io::parse_safetensors(std::as_bytes(std::span(bytes, count)), "the archive"));
  prefix_.clear();
  device_ = device;
}

void InputArchive::load_from(const Reader& reader, const std::function<size_t()>& size, std::optional<Device> device) {
  std::string text(size(), '\0');
  const size_t given = reader(0, text.data(), text.size());
  GRADUS_CHECK(given == text.size(), IoError, "an archive has ", text.size(), " bytes, but only ", given, " were read");
  load_from(text.data(), text.size(), device);
}

bool InputArchive::try_read(const std::string& key, Tensor& tensor, bool /*is_buffer*/) const {
  auto found = file_->tensors.find(prefix_ + key);
  if (found == file_->tensors.end())
    if (const auto tied = file_->metadata.find(prefix_ + key); tied != file_->metadata.end())
      found = file_->tensors.find(tied->second);
  if (found == file_->tensors.end()) return false;
  const Tensor stored = Tensor(found->second).to(device_.value_or(Device()));
  if (tensor.defined()) tensor.set_data(stored);
  else tensor = stored;
  return true;
}

void InputArchive::read(const std::string& key, Tensor& tensor, bool is_buffer) const {
  GRADUS_CHECK(try_read(key, tensor, is_buffer), IoError, "the archive contains no tensor '", prefix_, key, "'");
}

bool InputArchive::try_read(const std::string& key, InputArchive& nested) const {
  const std::string prefix = prefix_ + key + ".";
  const auto found = file_->tensors.lower_bound(prefix);
  if (found == file_->tensors.end() || !found->first.starts_with(prefix)) return false;
  nested.file_ = file_;
  nested.device_ = device_;
  nested.prefix_ = prefix;
  return true;
}

void InputArchive::read(const std::string& key, InputArchive& nested) const {
  GRADUS_CHECK(try_read(key, nested), IoError, "the archive contains no name below '", prefix_, key, "'");
}

std::vector<std::string> InputArchive::keys() const {
  std::vector<std::string> keys;
  for (const auto& [name, array] : file_->tensors) {
    if (!name.starts_with(prefix_)) continue;
    std::string key = name.substr(prefix_.size());
    key = key.substr(0, key.find('.'));
    if (keys.empty() || keys.back() != key) keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace gradus::serialize
