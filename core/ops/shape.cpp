#include <gradus/core/ops/shape.h>

#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/layout.h>

namespace gradus::ops {

Array reshape(const Array& x, const Shape& wanted) {
  const Shape shape = infer_shape(wanted, x.numel(), x.shape());
  Strides strides;
  if (x.view_strides(shape, &strides)) return Array(x.storage(), x.offset(), shape, strides, x.dtype());
  return contiguous(x).view(shape);
}

Array cat(const std::vector<Array>& arrays, int64_t axis) {
  GRADUS_CHECK(!arrays.empty(), ValueError, "needs at least one tensor");
  const Array& first = arrays[0];
  GRADUS_CHECK(first.ndim() > 0, ShapeError, "scalars cannot be joined: use stack");
  const int at = normalize_axis(axis, first.ndim());
  Shape shape = first.shape();
  DType dtype = first.dtype();
  for (size_t i = 1; i < arrays.size(); ++i) {
    check_same_device({&first, &arrays[i]});
    Shape expected = first.shape();
    if (arrays[i].ndim() == first.ndim()) expected[at] = arrays[i].shape()[at];
    GRADUS_CHECK(arrays[i].shape() == expected, ShapeError, "tensor ", i, " of shape ", arrays[i].shape(),
                 " does not join ", first.shape(), " along dimension ", at, ": the other sizes must agree");
    shape[at] += arrays[i].shape()[at];
    dtype = promote_types(dtype, arrays[i].dtype());
  }
  Array y =
      Array::empty(shape, dtype, first.device(), shape.size() == 4 ? output_format(first) : MemoryFormat::contiguous);
  int64_t start = 0;
  for (const Array& array : arrays) {
    const int64_t end = start + array.shape()[at];
    copy_into(y.slice(at, start, end), array);
    start = end;
  }
  return y;
}

}  // namespace gradus::ops
