// Stencils that are sums.
#pragma once

#include <gradus/core/kernel_args.h>

namespace gradus {

/// If every y[p] is the sum of all of x times one number: a mean of the axis, or the gradient of one.
inline bool is_uniform(const Stencil& stencil) {
  const auto count = static_cast<int64_t>(stencil.weight.size());
  bool uniform = count > 0 && count == stencil.size_in * stencil.size_out;
  for (size_t k = 0; uniform && k < stencil.weight.size(); ++k)
    uniform = stencil.source[k] == static_cast<int64_t>(k) % stencil.size_in && stencil.weight[k] == stencil.weight[0];
  return uniform;
}

}  // namespace gradus
