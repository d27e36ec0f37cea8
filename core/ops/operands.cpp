#include <gradus/core/ops/ops.h>

namespace gradus::ops {

void check_same_device(std::initializer_list<const Array*> arrays) {
  const Array* first = nullptr;
  for (const Array* array : arrays) {
    if (!array->defined()) continue;
    if (!first) first = array;
    GRADUS_CHECK(array->device() == first->device(), DeviceError,
                 "arguments are on different devices: ", first->device(), " (shape ", first->shape(), ") and ",
                 array->device(), " (shape ", array->shape(), "); move one with .to(device)");
  }
}

void check_ndim(const Array& x, int ndim, const char* what, const char* layout) {
  GRADUS_CHECK(x.defined(), ValueError, what, " is undefined; it must have ", ndim, " dimensions ", layout);
  GRADUS_CHECK(x.ndim() == ndim, ShapeError, what, " must have ", ndim, " dimensions ", layout, ", got shape ",
               x.shape());
}

void check_floating(const Array& x, const char* what) {
  GRADUS_CHECK(is_floating(x.dtype()), DTypeError, what, " must be of a floating type, got ", x.dtype(),
               "; convert with .to(kFloat)");
}

void check_same_dtype(const Array& a, const char* name_a, const Array& b, const char* name_b) {
  GRADUS_CHECK(a.dtype() == b.dtype(), DTypeError, name_a, " is ", a.dtype(), " but ", name_b, " is ", b.dtype(),
               "; convert one with .to(dtype)");
}

void check_into(const Array& into, const Shape& shape, DType dtype) {
  GRADUS_CHECK(into.shape() == shape, ShapeError, "the result of shape ", shape,
               " cannot be written in place into a tensor of shape ", into.shape());
  const bool fits =
      is_floating(into.dtype()) || (!is_floating(dtype) && (into.dtype() != DType::boolean || dtype == DType::boolean));
  GRADUS_CHECK(fits, DTypeError, "the result of type ", dtype, " cannot be written in place into a tensor of ",
               into.dtype());
}

MemoryFormat output_format(const Array& x, const Array& weight) {
  const bool last = x.is_channels_last() || (weight.defined() && weight.is_channels_last());
  return last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

Array output_like(const Shape& shape, DType dtype, Device device, std::initializer_list<const Array*> operands) {
  for (const Array* x : operands) {
    if (!(x->shape() == shape) || !x->is_dense()) continue;
    const bool row_major = x->is_contiguous() && !x->is_channels_last();
    // An operand that is both row-major and channels-last does not tell which layout is wanted.
    if (row_major && x->is_contiguous(MemoryFormat::channels_last)) continue;
    if (row_major) break;
    return Array::empty_strided(shape, x->strides(), dtype, device);
  }
  return Array::empty(shape, dtype, device);
}

}  // namespace gradus::ops
