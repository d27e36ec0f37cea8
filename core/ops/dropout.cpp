#include <gradus/core/ops/dropout.h>

namespace gradus::ops {

std::tuple<Array, Array> dropout(const Array& x, double p, Generator& generator) {
  check_floating(x, "input");
  GRADUS_CHECK(p >= 0 && p <= 1, ValueError, "dropout probability must be in [0, 1], got ", p);
  Array y = Array::empty_like(x), mask = Array::empty_like(x, DType::boolean);
  const RandomState state = generator.next();
  if (x.numel() > 0) backend_of(x).dropout(x, p, state, mask, y);
  return {y, mask};
}

Array dropout_backward(const Array& dy, const Array& mask, double p) {
  Array dx = Array::empty_like(mask, dy.dtype());
  if (dx.numel() > 0) backend_of(dy).dropout_backward(dy, mask, p, dx);
  return dx;
}

}  // namespace gradus::ops
