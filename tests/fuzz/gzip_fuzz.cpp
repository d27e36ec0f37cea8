// Whatever the bytes, the parser of gzip files returns or throws an IoError.
#include <gradus/core/io/file.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gradus::io::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    gradus::io::gunzip(bytes, "fuzz", 1 << 20);
  } catch (const gradus::IoError&) {}
  return 0;
}
