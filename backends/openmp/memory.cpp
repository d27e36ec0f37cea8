// fill and copy: elements are moved by size; conversion is one loop for every pair of types.
#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/observer.h>
#include <gradus/core/parallel.h>

namespace gradus {
namespace {

using namespace openmp;

constexpr int64_t kChunk = 16384;  // elements that are worth a chunk of parallel work

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

// Images from channels-last to contiguous memory or back: a transposition each. False where they are not such.
template <class T>
bool transpose_images(const View& x, const MutableView& y) {
  if (x.ndim() != 4) return false;
  const int64_t channels = x.shape[1], pixels = x.shape[2] * x.shape[3];
  const auto rows_follow = [](const StridedLayout& v) { return v.strides[2] == v.shape[3] * v.strides[3]; };
  const auto is_planes = [](const StridedLayout& v) { return v.strides[3] == 1; };
  const auto is_pixels = [](const StridedLayout& v) { return v.strides[1] == 1; };
  const bool to_planes = is_pixels(x) && is_planes(y), to_pixels = is_planes(x) && is_pixels(y);
  if (to_planes == to_pixels || !rows_follow(x) || !rows_follow(y) || channels * pixels == 0) return false;
  const Kernels<T>& kernels = kernels_of<T>(kernel_table());
  parallel_for(x.shape[0], divide_up(kChunk, channels * pixels), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* from = x.as<T>() + n * x.strides[0];
      T* to = y.as<T>() + n * y.strides[0];
      if (to_planes) kernels.transpose(from, x.strides[3], pixels, channels, to, y.strides[1]);
      else kernels.transpose(from, x.strides[1], channels, pixels, to, y.strides[3]);
    }
  });
  return true;
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
  if (x.dtype == DType::f32 && transpose_images<float>(x, y)) return;
  if (x.dtype == DType::f64 && transpose_images<double>(x, y)) return;
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
