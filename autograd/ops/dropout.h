// Dropout (Srivastava et al. 2014), scaled at training time, and its variants. Each is the identity unless `train`.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Zeroes each element with probability p and scales the others by 1 / (1 - p).
Tensor dropout(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
const Tensor& dropout_(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
/// The same for whole channels of x (N, C, …), at::feature_dropout (Tompson et al. 2015).
Tensor feature_dropout(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
const Tensor& feature_dropout_(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
/// torch.nn.functional's name of feature_dropout for images.
Tensor dropout2d(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
/// Dropout that keeps mean 0 and variance 1, for nets of SELU (Klambauer et al. 2017): dropped elements become SELU's
/// lower limit, then all are scaled and shifted; by elements and by whole channels.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool train = false, Loc where = Loc::current());
const Tensor& alpha_dropout_(const Tensor& x, double p = 0.5, bool train = false, Loc where = Loc::current());
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool train = false, Loc where = Loc::current());
const Tensor& feature_alpha_dropout_(const Tensor& x, double p = 0.5, bool train = false, Loc where = Loc::current());

}  // namespace gradus
