// The classes that losses are told.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::naive_detail {

/// target[row], or -1 where that is `ignore_index`; an IndexError if it is not one of the classes.
int64_t class_of(const View& target, int64_t row, int64_t ignore_index, int64_t classes);

}  // namespace gradus::naive_detail
