// Whatever the bytes, the decoder of PNG and JPEG files returns or throws an IoError. Checksums would keep noise from
// the decoder, so those of PNG chunks are set right first.
#include <zlib.h>

#include <vector>

#include <gradus/core/io/byte_order.h>
#include <gradus/data/images/image_file.h>

namespace {

void mend_checksums(std::vector<std::byte>& png) {
  using gradus::io::read_big_endian;
  for (size_t at = 8; at + 12 <= png.size();) {
    const size_t length = read_big_endian<uint32_t>(&png[at]);
    if (length > png.size() - at - 12) return;
    const auto sum = crc32(0, reinterpret_cast<const Bytef*>(&png[at + 4]), static_cast<uInt>(length + 4));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<std::byte>(sum >> (24 - 8 * i) & 0xff);
    at += 12 + length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> file(bytes, bytes + size);
  if (size > 8 && data[0] == 0x89) mend_checksums(file);
  try {
    gradus::data::decode_image(file, "fuzz", 1 << 16);
  } catch (const gradus::IoError&) {}
  return 0;
}
