// The kernels that write memory without arithmetic on arrays: fill, copy and arange.
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>

namespace gradus {

using namespace naive_detail;

void NaiveBackend::fill(const MutableView& y, const Scalar& value) {
  NaiveEvent event("fill", {&y});
  visit(y.dtype, [&]<class T> {
    const T element = value.cast<T>();
    T* out = y.as<T>();
    for_each(y.shape, {&y.strides}, [&](const int64_t* at) { out[at[0]] = element; });
  });
}

void NaiveBackend::copy(const View& x, const MutableView& y) {
  NaiveEvent event("copy", {&x, &y});
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
  NaiveEvent event("arange", {&y});
  visit(y.dtype, [&]<class T> {
    using A = accumulate_t<T>;
    const A first = start.cast<A>(), difference = step.cast<A>();
    T* out = y.as<T>();
    loop(y.shape[0], [&](int64_t i) {
      out[i * y.strides[0]] = scalar::convert<T>(static_cast<A>(first + static_cast<A>(i) * difference));
    });
  });
}

}  // namespace gradus
