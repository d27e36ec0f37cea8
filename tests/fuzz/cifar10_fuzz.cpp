// Whatever the bytes, the parser of CIFAR-10 files returns or throws an IoError.
#include <gradus/data/datasets/cifar10_stl10.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gradus::io::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    gradus::data::parse_cifar10(bytes, "fuzz");
  } catch (const gradus::IoError&) {}
  return 0;
}
