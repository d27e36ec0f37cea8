// Running totals along an axis. Rows are shared out among the threads; rows that are neighbours in memory go together,
// so that the inner loop runs over them. A row is one chain of sums, whatever the number of threads.
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/observer.h>
#include <gradus/core/wrapping.h>

namespace gradus {

using namespace openmp_detail;

void OpenmpBackend::scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) {
  if (is_floating(x.dtype) && !is_floating(y.dtype)) return NaiveBackend::scan(op, x, axis, reverse, y);
  EventScope event(op == ScanOp::sum ? "cumsum" : "cumprod", "openmp", "loops", {&x, &y}, x.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1, x_along = step_along(x, axis), y_along = step_along(y, axis);
  const StridedLoop<2> nest(rows_of(y.shape, axis), {&y.strides, &x.strides});
  if (size == 0 || nest.numel == 0) return;
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1);
  // At a time: a block of one row, or, where neighbours are closer than the elements of a row, an element of several.
  const bool apart = x_step >= x_along;
  const int64_t together = apart ? 1 : 64, block = apart ? kBlock : 1;
  const auto scan_rows = [&]<class C, class U>(const int64_t* at, int64_t rows) {  // loads as C, stores as U
    using A = accumulator_t<U>;
    C x_buffer[kBlock];
    U results[kBlock];
    A totals[kBlock];
    std::fill_n(totals, rows, op == ScanOp::sum ? A(0) : A(1));
    for (int64_t done = 0, count; done < size; done += count) {
      count = std::min(block, size - done);
      const int64_t first = reverse ? size - done - count : done;
      const C* from = load_block(x, at[1] + first * x_along, apart ? x_along : x_step, count * rows, x_buffer);
      const auto next = [&](A& total, int64_t k) {
        const A element = static_cast<A>(from[k]);
        total = op == ScanOp::sum ? total + element : wrapping_product(total, element);
        results[k] = static_cast<U>(total);
      };
      if (apart)
        for (int64_t i = 0; i < count; ++i) next(totals[0], reverse ? count - 1 - i : i);
      else
        for (int64_t row = 0; row < rows; ++row) next(totals[row], row);
      store_block(results, y, at[0] + first * y_along, apart ? y_along : y_step, count * rows);
    }
  };
  visit_compute(x.dtype, [&]<class C> {
    visit_compute(y.dtype, [&]<class U> {
      const auto scan_run = [&](const int64_t* at, int64_t run) {
        for (int64_t i = 0; i < run; i += together) {
          const int64_t offsets[] = {at[0] + i * y_step, at[1] + i * x_step};
          scan_rows.template operator()<C, U>(offsets, std::min(together, run - i));
        }
      };
      parallel_runs(nest, scan_run, round_up(ceil_div(kGrain, size), together));
    });
  });
}

}  // namespace gradus
