// Element-wise kernels: the formulas of core/formulas/scalar_unary.h and core/formulas/scalar_binary.h applied to
// vectors of contiguous elements. Results may be in the same memory as an operand.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/erf_kernel.h>
#include <gradus/backends/openmp/simd/lanes.h>
#include <gradus/backends/openmp/simd/log_kernel.h>
#include <gradus/backends/openmp/simd/pow_kernel.h>
#include <gradus/backends/openmp/simd/trig_kernel.h>
#include <gradus/core/formulas/scalar_binary.h>
#include <gradus/core/formulas/scalar_unary.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// Stores the results of a formula: numbers, or masks as booleans 1 or 0.
template <class T, class Some>
inline void put_results(Some lanes, T* to, Lanes<T> y) {
  lanes.put(to, y.v);
}
template <class T, class Some>
inline void put_results(Some lanes, bool* to, Mask<T> where) {
  using Bytes = typename VectorOf<T>::Bytes;
  const Bytes bytes = __builtin_convertvector(where & 1, Bytes);
  if (lanes.count == kLanes<T>) __builtin_memcpy(to, &bytes, kLanes<T>);
  else
    for (int64_t i = 0; i < lanes.count; ++i) to[i] = bytes[i] != 0;
}

// Arguments are copied to locals, which stay in registers because the stores cannot change them.

template <class T, UnaryOp op, class To>
void unary(const T* x, To* y, int64_t count, const UnaryArgs& arguments) {
  const UnaryArgs args = arguments;
  for_lanes<T>(count, [&](int64_t i, auto lanes) {
    put_results<T>(lanes, y + i, scalar::Unary<op>::apply(Lanes<T>(lanes.get(x + i)), args));
  });
}

template <class T, UnaryOp op>
void unary_backward(const T* dy, const T* saved, T* dx, int64_t count, const UnaryArgs& arguments) {
  const UnaryArgs args = arguments;
  for_lanes<T>(count, [&](int64_t i, auto lanes) {
    const Lanes<T> g = lanes.get(dy + i), v = lanes.get(saved + i);
    lanes.put(dx + i, scalar::backward<op>(g, v, args).v);
  });
}

template <class T, BinaryOp op, class To>
void binary(const T* a, const T* b, To* y, int64_t count) {
  for_lanes<T>(count, [&](int64_t i, auto lanes) {
    const Lanes<T> u = lanes.get(a + i), v = lanes.get(b + i);
    put_results<T>(lanes, y + i, scalar::Binary<op>::apply(u, v));
  });
}

// The kernels of one op, and the tables of all ops.

template <class T, UnaryOp op>
constexpr UnaryKernels<T> unary_kernels() {
  if constexpr (is_predicate(op)) return {.predicate = unary<T, op, bool>};
  else return {.apply = unary<T, op, T>, .backward = unary_backward<T, op>};
}
template <class T, BinaryOp op>
constexpr BinaryKernels<T> binary_kernels() {
  if constexpr (needs_integral(op)) return {};
  else if constexpr (is_predicate(op)) return {.predicate = binary<T, op, bool>};
  else return {.apply = binary<T, op, T>};
}
// clang-format off
#define GRADUS_UNARY(op, ...) unary_kernels<T, UnaryOp::op>(),
template <class T> constexpr UnaryKernels<T> kUnaryTable[] = {GRADUS_UNARY_OPS(GRADUS_UNARY)};
#undef GRADUS_UNARY
#define GRADUS_BINARY(op, ...) binary_kernels<T, BinaryOp::op>(),
template <class T> constexpr BinaryKernels<T> kBinaryTable[] = {GRADUS_BINARY_OPS(GRADUS_BINARY)};
#undef GRADUS_BINARY
// clang-format on

/// y[i] = condition[i] ? a[i] : b[i], copied bit by bit; an operand with step 0 is a single value. The double kernel
/// serves all 8-byte types, the float kernel all 4-byte types.
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
