#include <gradus/core/io/array_bytes.h>

#include <gradus/core/ops/ops.h>

namespace gradus::io {

Array contiguous_on_cpu(const Array& x) { return ops::to_device(ops::contiguous(x), kCPU); }

std::optional<uint64_t> byte_count(const Shape& shape, DType dtype) {
  int64_t product = static_cast<int64_t>(size_of(dtype));
  bool empty = false;
  for (int64_t size : shape) {
    empty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return empty ? 0 : static_cast<uint64_t>(product);
}

void check_booleans(const Array& x, const std::string& what) {
  if (x.dtype() != DType::boolean) return;
  const uint8_t* bytes = static_cast<const uint8_t*>(x.data());
  for (int64_t i = 0; i < x.numel(); ++i)
    GRADUS_CHECK(bytes[i] <= 1, IoError, what, ": element ", i, " of a boolean array is ", bytes[i],
                 ", neither 0 nor 1");
}

}  // namespace gradus::io
