// Types and loops that normalisation and its gradient share. The mean and the variance are computed over the inner
// axes; each element of the other axes, the outer axes, has a mean and a variance.
//
// There are two loop orders. By rows: one outer element at a time, with vectors of inner elements that are adjacent in
// memory (layer norm; all norms of NCHW images). By lanes, if the channels are closer together in memory than the
// pixels (all norms of channels-last images): vectors of neighbouring channels, one pixel at a time. A lane is then a
// cell: a channel of an image in group norm, whose groups consist of several cells, or a whole outer element. Weight
// and bias are constant in a cell. Many inner elements are divided into segments ("stretches"), by shape alone, so that
// threads can share them; the results of the segments, and of the cells of a group, are combined in order.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/work_split.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/op_lists.h>

namespace gradus::openmp_detail {

inline constexpr int64_t kMostLanes = 128, kLaneRows = 64;

template <int N>
bool varies(const StridedLoop<N>& nest, int operand) {
  for (int i = 0; i < nest.ndim; ++i)
    if (nest.strides[operand][i] != 0) return true;
  return false;
}

/// A weight or bias, or, if it is not given, a view of the constant `absent` with stride 0.
template <class C>
View parameter(const View& given, int ndim, const C& absent) {
  if (given) return given;
  StridedLayout everywhere;
  everywhere.dtype = dtype_of<C>, everywhere.strides = Dims::filled(ndim, 0);
  return {everywhere, &absent};
}

/// Strides of a dense array of this shape, 0 along axes of size 1. Its axes are ordered in memory as those of x.
inline Strides dense_strides(const Shape& shape, const View& x) {
  Strides strides = Dims::filled(shape.size(), 0);
  std::vector<int> axes(static_cast<size_t>(shape.size()));
  std::iota(axes.begin(), axes.end(), 0);
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return x.strides[a] > x.strides[b]; });
  int64_t next = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis)
    if (shape[*axis] > 1) strides[*axis] = next, next *= shape[*axis];
  return strides;
}

/// The strides of a mean or variance, 0 along the axes that it is taken over.
inline Strides result_strides(const StridedLayout& view, uint32_t axes) {
  Strides strides = view.strides;
  for (int i = 0; i < view.ndim(); ++i)
    if (axes >> i & 1u) strides[i] = 0;
  return strides;
}

/// A weight or bias whose axes are ordered in memory as those of x, so that loops over both are long: `given`, or its
/// copy in `room`.
inline View ordered_as(const View& x, const View& given, OpenmpBackend& backend, Array& room) {
  if (!given) return given;
  View own = given;
  for (int i = 0; i < x.ndim(); ++i)
    if (given.strides[i] == 0) own.shape[i] = 1;
  const Strides strides = dense_strides(own.shape, x);
  if (StridedLoop<2>(own.shape, {&strides, &own.strides}).all_contiguous()) return given;
  room = Array::empty_strided(own.shape, strides, own.dtype);
  backend.copy(own, room);
  View ordered(room);
  ordered.shape = x.shape;
  return ordered;
}

/// The strides of an operand, or zeros if it is absent.
inline Strides strides_or_zero(const StridedLayout& view, int ndim) {
  return view.ndim() > 0 ? view.strides : Dims::filled(ndim, 0);
}

/// An array of zeros that is indexed by int64_t.
template <class T>
class Zeros {
 public:
  explicit Zeros(int64_t count) : items_(std::make_unique<T[]>(static_cast<size_t>(count))) {}
  T& operator[](int64_t i) const { return items_[static_cast<size_t>(i)]; }

 private:
  std::unique_ptr<T[]> items_;
};

/// Count, mean and sum of squared deviations of numbers. add() combines two such triples (Chan, Golub and LeVeque
/// 1983).
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

/// Returns the axes of a cell if the loop order by lanes is better than that by rows, else 0. They are the reduced axes
/// along which no parameter varies.
inline uint32_t lane_axes(const View& x, uint32_t axes, std::initializer_list<const Strides*> parameters) {
  for (int i = 0; i < x.ndim(); ++i)
    for (const Strides* strides : parameters)
      if (x.shape[i] > 1 && (*strides)[i] != 0) axes &= ~(1u << i);
  const auto cells = nest_of<1>(x.shape, axes, false, {x.strides}),
             inner = nest_of<1>(x.shape, axes, true, {x.strides});
  const bool closer = cells.ndim > 0 && inner.numel > 1 && step_of(cells, 0) < step_of(inner, 0);
  return closer && cells.shape[cells.ndim - 1] >= 4 ? axes : 0;
}

/// Returns how many of `cells` cells a slab has. The cells of a slab differ only along axes whose strides are smaller
/// than the largest stride of a reduced axis. A slab contains whole outer elements: an image, or in batch norm all
/// images.
inline int64_t slab_of(const View& x, uint32_t axes, int64_t cells) {
  int64_t widest = 0;
  for (int i = 0; i < x.ndim(); ++i)
    if ((axes >> i & 1u) && x.shape[i] > 1) widest = std::max(widest, x.strides[i]);
  for (int i = 0; i < x.ndim(); ++i)
    if (!(axes >> i & 1u) && x.strides[i] > widest) cells /= x.shape[i];
  return cells;
}

/// Calls f(element, offsets) for elements [begin, end) of the nest.
template <int N, class F>
void for_each_element(const StridedLoop<N>& nest, int64_t begin, int64_t end, F&& f) {
  int64_t element = begin;
  for_each_run(nest, begin, end, [&](const int64_t* at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      std::array<int64_t, N> offsets;
      for (int k = 0; k < N; ++k) offsets[static_cast<size_t>(k)] = at[k] + i * step_of(nest, k);
      f(element++, offsets);
    }
  });
}

/// The elements that are computed together: `rows` rows of `lanes` elements. If `most` > 1 (order by lanes), the rows
/// are inner elements, starting at element `first` of a run, and the lanes are outer elements. Otherwise there is one
/// row, of inner elements of one outer element.
template <int64_t most>
struct Block {
  static constexpr int64_t kMostRows = most > 1 ? kLaneRows : 1, kLanes = most > 1 ? most : kBlock;
  static constexpr int64_t kSize = kMostRows * kLanes;
  const int64_t* run;  ///< offset of each operand's run
  int64_t first, rows, lanes;
};

/// Calls f(block) for the blocks of inner elements [begin, end) of `outer_count` outer elements.
template <int64_t most, int N, class F>
void for_each_block(const StridedLoop<N>& inner, int64_t outer_count, int64_t begin, int64_t end, F&& f) {
  constexpr int64_t step = most > 1 ? kLaneRows : kBlock;
  for_each_run(inner, begin, end, [&](const int64_t* at, int64_t run) {
    for (int64_t i = 0; i < run; i += step) {
      const int64_t count = std::min(step, run - i);
      f(most > 1 ? Block<most>{at, i, count, outer_count} : Block<most>{at, i, 1, count});
    }
  });
}

/// The part of an operand that belongs to a block.
template <int64_t most, class AnyView>
struct BlockOf {
  const AnyView* view;
  int64_t offset, row, lane;  ///< offset of the first element, strides of rows and lanes
  int64_t rows, lanes;

  /// The part of operand k of the nests `outer` and `inner`. `outer_at` has each operand's offset of the outer element.
  template <class Outer, class Offsets, class Inner>
  BlockOf(const AnyView& view, int k, const Outer& outer, const Offsets& outer_at, const Inner& inner,
          const Block<most>& block)
      : view(&view), row(step_of(inner, k)), lane(most > 1 ? step_of(outer, k) : row), rows(block.rows),
        lanes(block.lanes) {
    offset = outer_at[static_cast<size_t>(k)] + block.run[k] + block.first * row;
  }

  template <class C>
  bool in_place() const {
    return view->dtype == dtype_of<C> && lane == 1;
  }
  /// Returns the elements in place if possible, else converted into `buffer`.
  template <class C>
  [[gnu::always_inline]] RowsOf<const C> load(C* buffer) const {
    if (in_place<C>()) return {view->template as<C>() + offset, row, rows, lanes};
    for (int64_t r = 0; r < rows; ++r)
      load_block(*view, offset + r * row, lane, lanes, buffer + r * Block<most>::kLanes);
    return {buffer, Block<most>::kLanes, rows, lanes};
  }
  /// Returns where to compute results: in place, or in `buffer`, which store() then copies to the operand if that is
  /// present.
  template <class C>
  RowsOf<C> results(C* buffer) const {
    if (view->data && in_place<C>()) return {view->template as<C>() + offset, row, rows, lanes};
    return {buffer, Block<most>::kLanes, rows, lanes};
  }
  template <class C>
  void store(const RowsOf<C>& from, const C* buffer) const {
    if (from.data != buffer || !view->data) return;
    for (int64_t r = 0; r < rows; ++r)
      store_block(buffer + r * Block<most>::kLanes, *view, offset + r * row, lane, lanes);
  }
};

/// Calls f(row, count) for each row of a block, or once for all rows if they are contiguous in memory.
template <class F>
void for_rows(int64_t rows, int64_t lanes, bool dense, F&& f) {
  if (dense) return f(0, rows * lanes);
  for (int64_t r = 0; r < rows; ++r) f(r, lanes);
}

/// Adds the residual (none if its data is null) to the results y of a normalisation and applies the ReLU, while y is in
/// the cache. relu_gradient() computes the gradient g of the ReLU's input.
template <class C>
void relu_after_sum(const RowsOf<C>& y, const RowsOf<const C>& residual) {
  const Kernels<C>& kernels = kernels_of<C>(kernel_table());
  const bool dense = y.stride == y.lanes && (!residual.data || residual.stride == y.lanes);
  for_rows(y.rows, y.lanes, dense, [&](int64_t r, int64_t count) {
    C* to = y.data + r * y.stride;
    if (residual.data) kernels.of(BinaryOp::add).apply(to, residual.data + r * residual.stride, to, count);
    kernels.of(UnaryOp::relu).apply(to, to, count, {});
  });
}
template <class C>
void relu_gradient(const RowsOf<const C>& dy, const RowsOf<const C>& y, const RowsOf<C>& g) {
  const auto backward = kernels_of<C>(kernel_table()).of(UnaryOp::relu).backward;
  const bool dense = dy.stride == g.lanes && y.stride == g.lanes && g.stride == g.lanes;
  for_rows(g.rows, g.lanes, dense, [&](int64_t r, int64_t count) {
    backward(dy.data + r * dy.stride, y.data + r * y.stride, g.data + r * g.stride, count, {});
  });
}

/// Reads or writes one element of a view of any floating type.
inline double load_number(const View& x, int64_t at) {
  double value = 0;
  visit_floating(x.dtype, [&]<class T> { value = static_cast<double>(x.as<T>()[at]); });
  return value;
}
inline void store_number(const MutableView& y, int64_t at, double value) {
  visit_floating(y.dtype, [&]<class T> { y.as<T>()[at] = scalar::convert<T>(value); });
}

/// A mean as the sum of two numbers (the mean rounded to type C, and the remainder), and 1 / sqrt(variance + eps).
template <class C>
struct Statistics {
  Statistics() = default;
  Statistics(double mean, double variance, double eps)
      : high(static_cast<C>(mean)), low(mean - static_cast<double>(high)), scale(1 / std::sqrt(variance + eps)) {}
  C high = 0;
  double low = 0, scale = 0;
};

}  // namespace gradus::openmp_detail
