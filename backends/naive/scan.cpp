// Running sums and products along an axis, and the linear recurrence y[k] = b[k] + a[k] y[k - 1].
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/formulas/wrapping.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {

using naive_detail::for_each;
using naive_detail::without_axis;

void NaiveBackend::scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) {
  EventScope event(op == ScanOp::sum ? "cumsum" : "cumprod", "naive", "loops", {&x, &y}, x.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1;
  const int64_t x_step = y.ndim() ? x.strides[axis] : 0, y_step = y.ndim() ? y.strides[axis] : 0;
  visit(x.dtype, [&]<class T> {
    visit(y.dtype, [&]<class U> {
      using A = std::conditional_t<is_floating(dtype_of<U>), double, naive_detail::accumulate_t<T>>;
      if (size == 0) return;
      for_each(without_axis(y.shape, axis), {&x.strides, &y.strides}, [&](const int64_t* at) {
        A total = op == ScanOp::sum ? 0 : 1;
        for (int64_t i = 0; i < size; ++i) {
          const int64_t k = reverse ? size - 1 - i : i;
          const A element = static_cast<A>(x.as<T>()[at[0] + k * x_step]);
          total = op == ScanOp::sum ? total + element : wrapping_product(total, element);
          y.as<U>()[at[1] + k * y_step] = scalar::convert<U>(total);
        }
      });
    });
  });
}

void NaiveBackend::linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) {
  EventScope event("linear_recurrence", "naive", "loops", {&a, &b, &y}, 2 * y.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1;
  const auto step_of = [&](const StridedLayout& view) { return y.ndim() ? view.strides[axis] : 0; };
  visit(y.dtype, [&]<class T> {
    using A = naive_detail::accumulate_t<T>;
    if (size == 0) return;
    for_each(without_axis(y.shape, axis), {&a.strides, &b.strides, &y.strides}, [&](const int64_t* at) {
      A total = 0;
      for (int64_t i = 0; i < size; ++i) {
        const int64_t k = reverse ? size - 1 - i : i;
        const A weight = static_cast<A>(a.as<T>()[at[0] + k * step_of(a)]);
        const A start = static_cast<A>(b.as<T>()[at[1] + k * step_of(b)]);
        total = i == 0 ? start : start + weight * total;
        y.as<T>()[at[2] + k * step_of(y)] = scalar::convert<T>(total);
      }
    });
  });
}

}  // namespace gradus
