// The memory layout of results. These functions decide it for every operator.
#pragma once

#include <initializer_list>

#include <gradus/core/array/array.h>

namespace gradus::ops {

/// Layout of the result of convolution and pooling: channels-last if the input or the weight (may be undefined) is.
MemoryFormat output_format(const Array& x, const Array& weight = {});

/// Returns an uninitialised result for an element-wise operator. It takes the layout of the first operand that has this
/// shape, has no gaps and is not both row-major and channels-last; without such an operand it is row-major.
Array output_like(const Shape& shape, DType dtype, Device device, std::initializer_list<const Array*> operands);

}  // namespace gradus::ops
