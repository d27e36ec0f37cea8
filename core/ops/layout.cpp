#include <gradus/core/ops/layout.h>

namespace gradus::ops {

bool is_channels_last(const Array& x) {
  if (x.ndim() != 4 || x.shape()[1] <= 1) return false;
  const int64_t channel = x.strides()[1];
  if (x.shape()[3] > 1) return channel < x.strides()[3];
  return x.shape()[2] > 1 && channel < x.strides()[2];
}

MemoryFormat output_format(const Array& x, const Array& weight) {
  const bool last = is_channels_last(x) || (weight.defined() && is_channels_last(weight));
  return last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

Array output_like(const Shape& shape, DType dtype, Device device, std::initializer_list<const Array*> operands) {
  for (const Array* x : operands) {
    if (!(x->shape() == shape) || !x->is_dense()) continue;
    const bool ambiguous = x->is_contiguous() && x->is_contiguous(MemoryFormat::channels_last);
    if (ambiguous) continue;
    if (x->is_contiguous()) break;
    return Array::empty_strided(shape, x->strides(), dtype, device);
  }
  return Array::empty(shape, dtype, device);
}

}  // namespace gradus::ops
