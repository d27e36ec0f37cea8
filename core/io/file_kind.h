// Recognises files of other formats by their first bytes, for the error messages of readers.
#pragma once

#include <string>

#include <gradus/core/platform/file.h>

namespace gradus::io {

/// Number of bytes at the start of a file that `described` examines.
inline constexpr size_t kFileKindBytes = 512;

/// Returns the end of an error message about a file that begins with `start` and that a reader cannot read: "; it is a
/// GIF image", or "; it is a file of torch.save, …" with the Python lines that convert it. Empty for unknown files.
std::string described(ByteSpan start);

}  // namespace gradus::io
