#include <gradus/core/ops/ops.h>

#include <algorithm>

namespace gradus::ops {

Array reshape(const Array& x, const Shape& wanted) {
  const Shape shape = infer_shape(wanted, x.numel(), x.shape());
  Strides strides;
  if (x.view_strides(shape, &strides)) return Array(x.storage(), x.offset(), shape, strides, x.dtype());
  return contiguous(x).view(shape);
}

Array cat(const std::vector<Array>& arrays, int64_t axis) {
  GRADUS_CHECK(!arrays.empty(), ValueError, "needs at least one tensor");
  const auto joins_anything = [](const Array& array) { return array.shape() == Shape{0}; };
  const auto found = std::ranges::find_if_not(arrays, joins_anything);
  const Array& first = found == arrays.end() ? arrays[0] : *found;
  GRADUS_CHECK(first.ndim() > 0, ShapeError, "scalars cannot be joined: use stack");
  const int at = joins_anything(first) ? 0 : normalize_axis(axis, first.ndim());
  Shape shape = first.shape();
  DType dtype = first.dtype();
  shape[at] = 0;
  for (size_t i = 0; i < arrays.size(); ++i) {
    check_same_device({&first, &arrays[i]});
    dtype = promote_types(dtype, arrays[i].dtype());
    if (joins_anything(arrays[i])) continue;
    Shape expected = first.shape();
    if (arrays[i].ndim() == first.ndim()) expected[at] = arrays[i].shape()[at];
    GRADUS_CHECK(arrays[i].shape() == expected, ShapeError, "tensor ", i, " of shape ", arrays[i].shape(),
                 " does not join ", first.shape(), " along dimension ", at, ": the other sizes must agree");
    shape[at] = checked_sum(shape[at], arrays[i].shape()[at]);
  }
  Array y = first.new_empty(shape, dtype, shape.size() == 4 ? output_format(first) : MemoryFormat::contiguous);
  int64_t start = 0;
  for (const Array& array : arrays) {
    if (joins_anything(array)) continue;
    const int64_t end = start + array.shape()[at];
    copy_into(y.slice(at, start, end), array);
    start = end;
  }
  return y;
}

}  // namespace gradus::ops
