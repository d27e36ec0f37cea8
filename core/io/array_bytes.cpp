#include <gradus/core/io/array_bytes.h>

#include <gradus/core/registry.h>

namespace gradus::io {

Array contiguous_on_cpu(const Array& x) {
  Array dense = x;
  if (!x.is_contiguous()) {
    dense = Array::empty(x.shape(), x.dtype(), x.device());
    current_backend(x.device().type()).copy(x, dense);
  }
  if (dense.device().is_cpu()) return dense;
  const Array host = Array::empty(dense.shape(), dense.dtype());
  runtime(dense.device().type())
      .copy(host.data(), host.device(), dense.data(), dense.device(), dense.nbytes(), /*non_blocking=*/false);
  return host;
}

void check_booleans(const Array& x, const std::string& what) {
  if (x.dtype() != DType::boolean) return;
  const uint8_t* bytes = static_cast<const uint8_t*>(x.data());
  for (int64_t i = 0; i < x.numel(); ++i)
    GRADUS_CHECK(bytes[i] <= 1, IoError, what, ": element ", i, " of a boolean array is ", bytes[i],
                 ", neither 0 nor 1");
}

}  // namespace gradus::io
