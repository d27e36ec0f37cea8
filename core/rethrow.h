// Exceptions that leave the place, thread or sample, that their message should name.
#pragma once

#include <string>

namespace gradus {

/// Throws the std::exception that is being handled again, with `prefix` before its message: of the same kind if it is
/// one of gradus', else as an Error.
[[noreturn]] void rethrow_with_prefix(const std::string& prefix);

}  // namespace gradus
