// Pooling.
#pragma once

#include <tuple>

#include <gradus/autograd/ops/conv.h>

namespace gradus {

/// Maximum over windows of x (N, C, H, W) or (C, H, W); stride defaults to the kernel's size.
Tensor max_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride = {}, Pair padding = 0,
                  Pair dilation = 1, bool ceil_mode = false, Loc where = Loc::current());
/// The same and the int64 index h * W + w of each maximum in its plane.
std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Pair kernel_size, std::optional<Pair> stride = {},
                                                   Pair padding = 0, Pair dilation = 1, bool ceil_mode = false,
                                                   Loc where = Loc::current());

}  // namespace gradus
