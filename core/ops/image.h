// Image operators on arrays.
#pragma once

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// 0.2989 R + 0.5870 G + 0.1140 B: (…, 3, H, W) to (…, 1, H, W).
Array rgb_to_grayscale(const Array& x);

}  // namespace gradus::ops
