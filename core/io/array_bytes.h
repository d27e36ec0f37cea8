// Arrays as the bytes that files hold.
#pragma once

#include <string>

#include <gradus/core/array/array.h>

namespace gradus::io {

/// `x` itself if it is row-major on the CPU, else a copy that is.
Array contiguous_on_cpu(const Array& x);

/// A boolean that is neither 0 nor 1 has no meaning in C++: an IoError. Other types may hold any bits.
void check_booleans(const Array& x, const std::string& what);

}  // namespace gradus::io
