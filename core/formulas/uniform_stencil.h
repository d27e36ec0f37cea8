// Detects stencils that are plain sums.
#pragma once

#include <gradus/core/kernel_args.h>

namespace gradus {

/// True if every y[p] is the sum of all x times one constant: a mean over the axis, or its gradient.
inline bool is_uniform(const Stencil& stencil) {
  const auto count = static_cast<int64_t>(stencil.weight.size());
  bool uniform = count > 0 && count == stencil.size_in * stencil.size_out;
  for (size_t k = 0; uniform && k < stencil.weight.size(); ++k)
    uniform = stencil.source[k] == static_cast<int64_t>(k) % stencil.size_in && stencil.weight[k] == stencil.weight[0];
  return uniform;
}

}  // namespace gradus
