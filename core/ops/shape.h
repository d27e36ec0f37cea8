// Shape operators that may have to copy. Pure views are methods of Array.
#pragma once

#include <vector>

#include <gradus/core/ops/operands.h>

namespace gradus::ops {

/// A view if the strides allow it, else a row-major copy.
Array reshape(const Array& x, const Shape& shape);
/// Concatenates along an existing axis; dtypes are promoted.
Array cat(const std::vector<Array>& arrays, int64_t axis);

}  // namespace gradus::ops
