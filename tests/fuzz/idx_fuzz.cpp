// Whatever the bytes, the parser of idx files returns or throws an IoError.
#include <gradus/data/datasets/mnist.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gradus::io::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    gradus::data::parse_idx(bytes, "fuzz");
  } catch (const gradus::IoError&) {}
  return 0;
}
