// y[n, c, p, q] = sum over r, s of rows.weight[r] columns.weight[s] x[n, c, rows.source[r], columns.source[s]], where r
// and s run over the stencils' entries for p and q.
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {

void NaiveBackend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  EventScope event("resample2d", "naive", "loops", {&x, &y}, 2 * y.numel());
  visit_floating(y.dtype, [&]<class T> {
    for (int64_t n = 0; n < y.shape[0]; ++n)
      for (int64_t c = 0; c < y.shape[1]; ++c) {
        const T* plane = x.as<T>() + n * x.strides[0] + c * x.strides[1];
        for (int64_t p = 0; p < y.shape[2]; ++p)
          for (int64_t q = 0; q < y.shape[3]; ++q) {
            double sum = 0;
            for (auto r = static_cast<size_t>(rows.begin[static_cast<size_t>(p)]);
                 r < static_cast<size_t>(rows.begin[static_cast<size_t>(p) + 1]); ++r)
              for (auto s = static_cast<size_t>(columns.begin[static_cast<size_t>(q)]);
                   s < static_cast<size_t>(columns.begin[static_cast<size_t>(q) + 1]); ++s) {
                const int64_t at = rows.source[r] * x.strides[2] + columns.source[s] * x.strides[3];
                sum += rows.weight[r] * columns.weight[s] * static_cast<double>(plane[at]);
              }
            y.as<T>()[n * y.strides[0] + c * y.strides[1] + p * y.strides[2] + q * y.strides[3]] =
                scalar::convert<T>(sum);
          }
      }
  });
}

}  // namespace gradus
