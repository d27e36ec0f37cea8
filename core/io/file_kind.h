// What a file is whose reader is not the right one, told by its first bytes: the end of an error message.
#pragma once

#include <string>

#include <gradus/core/io/file.h>

namespace gradus::io {

/// Bytes of a file's start that `described` looks at.
inline constexpr size_t kFileKindBytes = 512;

/// "; it is a GIF image", or "; it is a file of torch.save, …" with the Python lines that convert it: the end of the
/// message of a reader that does not know the file which begins with `start`. Empty for unknown files.
std::string described(ByteSpan start);

}  // namespace gradus::io
