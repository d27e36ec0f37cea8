#include <gradus/core/ops/layout.h>

namespace gradus::ops {

MemoryFormat output_format(const Array& x, const Array& weight) {
  const bool last = x.is_channels_last() || (weight.defined() && weight.is_channels_last());
  return last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

Array output_like(const Shape& shape, DType dtype, Device device, std::initializer_list<const Array*> operands) {
  for (const Array* x : operands) {
    if (!(x->shape() == shape) || !x->is_dense()) continue;
    const bool row_major = x->is_contiguous() && !x->is_channels_last();
    if (row_major && x->is_contiguous(MemoryFormat::channels_last)) continue;  // ambiguous
    if (row_major) break;
    return Array::empty_strided(shape, x->strides(), dtype, device);
  }
  return Array::empty(shape, dtype, device);
}

}  // namespace gradus::ops
