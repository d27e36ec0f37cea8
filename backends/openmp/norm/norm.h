// What the two directions of normalisation share. The axes fall in two: the outer ones, each of whose elements has a
// mean and a variance, and the inner ones, over which these are taken.
//
// Two loop orders. By rows: one outer element after the other, its inner elements in runs along memory (layer norm;
// batch norm of planes). By lanes: neighbouring outer elements together where they are closer than inner ones, a vector
// of them for every inner element (channels-last batch norm). Long inner ranges are cut into stretches, by shape alone,
// so that threads can share them; what stretches found is combined in order.
#pragma once

#include <cmath>
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/work_split.h>

namespace gradus::openmp_detail {

inline constexpr int64_t kMostLanes = 128, kLaneRows = 64;

template <int N>
bool varies(const StridedLoop<N>& nest, int operand) {
  for (int i = 0; i < nest.ndim; ++i)
    if (nest.strides[operand][i] != 0) return true;
  return false;
}

/// A weight or bias; an absent one's place is taken by one number, of stride 0.
template <class C>
View parameter(const View& given, int ndim, const C& absent) {
  if (given) return given;
  StridedLayout everywhere;
  everywhere.dtype = dtype_of<C>, everywhere.strides = Dims::filled(ndim, 0);
  return {everywhere, &absent};
}

/// The strides of an operand, those of an absent one 0.
inline Strides strides_or_zero(const StridedLayout& view, int ndim) {
  return view.ndim() > 0 ? view.strides : Dims::filled(ndim, 0);
}

/// Count, mean and sum of squared deviations, and how they add up (Chan, Golub and LeVeque 1983).
struct Moments {
  double count = 0, mean = 0, squares = 0;
  void add(const Moments& other) {
    if (other.count == 0) return;
    const double total = count + other.count, delta = other.mean - mean, part = other.count / total;
    mean += delta * part;
    squares += other.squares + delta * delta * count * part;
    count = total;
  }
};

/// True where lanes are the better order: operand 0 is what is read.
template <int N, int M>
bool prefers_lanes(const StridedLoop<N>& outer, const StridedLoop<M>& inner) {
  return outer.ndim > 0 && inner.numel > 1 && outer.strides[0][outer.ndim - 1] < step_of(inner, 0) &&
         outer.shape[outer.ndim - 1] >= 4;
}

/// An operand along a run of inner elements: where its first one is, and the steps to the next one and to the next
/// outer element, a lane.
template <class AnyView>
struct Run {
  const AnyView* view;
  int64_t offset, step, lane;

  /// Of operand k of both nests: the run that begins at `inner_at`, for the outer element at `outer_at`.
  template <class Outer, class Offsets, class Inner>
  Run(const AnyView& view, int k, const Outer& outer, const Offsets& outer_at, const Inner& inner,
      const int64_t* inner_at)
      : view(&view), offset(outer_at[static_cast<size_t>(k)] + inner_at[k]), step(step_of(inner, k)),
        lane(step_of(outer, k)) {}

  /// `count` elements from element i on: in place where that is possible, else converted into `buffer`.
  template <class C>
  const C* load(int64_t i, int64_t count, C* buffer) const {
    return load_block(*view, offset + i * step, step, count, buffer);
  }
  /// `rows` rows of `lanes` elements alike.
  template <class C>
  RowsOf<const C> load_rows(int64_t i, int64_t rows, int64_t lanes, C* buffer) const {
    const int64_t at = offset + i * step;
    if (view->dtype == dtype_of<C> && lane == 1) return {view->template as<C>() + at, step, rows, lanes};
    for (int64_t r = 0; r < rows; ++r) {
      C* row = buffer + r * kMostLanes;
      const C* from = load_block(*view, at + r * step, lane, lanes, row);
      if (from != row) std::copy_n(from, lanes, row);
    }
    return {buffer, kMostLanes, rows, lanes};
  }

  /// Where results are computed, in place or in `buffer`, from where store() and store_rows() move them to their place.
  template <class C>
  C* results(int64_t i, C* buffer) const {
    return view->dtype == dtype_of<C> && step == 1 ? view->template as<C>() + offset + i : buffer;
  }
  template <class C>
  void store(int64_t i, int64_t count, const C* from, const C* buffer) const {
    if (from == buffer) store_block(buffer, *view, offset + i * step, step, count);
  }
  template <class C>
  RowsOf<C> result_rows(int64_t i, int64_t rows, int64_t lanes, C* buffer) const {
    if (view->dtype == dtype_of<C> && lane == 1) return {view->template as<C>() + offset + i * step, step, rows, lanes};
    return {buffer, kMostLanes, rows, lanes};
  }
  template <class C>
  void store_rows(int64_t i, const RowsOf<C>& from, const C* buffer) const {
    if (from.data != buffer) return;
    for (int64_t r = 0; r < from.rows; ++r)
      store_block(buffer + r * kMostLanes, *view, offset + (i + r) * step, lane, from.lanes);
  }
};

/// The ReLU that may follow a normalisation, on a run of results while it is in the cache; and the gradient behind it.
template <class C>
void relu_after_sum(C* y, const C* residual, int64_t count) {
  const Kernels<C>& kernels = kernels_of<C>(kernel_table());
  if (residual) kernels.of(BinaryOp::add).apply(y, residual, y, count);
  kernels.of(UnaryOp::relu).apply(y, y, count, {});
}
template <class C>
void relu_gradient(const C* dy, const C* y, C* g, int64_t count) {
  kernels_of<C>(kernel_table()).of(UnaryOp::relu).backward(dy, y, g, count, {});
}
template <class C>
void relu_gradient(const RowsOf<const C>& dy, const RowsOf<const C>& y, const RowsOf<C>& g) {
  if (dy.stride == g.lanes && y.stride == g.lanes && g.stride == g.lanes)  // rows one behind the other
    return relu_gradient(dy.data, y.data, g.data, g.rows * g.lanes);
  for (int64_t r = 0; r < g.rows; ++r)
    relu_gradient(dy.data + r * dy.stride, y.data + r * y.stride, g.data + r * g.stride, g.lanes);
}

/// One element of a view of any floating type.
inline double load_number(const View& x, int64_t at) {
  double value = 0;
  visit_floating(x.dtype, [&]<class T> { value = static_cast<double>(x.as<T>()[at]); });
  return value;
}
inline void store_number(const MutableView& y, int64_t at, double value) {
  visit_floating(y.dtype, [&]<class T> { y.as<T>()[at] = scalar::convert<T>(value); });
}

/// A mean as a number of type C and the rest, and 1 / sqrt(variance + eps).
template <class C>
struct Statistics {
  Statistics() = default;
  Statistics(double mean, double variance, double eps)
      : high(static_cast<C>(mean)), low(mean - static_cast<double>(high)), scale(1 / std::sqrt(variance + eps)) {}
  C high = 0;
  double low = 0, scale = 0;
};

}  // namespace gradus::openmp_detail
