// gather and scatter. Elements are moved by size. gather shares the elements of y among the threads; scatter shares what
// lies beside `axis`, so that all that goes to one place is written by one thread, in order.
//
// The innermost loop runs over elements that are neighbours in memory. Where the index does not vary along it (rows of a
// matrix: index_select, embedding and its gradient) it copies or adds a block.
//
// nonzero counts the true elements of each chunk, and then writes the chunks to where the counts before them end.
#include <atomic>
#include <numeric>
#include <vector>

#include <gradus/backends/naive/index.h>
#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp;

constexpr int64_t kColumns = 16;  // at least so many neighbours for a thread: a cache line of floats

void check_index(const View& index, int axis, int64_t size) {
  const StridedLoop<1> nest(naive::distinct_sizes(index), {&index.strides});
  const int64_t step = step_of(nest, 0);
  std::atomic<bool> outside = false;
  parallel_runs(nest, [&](const int64_t* at, int64_t count) {
    const int64_t* from = index.as<int64_t>() + at[0];
    bool bad = false;  // negative ones are large as unsigned
    for (int64_t i = 0; i < count; ++i) bad |= static_cast<uint64_t>(from[i * step]) >= static_cast<uint64_t>(size);
    if (bad) outside.store(true, std::memory_order_relaxed);
  });
  if (outside.load()) naive::check_index(index, axis, size);
}

struct Store {
  template <class T>
  void operator()(T& y, T x) const {
    y = x;
  }
};
struct Add {
  template <class T>
  void operator()(T& y, T x) const {
    y = static_cast<T>(scalar::Binary<BinaryOp::add>::apply<compute_t<T>>(y, x));
  }
};

template <class T, class Write>
void write_run(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t count, Write write) {
  if (from_step == 1 && to_step == 1)
    for (int64_t i = 0; i < count; ++i) write(to[i], from[i]);
  else
    for (int64_t i = 0; i < count; ++i) write(to[i * to_step], from[i * from_step]);
}

template <class T, class Write>
void scatter_by(const View& x, int axis, const View& index, const MutableView& y, Write write) {
  Shape beside = x.shape;
  beside[axis] = 1;
  const StridedLoop<3> nest(beside, {&y.strides, &x.strides, &index.strides});
  const int64_t rows = x.shape[axis], x_row = x.strides[axis], y_row = y.strides[axis], index_row = index.strides[axis];
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1), index_step = nest.ndim ? step_of(nest, 2) : 0;
  const auto columns = [&](const int64_t* at, int64_t count) {
    T* to = y.as<T>() + at[0];
    const T* from = x.as<T>() + at[1];
    const int64_t* places = index.as<int64_t>() + at[2];
    if (index_step == 0)
      for (int64_t i = 0; i < rows; ++i)
        write_run(from + i * x_row, x_step, to + places[i * index_row] * y_row, y_step, count, write);
    else if (x_step <= x_row)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < count; ++j)
          write(to[places[i * index_row + j * index_step] * y_row + j * y_step], from[i * x_row + j * x_step]);
    else
      for (int64_t j = 0; j < count; ++j)
        for (int64_t i = 0; i < rows; ++i)
          write(to[places[i * index_row + j * index_step] * y_row + j * y_step], from[i * x_row + j * x_step]);
  };
  parallel_for(nest.numel, std::max(kColumns, kGrain / std::max<int64_t>(rows, 1)),
               [&](int64_t begin, int64_t end) { for_each_run(nest, begin, end, columns); });
}

}  // namespace

void OpenmpBackend::gather(const View& x, int axis, const View& index, const MutableView& y) {
  EventScope event("gather", "openmp", "loops", {&x, &index, &y});
  check_index(index, axis, x.shape[axis]);
  Strides others = x.strides;
  others[axis] = 0;
  const int64_t x_row = x.strides[axis];
  const StridedLoop<3> nest(y.shape, {&y.strides, &others, &index.strides});
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1), index_step = nest.ndim ? step_of(nest, 2) : 0;
  visit_bits(y.dtype, [&]<class Bits> {
    parallel_runs(nest, [&](const int64_t* at, int64_t count) {
      Bits* to = y.as<Bits>() + at[0];
      const Bits* from = x.as<Bits>() + at[1];
      const int64_t* places = index.as<int64_t>() + at[2];
      if (index_step == 0) write_run(from + *places * x_row, x_step, to, y_step, count, Store());
      else
        for (int64_t i = 0; i < count; ++i) to[i * y_step] = from[places[i * index_step] * x_row + i * x_step];
    });
  });
}

void OpenmpBackend::scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) {
  EventScope event("scatter", "openmp", "loops", {&x, &index, &y}, accumulate ? x.numel() : 0);
  check_index(index, axis, y.shape[axis]);
  if (accumulate) visit(y.dtype, [&]<class T> { scatter_by<T>(x, axis, index, y, Add()); });
  else visit_bits(y.dtype, [&]<class Bits> { scatter_by<Bits>(x, axis, index, y, Store()); });
}

void OpenmpBackend::nonzero(const View& x, const MutableView& positions) {
  if (!(x.strides == contiguous_strides(x.shape)) || !(positions.strides == contiguous_strides(positions.shape)))
    return NaiveBackend::nonzero(x, positions);
  EventScope event("nonzero", "openmp", "chunks", {&x, &positions});
  const bool* data = x.as<bool>();
  const int64_t numel = x.numel(), columns = x.ndim();
  std::vector<int64_t> starts(static_cast<size_t>((numel + kGrain - 1) / kGrain) + 1, 0);
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
