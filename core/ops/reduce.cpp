#include <gradus/core/ops/reduce.h>

#include <algorithm>
#include <cmath>

#include <gradus/core/binary_ops.h>
#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/unary_ops.h>

namespace gradus::ops {
namespace {

// The same elements without the axes of size 1 in `mask`.
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

}  // namespace

Array reduce(ReduceOp op, const Array& x, uint32_t mask, bool keepdim, DType dtype) {
  const bool extreme = op == ReduceOp::max || op == ReduceOp::min, test = op == ReduceOp::all || op == ReduceOp::any;
  const bool empty = reduced_count(x.shape(), mask) == 0;
  GRADUS_CHECK(!extreme || !empty, ShapeError, "maximum or minimum of no elements: shape ", x.shape(),
               " is empty along the reduced dimensions");
  GRADUS_CHECK(op != ReduceOp::mean || is_floating(dtype), DTypeError, "mean needs a floating type, got ", dtype,
               "; pass a dtype or convert with .to(kFloat)");
  if (test) dtype = DType::boolean;
  const bool integers = (op == ReduceOp::sum || op == ReduceOp::prod) && !is_floating(dtype);
  const Array operand = test ? x : cast(x, integers ? x.dtype() : dtype);
  Array y = Array::empty(reduced_shape(x.shape(), mask, true), dtype, x.device());
  if (y.numel() > 0) backend_of(x).reduce(op, operand, mask, y);
  return keepdim ? y : drop_axes(y, mask);
}

std::tuple<Array, Array> arg_reduce(ArgReduceOp op, const Array& x, int axis, bool keepdim) {
  GRADUS_CHECK(x.ndim() == 0 || x.shape()[axis] > 0, ShapeError, "maximum or minimum of no elements: dimension ", axis,
               " of shape ", x.shape(), " is empty");
  if (x.ndim() == 0) return {clone(x), zeros({}, DType::i64, x.device())};
  const Shape shape = reduced_shape(x.shape(), 1u << axis, true);
  Array values = Array::empty(shape, x.dtype(), x.device()), indices = Array::empty(shape, DType::i64, x.device());
  if (values.numel() > 0) backend_of(x).arg_reduce(op, x, axis, values, indices);
  if (keepdim) return {values, indices};
  return {drop_axes(values, 1u << axis), drop_axes(indices, 1u << axis)};
}

namespace {

// Half types are widened where elements are squared or raised to a power: their range is small.
Array widened(const Array& x) { return cast(x, x.dtype() == DType::f64 ? DType::f64 : DType::f32); }

}  // namespace

Array variance(const Array& x, uint32_t mask, bool keepdim, double correction) {
  check_floating(x, "the tensor");
  const Array wide = widened(x);
  const Array centred = binary(BinaryOp::sub, wide, reduce(ReduceOp::mean, wide, mask, true, wide.dtype()));
  const Array squares = reduce(ReduceOp::sum, unary(UnaryOp::square, centred), mask, keepdim, wide.dtype());
  const double count = static_cast<double>(reduced_count(x.shape(), mask));
  return cast(binary_scalar(BinaryOp::div, squares, std::max(0.0, count - correction)), x.dtype());
}

Array norm(const Array& x, double p, uint32_t mask, bool keepdim) {
  check_floating(x, "the tensor");
  const Array wide = widened(x);
  const auto total = [&](const Array& of) { return reduce(ReduceOp::sum, of, mask, keepdim, wide.dtype()); };
  if (p == 0) return cast(total(cast(binary_scalar(BinaryOp::ne, wide, 0), wide.dtype())), x.dtype());
  if (p == 2) return cast(unary(UnaryOp::sqrt, total(unary(UnaryOp::square, wide))), x.dtype());
  const Array powers = binary_scalar(BinaryOp::pow, unary(UnaryOp::abs, wide), p);
  return cast(binary_scalar(BinaryOp::pow, total(powers), 1 / p), x.dtype());
}

Array logsumexp(const Array& x, uint32_t mask, bool keepdim) {
  const Array wide = widened(x);
  if (reduced_count(x.shape(), mask) == 0)
    return full(reduced_shape(x.shape(), mask, keepdim), -HUGE_VAL,
                is_floating(x.dtype()) ? x.dtype() : get_default_dtype(), x.device());
  const Array largest = reduce(ReduceOp::max, wide, mask, true, wide.dtype());
  // Infinite maxima are not subtracted: infinity - infinity is NaN.
  const Array shift = where(unary(UnaryOp::isinf, largest), full({}, 0.0, wide.dtype(), x.device()), largest);
  const Array powers = unary(UnaryOp::exp, binary(BinaryOp::sub, wide, shift));
  const Array log = unary(UnaryOp::log, reduce(ReduceOp::sum, powers, mask, true, wide.dtype()));
  const Array y = cast(binary(BinaryOp::add, log, shift), is_floating(x.dtype()) ? x.dtype() : get_default_dtype());
  return keepdim ? y : drop_axes(y, mask);
}

Array sum_to(const Array& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int lead = x.ndim() - shape.size();
  GRADUS_CHECK(lead >= 0, ShapeError, "cannot sum shape ", x.shape(), " to ", shape);
  uint32_t mask = 0, lead_mask = (1u << lead) - 1;
  for (int i = lead; i < x.ndim(); ++i)
    if (shape[i - lead] == 1 && x.shape()[i] != 1) mask |= 1u << i;
  Array y = (mask | lead_mask) ? reduce(ReduceOp::sum, x, mask | lead_mask, true, x.dtype()) : x;
  return drop_axes(y, lead_mask);
}

}  // namespace gradus::ops
