// Dropout (Srivastava et al. 2014), scaled at training time.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// In training, zeroes each element with probability p and scales the others by 1 / (1 - p); else the identity.
Tensor dropout(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());

}  // namespace gradus
