// fill and copy: elements are moved by size; conversion is one loop for every pair of types.
#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp;

template <class F>
void visit_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
}

template <class From, class To>
void convert_run(const From* from, int64_t from_step, To* to, int64_t to_step, int64_t count) {
  if (from_step == 1 && to_step == 1)
    for (int64_t i = 0; i < count; ++i) to[i] = scalar::convert<To>(from[i]);
  else
    for (int64_t i = 0; i < count; ++i) to[i * to_step] = scalar::convert<To>(from[i * from_step]);
}

}  // namespace

void OpenmpBackend::fill(const MutableView& y, const Scalar& value) {
  EventScope event("fill", "openmp", "loops", {&y});
  uint64_t element = 0;
  visit(y.dtype, [&]<class T> {
    const T converted = value.to<T>();
    std::memcpy(&element, &converted, sizeof converted);
  });
  const StridedLoop<1> nest(y.shape, {&y.strides});
  const int64_t step = step_of(nest, 0);
  visit_bits(y.dtype, [&]<class Bits> {
    Bits bits;
    std::memcpy(&bits, &element, sizeof bits);
    parallel_runs(nest, [&](const int64_t* at, int64_t count) {
      Bits* out = y.as<Bits>() + at[0];
      if (step == 1) std::fill_n(out, count, bits);
      else
        for (int64_t i = 0; i < count; ++i) out[i * step] = bits;
    });
  });
}

void OpenmpBackend::copy(const View& x, const MutableView& y) {
  EventScope event("copy", "openmp", "loops", {&x, &y});
  const StridedLoop<2> nest(y.shape, {&y.strides, &x.strides});
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1);
  if (x.dtype != y.dtype) {
    visit(x.dtype, [&]<class From> {
      visit(y.dtype, [&]<class To> {
        parallel_runs(nest, [&](const int64_t* at, int64_t count) {
          convert_run(x.as<From>() + at[1], x_step, y.as<To>() + at[0], y_step, count);
        });
      });
    });
    return;
  }
  visit_bits(y.dtype, [&]<class Bits> {
    parallel_runs(nest, [&](const int64_t* at, int64_t count) {
      Bits* out = y.as<Bits>() + at[0];
      const Bits* in = x.as<Bits>() + at[1];
      if (y_step == 1 && x_step == 1) std::memmove(out, in, static_cast<size_t>(count) * sizeof(Bits));
      else if (y_step == 1 && x_step == 0) std::fill_n(out, count, *in);
      else
        for (int64_t i = 0; i < count; ++i) out[i * y_step] = in[i * x_step];
    });
  });
}

}  // namespace gradus
