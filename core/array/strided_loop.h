// A loop nest over N operands of the same shape. Axes are sorted and merged, so that a few long loops remain.
#pragma once

#include <gradus/core/backend.h>

namespace gradus {

/// The loop nest of an element-wise kernel. Axis 0 is the outermost; strides are in elements. Elements are visited in
/// the order of the first operand in memory, or in the logical order.
template <int N>
struct StridedLoop {
  int ndim = 0;
  int64_t numel = 1;
  int64_t shape[kMaxDims] = {};
  int64_t strides[N][kMaxDims] = {};

  StridedLoop() = default;
  /// `operand_strides[k]` are operand k's strides for `full_shape`. With `logical_order`, the axes keep their order.
  StridedLoop(const Shape& full_shape, const Strides* const (&operand_strides)[N], bool logical_order = false) {
    for (int i = 0; i < full_shape.size(); ++i) {
      numel *= full_shape[i];
      if (full_shape[i] == 1) continue;
      shape[ndim] = full_shape[i];
      for (int k = 0; k < N; ++k) strides[k][ndim] = (*operand_strides[k])[i];
      ++ndim;
    }
    if (!logical_order) sort();
    merge();
  }

  /// True if a single loop visits operand k in steps of one element.
  bool contiguous(int k) const { return ndim == 0 || (ndim == 1 && strides[k][0] == 1); }
  /// True if a single loop visits all operands in steps of one element.
  bool all_contiguous() const {
    for (int k = 0; k < N; ++k)
      if (!contiguous(k)) return false;
    return true;
  }

 private:
  // Insertion sort of the axes by decreasing stride in the first operand. Axes with equal strides there are ordered by
  // their strides in the next operand.
  void sort() {
    for (int i = 1; i < ndim; ++i)
      for (int j = i; j > 0 && wider(j, j - 1); --j) swap(j, j - 1);
  }
  bool wider(int a, int b) const {
    for (int k = 0; k < N; ++k)
      if (strides[k][a] != strides[k][b]) return strides[k][a] > strides[k][b];
    return false;
  }
  void swap(int a, int b) {
    auto exchange = [](int64_t& x, int64_t& y) {
      const int64_t t = x;
      x = y;
      y = t;
    };
    exchange(shape[a], shape[b]);
    for (int k = 0; k < N; ++k) exchange(strides[k][a], strides[k][b]);
  }
  // Merges axis i + 1 into axis i if, in every operand, one loop can traverse both.
  void merge() {
    int out = 0;
    for (int i = 1; i < ndim; ++i) {
      bool joins = true;
      for (int k = 0; k < N; ++k) joins = joins && strides[k][out] == strides[k][i] * shape[i];
      if (!joins) ++out;
      shape[out] = joins ? shape[out] * shape[i] : shape[i];
      for (int k = 0; k < N; ++k) strides[k][out] = strides[k][i];
    }
    if (ndim > 0) ndim = out + 1;
  }
};

/// True if a parameter, its gradient and its states have the same element order in memory and no gaps, so that one
/// running index addresses all of them.
inline bool fill_memory_alike(const ParameterViews& views) {
  const Strides& p = views.parameter.strides;
  const auto strides_of = [&](const MutableView& view) { return view.data ? &view.strides : &p; };
  return StridedLoop<6>(views.parameter.shape,
                        {&p, &views.gradient.strides, strides_of(views.states[0]), strides_of(views.states[1]),
                         strides_of(views.states[2]), strides_of(views.half)})
      .all_contiguous();
}

}  // namespace gradus
