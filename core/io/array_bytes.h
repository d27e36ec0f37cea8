// Conversion of arrays to and from the bytes in files.
#pragma once

#include <string>

#include <gradus/core/array/array.h>

namespace gradus::io {

/// `x` itself if it is row-major on the CPU, else a copy that is.
Array contiguous_on_cpu(const Array& x);

/// Throws an IoError if a boolean is neither 0 nor 1, which C++ does not define. Other types may hold any bits.
void check_booleans(const Array& x, const std::string& what);

}  // namespace gradus::io
