// y[…, m, n] = sum over k of a[…, m, k] b[…, k, n]
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>

namespace gradus {

using namespace naive_detail;

void NaiveBackend::matmul(const View& a, const View& b, const MutableView& y, bool accumulate) {
  const int row = y.ndim() - 2, column = y.ndim() - 1;
  const int64_t M = y.shape[row], N = y.shape[column], K = a.shape[column];
  NaiveEvent event("matmul", {&a, &b, &y}, 2 * y.numel() * K);

  Shape batch = y.shape;  // only the leading axes, for the loop over matrices
  batch[row] = batch[column] = 1;
  visit_numeric(y.dtype, [&]<class T> {
    using A = accumulate_t<T>;
    for_each(batch, {&a.strides, &b.strides, &y.strides}, [&](const int64_t* at) {
      const auto from_a = [&](int64_t m, int64_t k) {
        return static_cast<A>(a.as<T>()[at[0] + m * a.strides[row] + k * a.strides[column]]);
      };
      const auto from_b = [&](int64_t k, int64_t n) {
        return static_cast<A>(b.as<T>()[at[1] + k * b.strides[row] + n * b.strides[column]]);
      };
      for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; ++n) {
          T& out = y.as<T>()[at[2] + m * y.strides[row] + n * y.strides[column]];
          A total = accumulate ? static_cast<A>(out) : A(0);
          for (int64_t k = 0; k < K; ++k) total += from_a(m, k) * from_b(k, n);
          out = scalar::convert<T>(total);
        }
    });
  });
}

}  // namespace gradus
