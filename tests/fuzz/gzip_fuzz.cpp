// Whatever the bytes, the reader of gzip files returns or throws an IoError.
#include <gradus/core/io/gzip.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gradus::io::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    gradus::io::GzipReader reader(bytes, "fuzz");
    static std::byte unpacked[1 << 20];
    reader.read(unpacked, sizeof unpacked);
  } catch (const gradus::IoError&) {}
  return 0;
}
