// Adds context, such as a thread or sample, to the message of a propagating exception.
#pragma once

#include <string>

namespace gradus {

/// Rethrows the std::exception that is being handled with `prefix` before its message. Exceptions of gradus keep their
/// type; others become an Error.
[[noreturn]] void rethrow_with_prefix(const std::string& prefix);

}  // namespace gradus
