#include <gradus/core/ops/ops.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::ops {

using enum BinaryOp;
using enum UnaryOp;
namespace {

// A view of x without the axes in `mask`, which have size 1.
Array drop_axes(const Array& x, uint32_t mask) {
  Shape shape;
  Strides strides;
  for (int i = 0; i < x.ndim(); ++i)
    if (!(mask & (1u << i))) shape.push_back(x.shape()[i]), strides.push_back(x.strides()[i]);
  return Array(x.storage(), x.offset(), shape, strides, x.dtype());
}

int64_t reduced_count(const Shape& shape, uint32_t mask) {
  int64_t count = 1;
  for (int i = 0; i < shape.size(); ++i)
    if (mask & (1u << i)) count *= shape[i];
  return count;
}

// The terms of a sum or product of type `dtype`. Kernels convert integers to integers themselves.
Array as_terms(const Array& x, DType dtype) {
  const bool integers = !is_floating(x.dtype()) && !is_floating(dtype) && dtype != DType::boolean;
  return integers ? x : cast(x, dtype);
}

}  // namespace

Array reduce(ReduceOp op, const Array& x, uint32_t mask, bool keepdim, DType dtype) {
  const bool extreme = op == ReduceOp::max || op == ReduceOp::min, test = op == ReduceOp::all || op == ReduceOp::any;
  const bool empty = reduced_count(x.shape(), mask) == 0;
  GRADUS_CHECK(!extreme || !empty, ShapeError, "maximum or minimum of no elements: shape ", x.shape(),
               " is empty along the reduced dimensions");
  GRADUS_CHECK(op != ReduceOp::mean || is_floating(dtype), DTypeError, "mean needs a floating type, got ", dtype,
               "; pass a dtype or convert with .to(kFloat)");
  const Array operand = test ? x : as_terms(x, dtype);
  Array y = x.new_empty(reduced_shape(x.shape(), mask, true), dtype);
  if (y.numel() > 0) backend_of(x).reduce(op, operand, mask, y);
  return keepdim ? y : drop_axes(y, mask);
}

bool all_true(const Array& x) {
  return item(reduce(ReduceOp::all, x, axis_mask({}, x.ndim()), false, DType::boolean)).to_bool();
}

std::tuple<Array, Array> arg_reduce(ArgReduceOp op, const Array& x, int axis, bool keepdim) {
  GRADUS_CHECK(x.ndim() == 0 || x.shape()[axis] > 0, ShapeError, "maximum or minimum of no elements: dimension ", axis,
               " of shape ", x.shape(), " is empty");
  if (x.ndim() == 0) return {clone(x), zeros({}, DType::i64, x.device())};
  const Shape shape = reduced_shape(x.shape(), 1u << axis, true);
  Array values = x.new_empty(shape), indices = x.new_empty(shape, DType::i64);
  if (values.numel() > 0) backend_of(x).arg_reduce(op, x, axis, values, indices);
  if (keepdim) return {values, indices};
  return {drop_axes(values, 1u << axis), drop_axes(indices, 1u << axis)};
}

namespace {

// Half types are widened before elements are squared or raised to a power, because their range is small.
Array widened(const Array& x) { return cast(x, x.dtype() == DType::f64 ? DType::f64 : DType::f32); }

// True if some element of y, the square root of a sum of squares, is so small or large that the squares may have left
// the range of y's type. Always false on a GPU, where the host would have to wait for y; there such results are
// infinite or 0, as in PyTorch. y must be dense.
bool squares_left_range(const Array& y) {
  if (!y.device().is_cpu() || is_recording(DeviceType::cpu)) return false;
  return visit_floating(y.dtype(), [&]<class T> {
    if constexpr (!std::is_floating_point_v<T>) return false;
    else {
      const T least = std::is_same_v<T, float> ? T(1e-17) : T(1e-145), most = std::numeric_limits<T>::max();
      const T* values = y.data<T>();
      bool left = false;
      for (int64_t i = 0; i < y.numel(); ++i) left |= values[i] < least || values[i] > most;
      return left;
    }
  });
}

// Computes f(x / s) s, which equals f(x) if f(c x) = c f(x) for c > 0. s is the largest |x| along the axes in `mask`,
// or 1 if that is 0 or infinite. f reduces these axes and keeps them with size 1.
template <class F>
Array by_scaling(const Array& x, uint32_t mask, bool keepdim, F&& f) {
  const Array largest = reduce(ReduceOp::max, unary(abs, x), mask, true, x.dtype());
  const Array one = full({}, 1.0, x.dtype(), x.device());
  const Array scalable = where(unary(isfinite, largest), largest, one);
  const Array s = where(binary_scalar(eq, scalable, 0), one, scalable);
  const Array y = binary(mul, f(binary(div, x, s)), s);
  return keepdim ? y : drop_axes(y, mask);
}

// sqrt(sum of x² / by)
Array root_of_squares(const Array& x, uint32_t mask, bool keepdim, double by) {
  const Array sum = reduce(ReduceOp::sum, unary(square, x), mask, keepdim, x.dtype());
  return unary(sqrt, by == 1 ? sum : binary_scalar(div, sum, by));
}
// root_of_squares that is also correct if squares leave the range of x's type.
Array safe_root_of_squares(const Array& x, uint32_t mask, bool keepdim, double by) {
  const Array y = root_of_squares(x, mask, keepdim, by);
  if (x.numel() == 0 || !squares_left_range(y)) return y;
  return by_scaling(x, mask, keepdim, [&](const Array& scaled) { return root_of_squares(scaled, mask, true, by); });
}

Array centred(const Array& x, uint32_t mask) {
  return binary(sub, x, reduce(ReduceOp::mean, x, mask, true, x.dtype()));
}

}  // namespace

Array variance(const Array& x, uint32_t mask, bool keepdim, double correction) {
  check_floating(x, "the tensor");
  const Array powers = unary(square, centred(widened(x), mask));
  const Array squares = reduce(ReduceOp::sum, powers, mask, keepdim, powers.dtype());
  const double count = static_cast<double>(reduced_count(x.shape(), mask));
  return cast(binary_scalar(div, squares, std::max(0.0, count - correction)), x.dtype());
}

Array deviation(const Array& x, uint32_t mask, bool keepdim, double correction) {
  check_floating(x, "the tensor");
  const double by = std::max(0.0, static_cast<double>(reduced_count(x.shape(), mask)) - correction);
  return cast(safe_root_of_squares(centred(widened(x), mask), mask, keepdim, by), x.dtype());
}

Array norm(const Array& x, double p, uint32_t mask, bool keepdim) {
  check_floating(x, "the tensor");
  const Array wide = widened(x);
  const auto total = [&](const Array& of) { return reduce(ReduceOp::sum, of, mask, keepdim, wide.dtype()); };
  if (p == 0) return cast(total(cast(binary_scalar(ne, wide, 0), wide.dtype())), x.dtype());
  if (p == 2) return cast(safe_root_of_squares(wide, mask, keepdim, 1), x.dtype());
  const Array powers = binary_scalar(pow, unary(abs, wide), p);
  return cast(binary_scalar(pow, total(powers), 1 / p), x.dtype());
}

Array logsumexp(const Array& x, uint32_t mask, bool keepdim) {
  const Array wide = widened(x);
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : get_default_dtype();
  if (reduced_count(x.shape(), mask) == 0)
    return full(reduced_shape(x.shape(), mask, keepdim), -HUGE_VAL, dtype, x.device());
  const Array largest = reduce(ReduceOp::max, wide, mask, true, wide.dtype());
  // An infinite maximum is not subtracted, because infinity - infinity is NaN.
  const Array shift = where(unary(isinf, largest), full({}, 0.0, wide.dtype(), x.device()), largest);
  const Array powers = unary(exp, binary(sub, wide, shift));
  const Array logarithm = unary(log, reduce(ReduceOp::sum, powers, mask, true, wide.dtype()));
  const Array y = cast(binary(add, logarithm, shift), dtype);
  return keepdim ? y : drop_axes(y, mask);
}

Array scan(ScanOp op, const Array& x, int axis, bool reverse, DType dtype) {
  const Array operand = as_terms(x, dtype);
  Array y = output_like(x.shape(), dtype, x.device(), {&x});
  if (y.numel() > 0) backend_of(x).scan(op, operand, axis, reverse, y);
  return y;
}

Array linear_recurrence(const Array& a, const Array& b, int axis, bool reverse) {
  Array y = output_like(b.shape(), b.dtype(), b.device(), {&b});
  if (y.numel() > 0) backend_of(b).linear_recurrence(a, b, axis, reverse, y);
  return y;
}

}  // namespace gradus::ops
