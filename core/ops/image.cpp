#include <gradus/core/ops/image.h>

namespace gradus::ops {

Array rgb_to_grayscale(const Array& x) {
  check_floating(x, "input");
  GRADUS_CHECK(x.ndim() >= 3 && x.size(-3) == 3, ShapeError, "input must have shape (…, 3, H, W), got ", x.shape());
  Shape shape = x.shape();
  shape[x.ndim() - 3] = 1;
  Array y = Array::empty(shape, x.dtype(), x.device());
  if (y.numel() > 0) backend_of(x).rgb_to_grayscale(x, y);
  return y;
}

}  // namespace gradus::ops
