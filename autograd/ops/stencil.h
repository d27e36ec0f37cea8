// The differentiable operator that average pooling, interpolation and padding share. Not part of the public interface.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/ops/nn/image.h>

namespace gradus {

class OpScope;

/// Applies a stencil to each of the last two axes of x (N, C, H, W). The gradient applies the transposed stencils, so
/// it can be differentiated any number of times.
Tensor resample2d(OpScope& op, const Tensor& x, const ops::OwnedStencil& rows, const ops::OwnedStencil& columns);

/// Rejects axes that are too long, because a stencil stores an entry for every position.
inline void check_axis(int64_t size) {
  GRADUS_CHECK(size <= int64_t{1} << 24, ShapeError, "an axis of ", size, " elements is too long: at most ", 1 << 24);
}

/// Returns body(x). If x has one dimension less than `dims`, adds a batch dimension of size 1 for the call.
template <class Body>
Tensor batched(const Tensor& x, int64_t dims, Body&& body) {
  return x.dim() == dims - 1 ? body(x.unsqueeze(0)).squeeze(0) : body(x);
}

}  // namespace gradus
