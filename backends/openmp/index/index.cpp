// gather, scatter and nonzero. Elements are moved as integers of their size.
//
// If the index does not vary along contiguous elements (rows of a matrix: index_select, embedding and its gradient),
// whole rows are copied or added; otherwise the innermost loop runs over elements. gather divides the elements of y
// among the threads. scatter divides the axes other than `axis`, so that one thread writes everything that goes to the
// same place, in order. When scatter moves whole rows, threads divide the rows of y instead, and each thread takes
// the rows of x that go to its part of y.
//
// nonzero counts the true elements of each chunk, and then writes each chunk's indices after those of the chunks
// before.
#include <atomic>
#include <bit>
#include <numeric>
#include <vector>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

constexpr int64_t kColumns = 16;   // minimum contiguous elements per thread: a cache line of floats
constexpr int64_t kMostParts = 8;  // maximum parts into which scatter divides the rows of y

// Returns true if `count` indices with stride `step` are all in [0, size). The sign bits of all numbers `index` and
// `size - 1 - index` are then 0.
bool inside(const int64_t* index, int64_t step, int64_t count, int64_t size) {
  const auto last = static_cast<uint64_t>(size - 1);
  uint64_t signs = 0;
  const auto look = [&](int64_t i) { signs |= static_cast<uint64_t>(i) | (last - static_cast<uint64_t>(i)); };
  if (step == 1)
    for (int64_t i = 0; i < count; ++i) look(index[i]);
  else
    for (int64_t i = 0; i < count; ++i) look(index[i * step]);
  return static_cast<int64_t>(signs) >= 0;
}

void check_index(const View& index, int axis, int64_t size) {
  const StridedLoop<1> nest(naive_detail::distinct_sizes(index), {&index.strides});
  const int64_t step = step_of(nest, 0);
  std::atomic<bool> outside = false;
  parallel_runs(nest, [&](const int64_t* at, int64_t count) {
    if (!inside(index.as<int64_t>() + at[0], step, count, size)) outside.store(true, std::memory_order_relaxed);
  });
  if (outside.load()) naive_detail::check_index(index, axis, size);
}

constexpr auto store = []<class T>(T& y, T x) { y = x; };
constexpr auto add = []<class T>(T& y, T x) { y = static_cast<T>(wrapping_sum<compute_t<T>>(y, x)); };

template <class T, class Write>
void write_run(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t count, Write write) {
  if (from_step == 1 && to_step == 1)
    for (int64_t i = 0; i < count; ++i) write(to[i], from[i]);
  else
    for (int64_t i = 0; i < count; ++i) write(to[i * to_step], from[i * from_step]);
}

// Copies whole rows, which are the innermost axis of the nest and contiguous. Each row has one index. The operands of
// the nest are y, x and index.
template <class T>
void gather_rows(const StridedLoop<3>& nest, const View& x, int64_t x_row, const View& index, const MutableView& y) {
  const int64_t length = nest.shape[nest.ndim - 1];
  const StridedLoop<3> rows = without_axis(nest, nest.ndim - 1);
  const int64_t y_step = step_of(rows, 0), x_step = step_of(rows, 1), index_step = step_of(rows, 2);
  const auto gather_run = [&](const int64_t* at, int64_t count) {
    const int64_t* places = index.as<int64_t>() + at[2];
    copy_rows<T>(
        count, length, [&](int64_t i) { return x.as<T>() + at[1] + i * x_step + places[i * index_step] * x_row; },
        [&](int64_t i) { return y.as<T>() + at[0] + i * y_step; });
  };
  parallel_runs(rows, gather_run, ceil_div(kGrain, length));
}

// Adds or copies row i of x, `count` contiguous elements, to row index[i] of y. x_row, y_row and index_row are the
// strides between rows. Threads divide the rows of y by the low bits of their numbers, so that a range of frequent
// indices does not give one thread much more work than the others; each thread reads the whole index.
template <class T, class Write>
void scatter_rows(const T* x, int64_t x_row, int64_t rows, int64_t count, const int64_t* index, int64_t index_row, T* y,
                  int64_t y_row, Write write) {
  const auto most = static_cast<uint64_t>(std::clamp<int64_t>(rows * count / kGrain, 1, kMostParts));
  const auto parts = static_cast<int64_t>(std::bit_floor(most));
  parallel_each(parts, 1, [&](int64_t part) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t place = index[i * index_row];
      if ((place & (parts - 1)) == part) write_run(x + i * x_row, 1, y + place * y_row, 1, count, write);
    }
  });
}

template <class T, class Write>
void scatter_by(const View& x, int axis, const View& index, const MutableView& y, Write write) {
  Shape beside = x.shape;
  beside[axis] = 1;
  const StridedLoop<3> nest(beside, {&y.strides, &x.strides, &index.strides});
  const int64_t rows = x.shape[axis], x_row = x.strides[axis], y_row = y.strides[axis], index_row = index.strides[axis];
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1), index_step = nest.ndim ? step_of(nest, 2) : 0;
  if (nest.ndim == 1 && index_step == 0 && x_step == 1 && y_step == 1 && nest.numel >= kColumns)
    return scatter_rows(x.as<T>(), x_row, rows, nest.numel, index.as<int64_t>(), index_row, y.as<T>(), y_row, write);
  const auto columns = [&](const int64_t* at, int64_t count) {
    T* to = y.as<T>() + at[0];
    const T* from = x.as<T>() + at[1];
    const int64_t* places = index.as<int64_t>() + at[2];
    const auto write_one = [&](int64_t i, int64_t j) {
      write(to[places[i * index_row + j * index_step] * y_row + j * y_step], from[i * x_row + j * x_step]);
    };
    if (index_step == 0)
      for (int64_t i = 0; i < rows; ++i)
        write_run(from + i * x_row, x_step, to + places[i * index_row] * y_row, y_step, count, write);
    else if (x_step <= x_row)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < count; ++j) write_one(i, j);
    else
      for (int64_t j = 0; j < count; ++j)
        for (int64_t i = 0; i < rows; ++i) write_one(i, j);
  };
  parallel_runs(nest, columns, std::max(kColumns, kGrain / std::max<int64_t>(rows, 1)));
}

}  // namespace

void OpenmpBackend::gather(const View& x, int axis, const View& index, const MutableView& y) {
  EventScope event("gather", "openmp", "loops", {&x, &index, &y});
  Strides others = x.strides;
  others[axis] = 0;
  const int64_t x_row = x.strides[axis];
  const StridedLoop<3> nest(y.shape, {&y.strides, &others, &index.strides});
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1), index_step = nest.ndim ? step_of(nest, 2) : 0;
  check_index(index, axis, x.shape[axis]);
  visit_bits(y.dtype, [&]<class Bits> {
    if (index_step == 0 && y_step == 1 && x_step == 1 && nest.ndim > 1 && nest.shape[nest.ndim - 1] <= kGrain)
      return gather_rows<Bits>(nest, x, x_row, index, y);
    parallel_runs(nest, [&](const int64_t* at, int64_t count) {
      Bits* to = y.as<Bits>() + at[0];
      const Bits* from = x.as<Bits>() + at[1];
      const int64_t* places = index.as<int64_t>() + at[2];
      if (index_step == 0) write_run(from + *places * x_row, x_step, to, y_step, count, store);
      else if (x_step == 0 && x_row == 1 && index_step == 1 && y_step == 1)
#pragma GCC unroll 8
        for (int64_t i = 0; i < count; ++i) to[i] = from[places[i]];
      else
        for (int64_t i = 0; i < count; ++i) to[i * y_step] = from[places[i * index_step] * x_row + i * x_step];
    });
  });
}

void OpenmpBackend::scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) {
  if (accumulate && naive_detail::scatter_add_in_float32(*this, x, axis, index, y)) return;
  EventScope event("scatter", "openmp", "loops", {&x, &index, &y}, accumulate ? x.numel() : 0);
  check_index(index, axis, y.shape[axis]);
  if (accumulate) {
    visit(y.dtype, [&]<class T> { scatter_by<T>(x, axis, index, y, add); });
  } else {
    visit_bits(y.dtype, [&]<class Bits> { scatter_by<Bits>(x, axis, index, y, store); });
  }
}

void OpenmpBackend::nonzero(const View& x, const MutableView& positions) {
  if (!is_row_major(x) || !is_row_major(positions)) return NaiveBackend::nonzero(x, positions);
  EventScope event("nonzero", "openmp", "chunks", {&x, &positions});
  const bool* data = x.as<bool>();
  const int64_t numel = x.numel(), columns = x.ndim();
  std::vector<int64_t> starts(static_cast<size_t>(ceil_div(numel, kGrain)) + 1, 0);
  parallel_for(numel, kGrain, [&](int64_t begin, int64_t end) {
    starts[static_cast<size_t>(begin / kGrain) + 1] = std::count(data + begin, data + end, true);
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  parallel_for(numel, kGrain, [&](int64_t begin, int64_t end) {
    int64_t* out = positions.as<int64_t>() + starts[static_cast<size_t>(begin / kGrain)] * columns;
    for (int64_t i = begin; i < end; ++i) {
      if (!data[i]) continue;
      int64_t rest = i;
      for (int axis = x.ndim() - 1; axis > 0; rest /= x.shape[axis--]) out[axis] = rest % x.shape[axis];
      if (columns > 0) out[0] = rest;
      out += columns;
    }
  });
}

}  // namespace gradus
