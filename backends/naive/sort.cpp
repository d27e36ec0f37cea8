// Sorting along an axis: indices are sorted by the elements that they refer to.
#include <algorithm>
#include <numeric>
#include <vector>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {

void NaiveBackend::sort(const View& x, int axis, bool descending, const MutableView& values,
                        const MutableView& indices) {
  EventScope event("sort", "naive", "loops", {&x, &indices}, x.numel());
  const int64_t size = x.ndim() ? x.shape[axis] : 1;
  const auto step_of = [&](const StridedLayout& view) { return x.ndim() ? view.strides[axis] : 0; };
  const Strides& value_strides = values.data ? values.strides : indices.strides;
  visit(x.dtype, [&]<class T> {
    using C = compute_t<T>;
    const auto less = [](C a, C b) { return a < b || (scalar::is_nan(b) && !scalar::is_nan(a)); };
    std::vector<int64_t> order(static_cast<size_t>(size));
    if (size == 0) return;
    naive_detail::for_each(naive_detail::without_axis(x.shape, axis), {&x.strides, &indices.strides, &value_strides},
                           [&](const int64_t* at) {
                             const T* in = x.as<T>() + at[0];
                             const auto element = [&](int64_t i) { return static_cast<C>(in[i * step_of(x)]); };
                             std::iota(order.begin(), order.end(), 0);
                             std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
                               return descending ? less(element(j), element(i)) : less(element(i), element(j));
                             });
                             for (int64_t i = 0; i < size; ++i) {
                               const int64_t from = order[static_cast<size_t>(i)];
                               indices.as<int64_t>()[at[1] + i * step_of(indices)] = from;
                               if (values.data) values.as<T>()[at[2] + i * step_of(values)] = in[from * step_of(x)];
                             }
                           });
  });
}

}  // namespace gradus
