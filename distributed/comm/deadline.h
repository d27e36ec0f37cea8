// Every wait of this module ends: at what it waits for, or at its deadline.
#pragma once

#include <gradus/core/runtime/deadline.h>

namespace gradus::dist {

using gradus::Deadline;
using gradus::Milliseconds;

/// How long a wait lasts unless its caller says otherwise.
inline constexpr Milliseconds kDefaultTimeout{60'000};
/// From then on a warning says whom a rank waits for.
inline constexpr Milliseconds kPatience{10'000};

}  // namespace gradus::dist
