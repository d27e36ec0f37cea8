// The formulas by which reductions combine the elements of several ranks, for host and device.
#pragma once

#include <cstddef>
#include <type_traits>

#include <gradus/core/array/dtype.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

/// The result is NaN if either operand is, as in torch.maximum. NCCL leaves this case undefined.
template <class T>
GRADUS_HOST_DEVICE T larger(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
GRADUS_HOST_DEVICE T smaller(T a, T b) {
  return a < b || a != a ? a : b;
}

/// Combines the elements of two ranks.
template <ReduceKind kind, class T>
GRADUS_HOST_DEVICE T combine(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return kind == ReduceKind::sum || kind == ReduceKind::max ? a || b : a && b;
  } else {
    switch (kind) {
      case ReduceKind::sum:
      case ReduceKind::avg: return wrapping_sum(a, b);
      case ReduceKind::min: return smaller(a, b);
      case ReduceKind::max: return larger(a, b);
      case ReduceKind::prod: return wrapping_product(a, b);
    }
  }
  return a;
}

/// Calls f.operator()<T, kind>().
template <class F>
void visit_reduction(DType dtype, ReduceKind kind, F&& f) {
  visit(dtype, [&]<class T> {
    switch (kind) {
      case ReduceKind::sum: return f.template operator()<T, ReduceKind::sum>();
      case ReduceKind::avg:  // undefined for booleans
        if constexpr (!std::is_same_v<T, bool>) return f.template operator()<T, ReduceKind::avg>();
        return;
      case ReduceKind::min: return f.template operator()<T, ReduceKind::min>();
      case ReduceKind::max: return f.template operator()<T, ReduceKind::max>();
      case ReduceKind::prod: return f.template operator()<T, ReduceKind::prod>();
    }
  });
}

/// Turns a sum into an average if `kind` is avg.
template <ReduceKind kind, class Sum>
GRADUS_HOST_DEVICE Sum finish(Sum sum, size_t ranks) {
  if constexpr (kind == ReduceKind::avg) return static_cast<Sum>(sum / static_cast<Sum>(ranks));
  return sum;
}

}  // namespace gradus::dist
