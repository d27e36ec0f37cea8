// Reductions: the outer loop runs over the elements of the result, the inner loop over the elements of x that are
// reduced to one element of the result.
// Scans: running sums and products along an axis, and the linear recurrence y[k] = b[k] + a[k] y[k - 1].
// Sorting along an axis: the indices are sorted by the elements that they refer to.
#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/formulas/scalar_binary.h>

namespace gradus {

using namespace naive_detail;
namespace {

// Calls f.template operator()<A>() with the type in which sums and products of elements of type T accumulate if the
// result has type `dtype`.
template <class T, class F>
void visit_total(DType dtype, F&& f) {
  if (is_floating(dtype)) f.template operator()<double>();
  else f.template operator()<accumulate_t<T>>();
}

// Writes element `offset` of y. Called for each result instead of compiling the loops for each type of y.
template <class A>
void put(const MutableView& y, int64_t offset, A value) {
  visit(y.dtype, [&]<class U> { y.as<U>()[offset] = scalar::convert<U>(value); });
}

// Computes each element of y from the elements of x that are reduced to it: total = start(index of the first one),
// then total = step(total, element) for all of them, the first included, then y = finish(total).
template <class T, class Start, class Step, class Finish = std::identity>
void fold(const View& x, uint32_t axes, const MutableView& y, const Start& start, const Step& step,
          const Finish& finish = {}) {
  const Shape inner = only_axes(x.shape, axes);
  for_each(y.shape, {&x.strides, &y.strides}, [&](const int64_t* outer) {
    auto total = start(outer[0]);
    for_each(inner, {&x.strides}, [&](const int64_t* at) { total = step(total, x.as<T>()[outer[0] + at[0]]); });
    put(y, outer[1], finish(total));
  });
}

template <class T, class A>
void accumulate(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) {
  const auto count = static_cast<double>(numel_of(only_axes(x.shape, axes)));
  const auto start = [&](int64_t) { return A(op == ReduceOp::prod); };  // 1 for products, 0 for sums
  const auto step = [&](A total, T element) {
    return op == ReduceOp::prod ? wrapping_product(total, static_cast<A>(element)) : total + static_cast<A>(element);
  };
  const auto finish = [&](A total) {
    return op == ReduceOp::mean ? static_cast<A>(static_cast<double>(total) / count) : total;  // NaN for no elements
  };
  fold<T>(x, axes, y, start, step, finish);
}

template <BinaryOp op, class T>
void extreme(const View& x, uint32_t axes, const MutableView& y) {
  using C = compute_t<T>;
  const auto start = [&](int64_t first) { return static_cast<C>(x.as<T>()[first]); };
  const auto step = [](C best, T element) { return scalar::Binary<op>::apply(best, static_cast<C>(element)); };
  fold<T>(x, axes, y, start, step);
}

// all: no element is zero. any: some element is not zero.
template <class T>
void logical(const View& x, uint32_t axes, bool all, const MutableView& y) {
  const auto start = [&](int64_t) { return all; };
  const auto step = [&](bool result, T element) {
    const bool is_set = scalar::convert<bool>(element);
    return all ? result && is_set : result || is_set;
  };
  fold<T>(x, axes, y, start, step);
}

// The indices of a row in the order of its elements. Equal elements keep their order; NaN is larger than all numbers.
template <class A>
std::vector<int64_t> sorted_order(const std::vector<A>& row, bool descending) {
  const auto less = [](A a, A b) { return a < b || (scalar::is_nan(b) && !scalar::is_nan(a)); };
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t i, int64_t j) {
    const A a = row[static_cast<size_t>(i)], b = row[static_cast<size_t>(j)];
    return descending ? less(b, a) : less(a, b);
  });
  return order;
}

}  // namespace

void NaiveBackend::reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) {
  NaiveEvent event(gradus::name(op), {&x, &y}, x.numel());
  visit(x.dtype, [&]<class T> {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::mean:
      case ReduceOp::prod: return visit_total<T>(y.dtype, [&]<class A> { accumulate<T, A>(op, x, axes, y); });
      case ReduceOp::max: return extreme<BinaryOp::maximum, T>(x, axes, y);
      case ReduceOp::min: return extreme<BinaryOp::minimum, T>(x, axes, y);
      case ReduceOp::all: return logical<T>(x, axes, true, y);
      case ReduceOp::any: return logical<T>(x, axes, false, y);
    }
  });
}

void NaiveBackend::arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                              const MutableView& indices) {
  NaiveEvent event(op == ArgReduceOp::argmax ? "argmax" : "argmin", {&x, &indices}, x.numel());
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
  NaiveEvent event(op == ScanOp::sum ? "cumsum" : "cumprod", {&x, &y}, x.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1;
  const int64_t x_step = y.ndim() ? x.strides[axis] : 0, y_step = y.ndim() ? y.strides[axis] : 0;
  visit(x.dtype, [&]<class T> {
    visit_total<T>(y.dtype, [&]<class A> {
      for_each(without_axis(y.shape, axis), {&x.strides, &y.strides}, [&](const int64_t* at) {
        A total = op == ScanOp::sum ? 0 : 1;
        for (int64_t i = 0; i < size; ++i) {
          const int64_t k = reverse ? size - 1 - i : i;
          const A element = static_cast<A>(x.as<T>()[at[0] + k * x_step]);
          total = op == ScanOp::sum ? total + element : wrapping_product(total, element);
          put(y, at[1] + k * y_step, total);
        }
      });
    });
  });
}

void NaiveBackend::linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) {
  NaiveEvent event("linear_recurrence", {&a, &b, &y}, 2 * y.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1;
  const auto step_of = [&](const StridedLayout& view) { return y.ndim() ? view.strides[axis] : 0; };
  visit(y.dtype, [&]<class T> {
    using A = accumulate_t<T>;
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

void NaiveBackend::sort(const View& x, int axis, bool descending, const MutableView& values,
                        const MutableView& indices) {
  NaiveEvent event("sort", {&x, &indices}, x.numel());
  const int64_t size = x.ndim() ? x.shape[axis] : 1;
  const auto step_of = [&](const StridedLayout& view) { return x.ndim() ? view.strides[axis] : 0; };
  const Strides& value_strides = values.data ? values.strides : indices.strides;
  visit(x.dtype, [&]<class T> {
    std::vector<accumulate_t<T>> row(static_cast<size_t>(size));
    if (size == 0) return;
    const Shape outer = without_axis(x.shape, axis);
    for_each(outer, {&x.strides, &indices.strides, &value_strides}, [&](const int64_t* at) {
      const T* in = x.as<T>() + at[0];
      for (int64_t i = 0; i < size; ++i)
        row[static_cast<size_t>(i)] = scalar::convert<accumulate_t<T>>(in[i * step_of(x)]);
      const std::vector<int64_t> order = sorted_order(row, descending);
      for (int64_t i = 0; i < size; ++i) {
        const int64_t from = order[static_cast<size_t>(i)];
        indices.as<int64_t>()[at[1] + i * step_of(indices)] = from;
        if (values.data) values.as<T>()[at[2] + i * step_of(values)] = in[from * step_of(x)];
      }
    });
  });
}

}  // namespace gradus
