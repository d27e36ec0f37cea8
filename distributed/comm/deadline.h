// Timeouts of the distributed module. Every wait ends when its condition holds or when its deadline passes.
#pragma once

#include <gradus/core/runtime/deadline.h>

namespace gradus::dist {

using gradus::Deadline;
using gradus::Milliseconds;

/// Default timeout of a wait.
inline constexpr Milliseconds kDefaultTimeout{60'000};
/// A rank that has waited this long prints a warning that names the ranks it is waiting for.
inline constexpr Milliseconds kPatience{10'000};

}  // namespace gradus::dist
