// Operators on images.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// 0.2989 R + 0.5870 G + 0.1140 B (ITU-R BT.601). Shape: (…, 3, H, W) -> (…, 1, H, W), floating types.
Tensor rgb_to_grayscale(const Tensor& x, Loc where = Loc::current());

}  // namespace gradus
