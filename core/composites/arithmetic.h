// Helpers for the default bodies of Backend's composites. A body writes its formula with primitives, so it runs on
// every backend. It may allocate scratch memory, but it never copies a value to the host, so it can be captured into a
// graph. Operands of half types, and of integer types unless the formula is defined for integers, are first converted
// to float32.
#pragma once

#include <utility>

#include <gradus/core/backend.h>
#include <gradus/core/op_lists.h>

namespace gradus::composites {

/// The type that a formula on `dtype` computes in.
constexpr DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// A view of the same memory with another shape and other strides.
template <class AnyView>
AnyView reshaped(AnyView view, const Shape& shape, const Strides& strides) {
  view.shape = shape;
  view.strides = strides;
  return view;
}

/// `view` broadcast to `shape`.
inline View expanded(const View& view, const Shape& shape) {
  const int lead = shape.size() - view.ndim();
  Strides strides = Dims::filled(shape.size(), 0);
  for (int i = lead; i < shape.size(); ++i)
    if (view.shape[i - lead] == shape[i]) strides[i] = view.strides[i - lead];
  return reshaped(view, shape, strides);
}

/// `view` with its last two axes exchanged.
inline View transposed(View view) {
  const int rows = view.ndim() - 2, columns = view.ndim() - 1;
  std::swap(view.shape[rows], view.shape[columns]);
  std::swap(view.strides[rows], view.strides[columns]);
  return view;
}

/// A vector as an array of `ndim` axes: `axis` has the vector's size, the others have size 1.
template <class AnyView>
AnyView along(const AnyView& vector, int axis, int ndim) {
  Shape shape = Dims::filled(ndim, 1);
  Strides strides = Dims::filled(ndim, 0);
  shape[axis] = vector.shape[0];
  strides[axis] = vector.strides[0];
  return reshaped(vector, shape, strides);
}

/// An uninitialised array with the shape of `view`. It has the strides of `view` if these leave no gaps in memory;
/// otherwise it is row-major.
Array empty_like(const View& view);

/// A 0-d view of entry `index` of a step block. The indices are named in StepBlock (core/kernel_args.h).
template <class AnyView>
AnyView entry(const AnyView& block, int index) {
  return reshaped(narrow(block, 0, index, 1), {}, {});
}

/// A mask of axes (bit i is axis i) that contains only `axis`; 0 for a scalar, which has no axes.
constexpr uint32_t bit(int axis, int ndim) { return ndim ? 1u << axis : 0; }

/// Array arithmetic on one backend. Every result is a newly allocated array.
class Arithmetic {
 public:
  explicit Arithmetic(Backend& backend) : backend_(backend) {}

  Array cast(const View& x, DType dtype) const {
    Array y = Array::empty(x.shape, dtype, x.device);
    backend_.copy(x, y);
    return y;
  }
  /// x converted to wide_type(x.dtype), the type that formulas compute in.
  Array widen(const View& x) const { return cast(x, wide_type(x.dtype)); }

  Array operator()(UnaryOp op, const View& x) const {
    Array y = result_of(op, x.shape, x);
    backend_.unary(op, x, y, {});
    return y;
  }
  Array operator()(BinaryOp op, const View& a, const View& b) const {
    const Shape shape = broadcast_shapes(a.shape, b.shape);
    Array y = result_of(op, shape, a);
    backend_.binary(op, expanded(a, shape), expanded(b, shape), y);
    return y;
  }
  Array operator()(BinaryOp op, const View& a, const Scalar& scalar) const {
    Array y = result_of(op, a.shape, a);
    backend_.binary_scalar(op, a, scalar, /*scalar_first=*/false, y);
    return y;
  }
  Array operator()(BinaryOp op, const Scalar& scalar, const View& b) const {
    Array y = result_of(op, b.shape, b);
    backend_.binary_scalar(op, b, scalar, /*scalar_first=*/true, y);
    return y;
  }
  Array reduce(ReduceOp op, const View& x, uint32_t axes) const {
    Array y = Array::empty(x.ndim() ? reduced_shape(x.shape, axes, true) : Shape(), x.dtype, x.device);
    backend_.reduce(op, x, axes, y);
    return y;
  }
  /// y = condition ? a : b
  void where(const View& condition, const View& a, const View& b, const MutableView& y) const {
    backend_.where(expanded(condition, y.shape), expanded(a, y.shape), expanded(b, y.shape), y);
  }
  Array where(const View& condition, const View& a, const View& b) const {
    const Shape shape = broadcast_shapes(condition.shape, broadcast_shapes(a.shape, b.shape));
    Array y = Array::empty(shape, a.dtype, condition.device);
    where(condition, a, b, y);
    return y;
  }
  Array scalar(const Scalar& value, DType dtype, Device device) const {
    Array y = Array::empty({}, dtype, device);
    backend_.fill(y, value);
    return y;
  }

 private:
  template <class Op>
  static Array result_of(Op op, const Shape& shape, const View& x) {
    return Array::empty(shape, is_predicate(op) ? DType::boolean : x.dtype, x.device);
  }

  Backend& backend_;
};

}  // namespace gradus::composites
