// Whatever the bytes, the parser of STL-10 files returns or throws an IoError. The first byte says how many of the last
// bytes are the file of labels.
#include <gradus/data/datasets/cifar10_stl10.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const gradus::io::ByteSpan bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  const size_t labels = std::min<size_t>(data[0], bytes.size());
  try {
    gradus::data::parse_stl10(bytes.first(bytes.size() - labels), bytes.last(labels), "fuzz");
  } catch (const gradus::IoError&) {}
  return 0;
}
