// What the element-wise kernels share: a parallel walk over runs of elements, and blocks of elements in the type that
// they are computed in. Three types suffice: float (and the half types), double, int64 (and all narrower integers, for
// which wrapping at the end is the same as wrapping at every step).
#pragma once

#include <algorithm>
#include <cstring>

#include <gradus/core/parallel.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/core/strided_loop.h>

namespace gradus::openmp {

/// Elements of a chunk of parallel work, and of a block that is converted at a time.
inline constexpr int64_t kGrain = 16384, kBlock = 512;

/// Calls f.template operator()<C>() with the type that `dtype` computes in.
template <class F>
decltype(auto) visit_compute(DType dtype, F&& f) {
  if (dtype == DType::f64) return f.template operator()<double>();
  if (is_floating(dtype)) return f.template operator()<float>();
  return f.template operator()<int64_t>();
}

/// Calls f.template operator()<T>() with the element types that compute in C.
template <class C, class F>
void visit_stored(DType dtype, F&& f) {
  if constexpr (std::is_same_v<C, double>) {
    f.template operator()<double>();
  } else if constexpr (std::is_same_v<C, float>) {
    if (dtype == DType::f16) f.template operator()<Half>();
    else if (dtype == DType::bf16) f.template operator()<BFloat16>();
    else f.template operator()<float>();
  } else {
    if (dtype == DType::i32) f.template operator()<int32_t>();
    else if (dtype == DType::u8) f.template operator()<uint8_t>();
    else if (dtype == DType::boolean) f.template operator()<bool>();
    else f.template operator()<int64_t>();
  }
}

/// Elements offset, offset + step, … of `data`, as they are where that is possible, else converted into `buffer`.
template <class C>
const C* load_block(const void* data, DType dtype, int64_t offset, int64_t step, int64_t count, C* buffer) {
  if (step == 1 && dtype == dtype_of<C>) return static_cast<const C*>(data) + offset;
  visit_stored<C>(dtype, [&]<class T> {
    const T* from = static_cast<const T*>(data) + offset;
    if (step == 0) std::fill_n(buffer, count, static_cast<C>(*from));
    else if (step == 1)
      for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<C>(from[i]);
    else
      for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<C>(from[i * step]);
  });
  return buffer;
}

/// The other way.
template <class C>
void store_block(const C* buffer, void* data, DType dtype, int64_t offset, int64_t step, int64_t count) {
  visit_stored<C>(dtype, [&]<class T> {
    T* to = static_cast<T*>(data) + offset;
    if constexpr (std::is_same_v<T, C>)
      if (step == 1) return static_cast<void>(std::memcpy(to, buffer, static_cast<size_t>(count) * sizeof(T)));
    for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<T>(buffer[i]);
  });
}

/// A reference to a callable void(const int64_t* offsets, int64_t count); does not own it.
class RunFunction {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RunFunction>)
      RunFunction(F&& f)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, const int64_t* offsets, int64_t count) {
          (*static_cast<std::remove_reference_t<F>*>(object))(offsets, count);
        }) {}
  void operator()(const int64_t* offsets, int64_t count) const { call_(object_, offsets, count); }

 private:
  void* object_;
  void (*call_)(void*, const int64_t*, int64_t);
};

/// Calls run(offsets, count) for elements [begin, end) of the nest, cut where the innermost axis ends: `count` elements,
/// of which operand k's start at offsets[k] and are loop.strides[k][loop.ndim - 1] apart.
template <int N>
void for_each_run(const StridedLoop<N>& loop, int64_t begin, int64_t end, RunFunction run) {
  const int64_t inner = loop.ndim > 0 ? loop.shape[loop.ndim - 1] : 1;
  while (begin < end) {
    const int64_t column = begin % inner, count = std::min(inner - column, end - begin);
    int64_t offsets[N] = {};
    int64_t index = begin / inner;
    for (int k = 0; k < N && loop.ndim > 0; ++k) offsets[k] = column * loop.strides[k][loop.ndim - 1];
    for (int axis = loop.ndim - 2; axis >= 0; --axis) {
      const int64_t at = index % loop.shape[axis];
      index /= loop.shape[axis];
      for (int k = 0; k < N; ++k) offsets[k] += at * loop.strides[k][axis];
    }
    run(offsets, count);
    begin += count;
  }
}

/// The same over the whole nest, by several threads.
template <int N>
void parallel_runs(const StridedLoop<N>& loop, RunFunction run) {
  parallel_for(loop.numel, kGrain, [&](int64_t begin, int64_t end) { for_each_run(loop, begin, end, run); });
}

/// Step of operand k within a run.
template <int N>
int64_t step_of(const StridedLoop<N>& loop, int k) {
  return loop.ndim > 0 ? loop.strides[k][loop.ndim - 1] : 1;
}

}  // namespace gradus::openmp
