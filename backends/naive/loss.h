// Access to the target classes of losses.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::naive_detail {

/// Returns target[row], or -1 if that is `ignore_index`. Throws an IndexError if it is not a valid class.
int64_t class_of(const View& target, int64_t row, int64_t ignore_index, int64_t classes);

}  // namespace gradus::naive_detail
