// Reductions: an outer loop over the elements of the result, an inner loop over the elements that each one reduces.
// Scans: running sums and products along an axis, and the linear recurrence y[k] = b[k] + a[k] y[k - 1].
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/formulas/scalar_binary.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using naive_detail::for_each;

// x's shape with size 1 at the axes that are not reduced.
Shape reduced_sizes(const Shape& shape, uint32_t axes) {
  Shape inner = shape;
  for (int i = 0; i < inner.size(); ++i)
    if (!(axes & (1u << i))) inner[i] = 1;
  return inner;
}

template <class T, class U>
void sum(const View& x, uint32_t axes, bool mean, const MutableView& y) {
  using A = std::conditional_t<is_floating(dtype_of<U>), double, naive_detail::accumulate_t<T>>;
  const Shape inner = reduced_sizes(x.shape, axes);
  const int64_t count = numel_of(inner);
  for_each(y.shape, {&x.strides, &y.strides}, [&](const int64_t* outer) {
    A total = 0;
    for_each(inner, {&x.strides}, [&](const int64_t* at) { total += static_cast<A>(x.as<T>()[outer[0] + at[0]]); });
    if (mean) total = static_cast<double>(total) / static_cast<double>(count);  // 0 / 0 is NaN
    y.as<U>()[outer[1]] = scalar::convert<U>(total);
  });
}

// Maximum or minimum, as a running op(result, element).
template <BinaryOp op, class T>
void extreme(const View& x, uint32_t axes, const MutableView& y) {
  using C = compute_t<T>;
  const Shape inner = reduced_sizes(x.shape, axes);
  for_each(y.shape, {&x.strides, &y.strides}, [&](const int64_t* outer) {
    const T* in = x.as<T>() + outer[0];
    C best = static_cast<C>(in[0]);
    for_each(inner, {&x.strides},
             [&](const int64_t* at) { best = scalar::Binary<op>::apply(best, static_cast<C>(in[at[0]])); });
    y.as<T>()[outer[1]] = static_cast<T>(best);
  });
}

// all: no element is zero. any: some element is not zero.
template <class T>
void logical(const View& x, uint32_t axes, bool all, const MutableView& y) {
  const Shape inner = reduced_sizes(x.shape, axes);
  for_each(y.shape, {&x.strides, &y.strides}, [&](const int64_t* outer) {
    bool result = all;
    for_each(inner, {&x.strides}, [&](const int64_t* at) {
      const bool element = scalar::convert<bool>(x.as<T>()[outer[0] + at[0]]);
      result = all ? result && element : result || element;
    });
    y.as<bool>()[outer[1]] = result;
  });
}

template <class T, class U>
void product(const View& x, uint32_t axes, const MutableView& y) {
  using A = std::conditional_t<is_floating(dtype_of<U>), double, naive_detail::accumulate_t<T>>;
  const Shape inner = reduced_sizes(x.shape, axes);
  for_each(y.shape, {&x.strides, &y.strides}, [&](const int64_t* outer) {
    A total = 1;
    for_each(inner, {&x.strides},
             [&](const int64_t* at) { total = wrapping_product(total, static_cast<A>(x.as<T>()[outer[0] + at[0]])); });
    y.as<U>()[outer[1]] = scalar::convert<U>(total);
  });
}

}  // namespace

void NaiveBackend::reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) {
  EventScope event(gradus::name(op), "naive", "loops", {&x, &y}, x.numel());
  visit(x.dtype, [&]<class T> {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::mean: return visit(y.dtype, [&]<class U> { sum<T, U>(x, axes, op == ReduceOp::mean, y); });
      case ReduceOp::max: return extreme<BinaryOp::maximum, T>(x, axes, y);
      case ReduceOp::min: return extreme<BinaryOp::minimum, T>(x, axes, y);
      case ReduceOp::all: return logical<T>(x, axes, true, y);
      case ReduceOp::any: return logical<T>(x, axes, false, y);
      case ReduceOp::prod: return visit(y.dtype, [&]<class U> { product<T, U>(x, axes, y); });
    }
  });
}

void NaiveBackend::arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                              const MutableView& indices) {
  EventScope event(op == ArgReduceOp::argmax ? "argmax" : "argmin", "naive", "loops", {&x, &indices}, x.numel());
  const int64_t size = x.ndim() ? x.shape[axis] : 1, step = x.ndim() ? x.strides[axis] : 0;
  const Strides& value_strides = values.data ? values.strides : indices.strides;
  visit(x.dtype, [&]<class T> {
    using C = compute_t<T>;
    for_each(indices.shape, {&x.strides, &indices.strides, &value_strides}, [&](const int64_t* at) {
      const T* in = x.as<T>() + at[0];
      int64_t best = 0;
      for (int64_t i = 1; i < size; ++i) {
        const C candidate = static_cast<C>(in[i * step]), leader = static_cast<C>(in[best * step]);
        if (scalar::is_nan(leader)) break;  // the first NaN wins
        const bool beats = op == ArgReduceOp::argmax ? candidate > leader : candidate < leader;
        if (beats || scalar::is_nan(candidate)) best = i;
      }
      indices.as<int64_t>()[at[1]] = best;
      if (values.data) values.as<T>()[at[2]] = in[best * step];
    });
  });
}

void NaiveBackend::scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) {
  EventScope event(op == ScanOp::sum ? "cumsum" : "cumprod", "naive", "loops", {&x, &y}, x.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1;
  const int64_t x_step = y.ndim() ? x.strides[axis] : 0, y_step = y.ndim() ? y.strides[axis] : 0;
  visit(x.dtype, [&]<class T> {
    visit(y.dtype, [&]<class U> {
      using A = std::conditional_t<is_floating(dtype_of<U>), double, naive_detail::accumulate_t<T>>;
      if (size == 0) return;
      for_each(naive_detail::without_axis(y.shape, axis), {&x.strides, &y.strides}, [&](const int64_t* at) {
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
    for_each(naive_detail::without_axis(y.shape, axis), {&a.strides, &b.strides, &y.strides}, [&](const int64_t* at) {
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
