// The differentiable operator behind pooling by averages, interpolation and padding; not for users.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/ops/resample.h>

namespace gradus {

class OpScope;

/// x (N, C, H, W) with a stencil on each of its last two axes. Its gradient is the transposed stencils, so it can be
/// differentiated any number of times.
Tensor resample2d(OpScope& op, const Tensor& x, const ops::OwnedStencil& rows, const ops::OwnedStencil& columns);

/// Refuses sizes of an axis that no image has: stencils list every position.
inline void check_axis(int64_t size) {
  GRADUS_CHECK(size <= int64_t{1} << 24, ShapeError, "an axis of ", size, " elements is too long: at most ", 1 << 24);
}

/// body(x), or, where x has one dimension less than `dims`, body of x as a batch of one.
template <class Body>
Tensor batched(const Tensor& x, int64_t dims, Body&& body) {
  return x.dim() == dims - 1 ? body(x.unsqueeze(0)).squeeze(0) : body(x);
}

}  // namespace gradus
