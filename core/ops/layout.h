// Which memory layout a result has. These functions decide it for every operator.
#pragma once

#include <initializer_list>

#include <gradus/core/array.h>

namespace gradus::ops {

/// True if x (N, C, H, W) lies in memory with channels innermost and could not as well be called contiguous: more than
/// one channel and more than one pixel.
bool is_channels_last(const Array& x);

/// Layout of what convolution and pooling return: channels-last if the input or the weight (may be undefined) is; an
/// input with one channel or one pixel follows the weight.
MemoryFormat output_format(const Array& x, const Array& weight = {});

/// An uninitialised result of an element-wise operator: the layout of the first operand of this shape whose axes are in
/// an unambiguous order without gaps, else row-major.
Array output_like(const Shape& shape, DType dtype, Device device, std::initializer_list<const Array*> operands);

}  // namespace gradus::ops
