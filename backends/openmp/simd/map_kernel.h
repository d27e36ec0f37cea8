// Element-wise kernels: the formulas of core/scalar_unary.h and core/scalar_binary.h a vector at a time, over
// contiguous elements. Results may be the same memory as an operand.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/erf_kernel.h>
#include <gradus/backends/openmp/simd/lanes.h>
#include <gradus/backends/openmp/simd/log_kernel.h>
#include <gradus/backends/openmp/simd/pow_kernel.h>
#include <gradus/backends/openmp/simd/trig_kernel.h>
#include <gradus/core/scalar_binary.h>
#include <gradus/core/scalar_unary.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// y[i] = f(x[i]) and y[i] = f(a[i], b[i]), a vector at a time.
template <class T, class F>
inline void map(const T* x, T* y, int64_t count, F f) {
  for_lanes<T>(count, [&](int64_t i, auto lanes) { lanes.put(y + i, f(lanes.get(x + i))); });
}
template <class T, class F>
inline void map(const T* a, const T* b, T* y, int64_t count, F f) {
  for_lanes<T>(count, [&](int64_t i, auto lanes) { lanes.put(y + i, f(lanes.get(a + i), lanes.get(b + i))); });
}

/// Truths as booleans, 1 or 0; all of them or the first `count`.
template <class T>
inline void store_truths(bool* to, Mask<T> where, int64_t count) {
  using Bytes = typename VectorOf<T>::Bytes;
  const Bytes bytes = __builtin_convertvector(where & 1, Bytes);
  if (count == kLanes<T>) __builtin_memcpy(to, &bytes, kLanes<T>);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = bytes[i] != 0;
}

// Arguments are copied, so that the stores cannot change them: they stay in registers.

template <class T, UnaryOp op>
void unary(const T* x, T* y, int64_t count, const UnaryArgs& arguments) {
  const UnaryArgs args = arguments;
  map(x, y, count, [&](Vector<T> v) { return scalar::Unary<op>::apply(Lanes<T>(v), args).v; });
}

template <class T, UnaryOp op>
void unary_backward(const T* dy, const T* saved, T* dx, int64_t count, const UnaryArgs& arguments) {
  const UnaryArgs args = arguments;
  map(dy, saved, dx, count, [&](Vector<T> g, Vector<T> v) {
    if constexpr (op == UnaryOp::relu)
      return v > Vector<T>{} ? g : Vector<T>{};  // an infinite gradient times 0 is 0 here
    else return g * scalar::Unary<op>::derivative(Lanes<T>(v), args).v;
  });
}

template <class T, UnaryOp op>
void unary_predicate(const T* x, bool* y, int64_t count, const UnaryArgs& arguments) {
  const UnaryArgs args = arguments;
  for_lanes<T>(count, [&](int64_t i, auto lanes) {
    store_truths<T>(y + i, scalar::Unary<op>::apply(Lanes<T>(lanes.get(x + i)), args), lanes.count);
  });
}

template <class T, BinaryOp op>
void binary(const T* a, const T* b, T* y, int64_t count) {
  map(a, b, y, count, [](Vector<T> u, Vector<T> v) { return scalar::Binary<op>::apply(Lanes<T>(u), Lanes<T>(v)).v; });
}

template <class T, BinaryOp op>
void binary_predicate(const T* a, const T* b, bool* y, int64_t count) {
  for_lanes<T>(count, [&](int64_t i, auto lanes) {
    const Lanes<T> u = lanes.get(a + i), v = lanes.get(b + i);
    store_truths<T>(y + i, scalar::Binary<op>::apply(u, v), lanes.count);
  });
}

// The kernels of an op, and the tables of all.

template <class T, UnaryOp op>
constexpr UnaryKernels<T> unary_kernels() {
  if constexpr (is_predicate(op)) return {.predicate = unary_predicate<T, op>};
  else return {.apply = unary<T, op>, .backward = unary_backward<T, op>};
}
template <class T, BinaryOp op>
constexpr BinaryKernels<T> binary_kernels() {
  if constexpr (needs_integral(op)) return {};
  else if constexpr (is_predicate(op)) return {.predicate = binary_predicate<T, op>};
  else return {.apply = binary<T, op>};
}
template <class T, int... op>
constexpr std::array<UnaryKernels<T>, kUnaryOps> unary_table(Indices<op...>) {
  return {{unary_kernels<T, static_cast<UnaryOp>(op)>()...}};
}
template <class T, int... op>
constexpr std::array<BinaryKernels<T>, kBinaryOps> binary_table(Indices<op...>) {
  return {{binary_kernels<T, static_cast<BinaryOp>(op)>()...}};
}

/// y[i] = condition[i] ? a[i] : b[i], bit by bit; an operand with step 0 is one number. Doubles are used for any eight
/// bytes, floats for four.
template <class T>
void choose(const bool* condition, const T* a, int64_t a_step, const T* b, int64_t b_step, T* y, int64_t count) {
  using Bytes = typename VectorOf<T>::Bytes;
  const Vector<T> all_a = broadcast(*a), all_b = broadcast(*b);
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    Bytes bytes;
    __builtin_memcpy(&bytes, condition + i, kLanes<T>);
    const Mask<T> where = __builtin_convertvector(bytes, Mask<T>) != 0;
    const Vector<T> left = a_step ? load(a + i) : all_a, right = b_step ? load(b + i) : all_b;
    store<T>(y + i, where ? left : right);
  }
  for (; i < count; ++i) __builtin_memcpy(y + i, condition[i] ? a + i * a_step : b + i * b_step, sizeof(T));
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
