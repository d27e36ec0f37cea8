// Whatever the bytes, the parser of safetensors files returns or throws an IoError.
#include <gradus/core/io/safetensors.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gradus::io::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    gradus::io::parse_safetensors(bytes, "fuzz");
  } catch (const gradus::IoError&) {}
  return 0;
}
