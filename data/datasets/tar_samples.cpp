// Encoding and decoding of the samples of tar shards.
#include <algorithm>
#include <charconv>
#include <cstdio>

#include <gradus/autograd/ops/creation.h>
#include <gradus/core/io/png.h>
#include <gradus/data/datasets/csv.h>
#include <gradus/data/datasets/tar_shards.h>
#include <gradus/data/images/image_file.h>

namespace gradus::data {
namespace {

std::string padded(size_t number, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%0*zu", digits, number);
  return text;
}

io::Bytes png_of(const Tensor& image) {
  GRADUS_CHECK(image.dim() == 3 && image.dtype() == DType::f32, ShapeError,
               "tar shards are made of images (C, H, W) float32, got ", image.dtype(), " of shape ", image.sizes());
  const Tensor pixels = (image.detach().cpu().clamp(0, 1) * 255 + 0.5).to(kByte).permute({1, 2, 0}).contiguous();
  const auto* const bytes = static_cast<const std::byte*>(pixels.data_ptr());  // (H, W, C)
  return io::encode_png({bytes, static_cast<size_t>(pixels.numel())}, pixels.size(0), pixels.size(1), pixels.size(2));
}

// Parses a class as Python's int() does: digits with an optional sign, and spaces around them.
int64_t integer_of(std::string_view field, const std::string& name) {
  const std::string_view text = detail::bare_number(field);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  GRADUS_CHECK(error == std::errc() && end == text.data() + text.size(), IoError, "'", name, "': the field cls, '",
               field.substr(0, 40), "', is not an integer");
  return number;
}

}  // namespace

Example<> decode_image_and_class(const TarSample& sample) {
  const std::string name = sample.shard + "': '" + sample.key;
  const io::Bytes* image = nullptr;
  for (const char* extension : {"png", "jpg", "jpeg"})
    if (const auto found = sample.fields.find(extension); found != sample.fields.end()) image = &found->second;
  const auto label = sample.fields.find("cls");
  GRADUS_CHECK(image && label != sample.fields.end(), IoError, "'", name,
               "' needs a field png, jpg or jpeg, and a field cls");
  const std::string_view text(reinterpret_cast<const char*>(label->second.data()), label->second.size());
  const int64_t number = integer_of(text, name);
  return {unit_floats(decode_image(*image, name)), tensor(number)};
}

void write_tar_shards(datasets::AnyDataset<> images, const std::vector<std::string>& folders,
                      size_t samples_per_shard) {
  const std::optional<size_t> size = images.size();
  GRADUS_CHECK(size && !folders.empty() && samples_per_shard > 0, ValueError,
               "write_tar_shards needs a data set whose size is known, a folder and samples for each shard");
  for (size_t shard = 0; shard * samples_per_shard < *size; ++shard) {
    io::TarWriter tar(folders[shard % folders.size()] + "/shard-" + padded(shard, 6) + ".tar");
    const size_t end = std::min(*size, (shard + 1) * samples_per_shard);
    for (size_t i = shard * samples_per_shard; i < end; ++i) {
      const Example<> sample = images.get(i);
      tar.add(padded(i, 8) + ".png", png_of(sample.data));
      tar.add(padded(i, 8) + ".cls", std::to_string(sample.target.item<int64_t>()));
    }
    tar.commit();
  }
}

}  // namespace gradus::data
