// The arithmetic of collectives: combines the elements of several ranks in the order of the ranks or, in a ring
// all-reduce, of the hops. The formulas are for host and device.
#pragma once

#include <span>

#include <gradus/core/formulas/integers.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

/// Elements [begin, end) of a vector.
struct Range {
  size_t begin, end;
  size_t size() const { return end - begin; }
};
/// Part `index` of `count` elements divided into `parts`. Every part begins at a multiple of 16 elements, which is the
/// beginning of a cache line if the vector begins at one and its elements have 4 bytes or more. The last parts may be
/// shorter or empty.
Range part_of(size_t count, int parts, int index);

/// Address of element `index` of a vector.
inline std::byte* at(void* data, size_t index, DType dtype) {
  return static_cast<std::byte*>(data) + index * size_of(dtype);
}
inline const std::byte* at(const void* data, size_t index, DType dtype) {
  return static_cast<const std::byte*>(data) + index * size_of(dtype);
}

/// y[j][i] = the sum, maximum, … (`kind`) of x[0][i], x[1][i], …, combined in this order, for all j and
/// for i in [0, count). Each y may be one of the x. Half types are computed in float and rounded once.
void reduce_in_order(DType dtype, ReduceKind kind, std::span<const void* const> x, std::span<void* const> y,
                     size_t count);
inline void reduce_in_order(DType dtype, ReduceKind kind, std::span<const void* const> x, void* y, size_t count) {
  reduce_in_order(dtype, kind, x, std::span<void* const>(&y, 1), count);
}

/// y[i] = x[i] and y[i] combined by `kind`, in this order. This is one step of a ring all-reduce. For avg it only adds;
/// divide() follows after the last step.
void reduce_step(DType dtype, ReduceKind kind, const void* x, void* y, size_t count);
/// y[i] /= ranks: the last step of avg after reduce_step().
void divide(DType dtype, void* y, size_t count, int ranks);

/// Throws a DTypeError for a reduction that is undefined: the average of booleans.
void check_reduction(DType dtype, ReduceKind kind);

// ---- Formulas ----

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

/// Calls f.operator()<T, kind>(), where T is the C++ type of `dtype` and `kind` is a constant.
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

/// Divides the sum by the number of ranks if `kind` is avg.
template <ReduceKind kind, class Sum>
GRADUS_HOST_DEVICE Sum finish(Sum sum, size_t ranks) {
  if constexpr (kind == ReduceKind::avg) return static_cast<Sum>(sum / static_cast<Sum>(ranks));
  return sum;
}

}  // namespace gradus::dist
