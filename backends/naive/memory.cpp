// fill, copy and arange.
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {

using naive_detail::for_each;

void NaiveBackend::fill(const MutableView& y, const Scalar& value) {
  EventScope event("fill", "naive", "loops", {&y});
  visit(y.dtype, [&]<class T> {
    const T element = value.cast<T>();
    T* out = y.as<T>();
    for_each(y.shape, {&y.strides}, [&](const int64_t* at) { out[at[0]] = element; });
  });
}

void NaiveBackend::copy(const View& x, const MutableView& y) {
  EventScope event("copy", "naive", "loops", {&x, &y});
  visit(x.dtype, [&]<class From> {
    visit(y.dtype, [&]<class To> {
      const From* in = x.as<From>();
      To* out = y.as<To>();
      for_each(y.shape, {&x.strides, &y.strides},
               [&](const int64_t* at) { out[at[1]] = scalar::convert<To>(in[at[0]]); });
    });
  });
}

void NaiveBackend::arange(const MutableView& y, const Scalar& start, const Scalar& step) {
  EventScope event("arange", "naive", "loops", {&y});
  visit(y.dtype, [&]<class T> {
    using A = naive_detail::accumulate_t<T>;
    const A first = start.cast<A>(), difference = step.cast<A>();
    T* out = y.as<T>();
    naive_detail::loop(y.shape[0], [&](int64_t i) {
      out[i * y.strides[0]] = scalar::convert<T>(static_cast<A>(first + static_cast<A>(i) * difference));
    });
  });
}

}  // namespace gradus
