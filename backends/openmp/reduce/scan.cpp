// Running totals and linear recurrences along an axis. Rows are shared out among the threads; rows that are neighbours
// in memory go together, so that the inner loop runs over them. A row is one chain of sums, whatever the number of
// threads.
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/observer.h>
#include <gradus/core/wrapping.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// Rows that are walked together: a block of them, where neighbours are closer than the elements of a row.
constexpr int64_t kRows = 64;

// Calls walk(offsets, rows) for blocks of at most `together` rows: those of the operand k start at offsets[k] and are
// step_of(nest, k) apart. `size` is a row's length.
template <int N>
void parallel_rows(const StridedLoop<N>& nest, int64_t size, int64_t together, RunFunction walk) {
  const int64_t grain = std::max(together, ceil_div(ceil_div(kGrain, size), together) * together);
  parallel_for(nest.numel, grain, [&](int64_t first, int64_t last) {
    for_each_run(nest, first, last, [&](const int64_t* at, int64_t run) {
      for (int64_t i = 0; i < run; i += together) {
        int64_t offsets[N];
        for (int k = 0; k < N; ++k) offsets[k] = at[k] + i * step_of(nest, k);
        walk(offsets, std::min(together, run - i));
      }
    });
  });
}

// Calls f(first, count, place) for the blocks of a row of `size` elements, from its end where `reverse`; place(i) is
// the i-th element of the block in the direction of the scan.
template <class F>
void for_each_block(int64_t size, bool reverse, F&& f) {
  for (int64_t done = 0; done < size; done += kBlock) {
    const int64_t count = std::min(kBlock, size - done);
    f(reverse ? size - done - count : done, count, [=](int64_t i) { return reverse ? count - 1 - i : i; });
  }
}

}  // namespace

void OpenmpBackend::scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) {
  EventScope event(op == ScanOp::sum ? "cumsum" : "cumprod", "openmp", "loops", {&x, &y}, x.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1, x_along = step_along(x, axis), y_along = step_along(y, axis);
  const StridedLoop<2> nest(rows_of(y.shape, axis), {&y.strides, &x.strides});
  if (size == 0 || nest.numel == 0) return;
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1);
  const auto run_all = [&]<class C, class U>() {  // loads as C, stores as U
    using A = accumulator_t<U>;
    if (x_step >= x_along)
      return parallel_rows(nest, size, 1, [&](const int64_t* at, int64_t) {
        A total = op == ScanOp::sum ? A(0) : A(1);
        C x_buffer[kBlock];
        U results[kBlock];
        for_each_block(size, reverse, [&](int64_t first, int64_t count, auto place) {
          const C* from = load_block(x.data, x.dtype, at[1] + first * x_along, x_along, count, x_buffer);
          for (int64_t i = 0; i < count; ++i) {
            const A element = static_cast<A>(from[place(i)]);
            total = op == ScanOp::sum ? total + element : wrapping_product(total, element);
            results[place(i)] = static_cast<U>(total);
          }
          store_block(results, y.data, y.dtype, at[0] + first * y_along, y_along, count);
        });
      });
    parallel_rows(nest, size, kRows, [&](const int64_t* at, int64_t rows) {
      A totals[kRows];
      C x_buffer[kRows];
      std::fill_n(totals, rows, op == ScanOp::sum ? A(0) : A(1));
      for (int64_t i = 0; i < size; ++i) {
        const int64_t k = reverse ? size - 1 - i : i;
        const C* from = load_block(x.data, x.dtype, at[1] + k * x_along, x_step, rows, x_buffer);
        if (op == ScanOp::sum)
          for (int64_t j = 0; j < rows; ++j) totals[j] += static_cast<A>(from[j]);
        else
          for (int64_t j = 0; j < rows; ++j) totals[j] = wrapping_product(totals[j], static_cast<A>(from[j]));
        U results[kRows];
        for (int64_t j = 0; j < rows; ++j) results[j] = static_cast<U>(totals[j]);
        store_block(results, y.data, y.dtype, at[0] + k * y_along, y_step, rows);
      }
    });
  };
  if (is_floating(x.dtype) && !is_floating(y.dtype)) return NaiveBackend::scan(op, x, axis, reverse, y);
  visit_compute(x.dtype,
                [&]<class C> { visit_compute(y.dtype, [&]<class U> { run_all.template operator()<C, U>(); }); });
}

void OpenmpBackend::linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) {
  EventScope event("linear_recurrence", "openmp", "loops", {&a, &b, &y}, 2 * y.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1;
  const int64_t y_along = step_along(y, axis), a_along = step_along(a, axis), b_along = step_along(b, axis);
  const StridedLoop<3> nest(rows_of(y.shape, axis), {&y.strides, &a.strides, &b.strides});
  if (size == 0 || nest.numel == 0) return;
  const int64_t y_step = step_of(nest, 0), a_step = step_of(nest, 1), b_step = step_of(nest, 2);
  visit_compute(y.dtype, [&]<class C> {
    using A = accumulator_t<C>;
    if (y_step >= y_along)
      return parallel_rows(nest, size, 1, [&](const int64_t* at, int64_t) {
        A total = 0;
        C a_buffer[kBlock], b_buffer[kBlock], results[kBlock];
        for_each_block(size, reverse, [&](int64_t first, int64_t count, auto place) {
          const C* weights = load_block(a.data, a.dtype, at[1] + first * a_along, a_along, count, a_buffer);
          const C* starts = load_block(b.data, b.dtype, at[2] + first * b_along, b_along, count, b_buffer);
          const bool is_start = first == (reverse ? size - count : 0);
          for (int64_t i = 0; i < count; ++i) {
            const A start = static_cast<A>(starts[place(i)]);
            total = is_start && i == 0 ? start : start + static_cast<A>(weights[place(i)]) * total;
            results[place(i)] = static_cast<C>(total);
          }
          store_block(results, y.data, y.dtype, at[0] + first * y_along, y_along, count);
        });
      });
    parallel_rows(nest, size, kRows, [&](const int64_t* at, int64_t rows) {
      A totals[kRows] = {};
      C a_buffer[kRows], b_buffer[kRows], results[kRows];
      for (int64_t i = 0; i < size; ++i) {
        const int64_t k = reverse ? size - 1 - i : i;
        const C* weights = load_block(a.data, a.dtype, at[1] + k * a_along, a_step, rows, a_buffer);
        const C* starts = load_block(b.data, b.dtype, at[2] + k * b_along, b_step, rows, b_buffer);
        for (int64_t j = 0; j < rows; ++j) {
          const A start = static_cast<A>(starts[j]);  // the first weight counts not, were it infinite
          totals[j] = i == 0 ? start : start + static_cast<A>(weights[j]) * totals[j];
          results[j] = static_cast<C>(totals[j]);
        }
        store_block(results, y.data, y.dtype, at[0] + k * y_along, y_step, rows);
      }
    });
  });
}

}  // namespace gradus
