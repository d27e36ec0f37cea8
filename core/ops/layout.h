// Which memory layout a result has. These functions decide it for every operator.
#pragma once

#include <initializer_list>

#include <gradus/core/array/array.h>

namespace gradus::ops {

/// Layout of what convolution and pooling return: channels-last if the input or the weight (may be undefined) is.
MemoryFormat output_format(const Array& x, const Array& weight = {});

/// An uninitialised result of an element-wise operator: the layout of the first operand of this shape without gaps
/// and in an order that is told (Array::is_channels_last), else row-major.
Array output_like(const Shape& shape, DType dtype, Device device, std::initializer_list<const Array*> operands);

}  // namespace gradus::ops
