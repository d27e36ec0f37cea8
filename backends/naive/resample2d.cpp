// y[n, c, p, q] = sum over r, s of rows.weight[r] columns.weight[s] x[n, c, rows.source[r], columns.source[s]], where r
// and s run over the stencils' entries for p and q.
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {

void NaiveBackend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  EventScope event("resample2d", "naive", "loops", {&x, &y}, 2 * y.numel());
  visit_floating(y.dtype, [&]<class T> {
    naive_detail::loop_4d(y.shape, [&](int64_t n, int64_t c, int64_t p, int64_t q) {
      double sum = 0;
      for (auto r = static_cast<size_t>(rows.begin[static_cast<size_t>(p)]);
           r < static_cast<size_t>(rows.begin[static_cast<size_t>(p) + 1]); ++r)
        for (auto s = static_cast<size_t>(columns.begin[static_cast<size_t>(q)]);
             s < static_cast<size_t>(columns.begin[static_cast<size_t>(q) + 1]); ++s)
          sum += rows.weight[r] * columns.weight[s] *
                 static_cast<double>(naive_detail::at<T>(x, n, c, rows.source[r], columns.source[s]));
      naive_detail::at<T>(y, n, c, p, q) = scalar::convert<T>(sum);
    });
  });
}

}  // namespace gradus
