#include <gradus/core/ops/scan.h>

#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/layout.h>

namespace gradus::ops {

Array scan(ScanOp op, const Array& x, int axis, bool reverse, DType dtype) {
  const Array operand = is_floating(dtype) ? cast(x, dtype) : x;
  Array y = output_like(x.shape(), dtype, x.device(), {&x});
  if (y.numel() > 0) backend_of(x).scan(op, operand, axis, reverse, y);
  return y;
}

Array linear_recurrence(const Array& a, const Array& b, int axis, bool reverse) {
  Array y = output_like(b.shape(), b.dtype(), b.device(), {&b});
  if (y.numel() > 0) backend_of(b).linear_recurrence(a, b, axis, reverse, y);
  return y;
}

}  // namespace gradus::ops
