// Dropout (Srivastava et al. 2014) and its variants. All return x unchanged if `train` is false.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Zeroes each element with probability p and scales the others by 1 / (1 - p).
Tensor dropout(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
const Tensor& dropout_(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
/// Drops whole channels of x (N, C, …), at::feature_dropout (Tompson et al. 2015).
Tensor feature_dropout(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
const Tensor& feature_dropout_(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
/// Same as feature_dropout: its name in torch.nn.functional.
Tensor dropout2d(const Tensor& x, double p = 0.5, bool train = true, Loc where = Loc::current());
/// Dropout that preserves mean 0 and variance 1, for nets with SELU (Klambauer et al. 2017). Dropped elements (or whole
/// channels) are set to SELU's lower limit, then all elements are scaled and shifted.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool train = false, Loc where = Loc::current());
const Tensor& alpha_dropout_(const Tensor& x, double p = 0.5, bool train = false, Loc where = Loc::current());
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool train = false, Loc where = Loc::current());
const Tensor& feature_alpha_dropout_(const Tensor& x, double p = 0.5, bool train = false, Loc where = Loc::current());

}  // namespace gradus
