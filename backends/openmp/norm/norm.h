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

/// A weight or bias that may be absent: what is read then has stride 0.
struct Parameter {
  Parameter(const View& view, int ndim, double absent)
      : view(if_present(view)), strides(view ? view.strides : Dims::filled(ndim, 0)), absent(absent) {}
  template <class C>
  const C* block(int64_t offset, int64_t step, int64_t count, C* buffer) const {
    if (view) return load_block(*view, offset, step, count, buffer);
    std::fill_n(buffer, count, static_cast<C>(absent));
    return buffer;
  }
  template <class C>
  C one(int64_t offset) const {
    C buffer;
    return *block(offset, 1, 1, &buffer);
  }
  const View* view;
  Strides strides;
  double absent;
};

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

/// `rows` rows of `lanes` elements from `offset` on: in place where that is possible, else converted into `buffer`.
template <class C>
RowsOf<const C> load_rows(const View& x, int64_t offset, int64_t step, int64_t rows, int64_t lane, int64_t lanes,
                          C* buffer) {
  if (x.dtype == dtype_of<C> && lane == 1) return {x.as<C>() + offset, step, rows, lanes};
  for (int64_t r = 0; r < rows; ++r) {
    C* row = buffer + r * kMostLanes;
    const C* from = load_block(x, offset + r * step, lane, lanes, row);
    if (from != row) std::copy_n(from, lanes, row);
  }
  return {buffer, kMostLanes, rows, lanes};
}
/// Where rows of results are computed, in place or in `buffer`, from where store_rows moves them to their place.
template <class C>
RowsOf<C> result_rows(const MutableView& y, int64_t offset, int64_t step, int64_t rows, int64_t lane, int64_t lanes,
                      C* buffer) {
  if (y.dtype == dtype_of<C> && lane == 1) return {y.as<C>() + offset, step, rows, lanes};
  return {buffer, kMostLanes, rows, lanes};
}
template <class C>
void store_rows(const RowsOf<C>& from, const C* buffer, const MutableView& y, int64_t offset, int64_t step,
                int64_t lane) {
  if (from.data != buffer) return;
  for (int64_t r = 0; r < from.rows; ++r) store_block(buffer + r * kMostLanes, y, offset + r * step, lane, from.lanes);
}

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
