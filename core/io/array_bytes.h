// Conversion of arrays to and from the bytes in files.
#pragma once

#include <optional>
#include <string>

#include <gradus/core/array/array.h>

namespace gradus::io {

/// `x` itself if it is row-major on the CPU, else a row-major copy on the CPU.
Array contiguous_on_cpu(const Array& x);

/// Number of bytes of the elements of an array whose shape comes from a file. Empty if the product of the element size
/// and all sizes other than 0 does not fit in 64 bits: even if the array has no elements, these sizes become strides.
std::optional<uint64_t> byte_count(const Shape& shape, DType dtype);

/// Throws an IoError if an element of a boolean array is neither 0 nor 1, because C++ does not define such a bool.
/// Arrays of other types are not checked. `what` identifies the array in the message.
void check_booleans(const Array& x, const std::string& what);

}  // namespace gradus::io
