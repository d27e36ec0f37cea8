#include <gradus/core/ops/ops.h>

#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::ops {

using enum BinaryOp;
namespace {

int kind(DType dtype) { return is_floating(dtype) ? 2 : dtype == DType::boolean ? 0 : 1; }

// Calls `compute` to write into `into` (through a temporary if the types differ), or into a new result.
template <class Compute>
Array produce(const Shape& shape, DType dtype, Device device, std::initializer_list<const Array*> operands,
              const Array* into, Compute&& compute) {
  if (!into) {
    Array y = output_like(shape, dtype, device, operands);
    if (y.numel() > 0) compute(y);
    return y;
  }
  check_into(*into, shape, dtype);
  into->bump_version();
  if (into->numel() == 0) return *into;
  if (into->dtype() == dtype) {
    compute(*into);
  } else {
    Array y = output_like(shape, dtype, device, operands);
    compute(y);
    backend_of(y).copy(y, *into);
  }
  return *into;
}

// Returns a copy of x if x shares memory with `into` but is another view of it: a kernel that writes `into` could
// otherwise overwrite elements of x before it reads them.
Array apart_from(const Array& x, const Array* into) {
  if (!into || !(x.storage() == into->storage())) return x;
  const bool same = x.offset() == into->offset() && x.shape() == into->shape() && x.strides() == into->strides();
  return same ? x : clone(x);
}

// The operand that the kernel reads: x in `dtype`, broadcast to `shape`, and not overlapping `into`. Usually this is x
// itself; otherwise the converted array is stored in `room`.
const Array& operand(const Array& x, DType dtype, const Shape& shape, const Array* into, Array* room) {
  if (x.dtype() == dtype && x.shape() == shape && (!into || !(x.storage() == into->storage()))) [[likely]]
    return x;
  return *room = apart_from(cast(x, dtype).expand(shape), into);
}

// The type in which `op` computes if the promoted type of the operands is `dtype`.
DType compute_type(BinaryOp op, DType dtype) {
  GRADUS_CHECK(op != sub || dtype != DType::boolean, DTypeError,
               "subtraction of booleans is not defined; use logical operators or convert with .to(kInt)");
  GRADUS_CHECK(!needs_integral(op) || !is_floating(dtype), DTypeError,
               "bitwise operations need integers or booleans, got ", dtype);
  return !is_floating(dtype) && (op == div || needs_floating(op)) ? get_default_dtype() : dtype;
}

// Throws a ValueError if integers are divided by 0, on the CPU only: on a GPU the host would have to wait for the
// result of this check. There, as in PyTorch, the quotient is 0.
void check_divisor(BinaryOp op, DType compute, const Array& b) {
  const bool divides = op == div || op == fmod || op == remainder;
  if (!divides || is_floating(compute) || !b.device().is_cpu()) return;
  GRADUS_CHECK(all_true(b), ValueError, "integers cannot be divided by 0");
}

// op(a, b), broadcast, computed in the type `compute`.
Array binary_in(DType compute, BinaryOp op, const Array& a, const Array& b, const Array* into) {
  const Shape shape = broadcast_shapes(a.shape(), b.shape());
  if (numel_of(shape) > 0) check_divisor(op, compute, b);
  const DType dtype = is_predicate(op) ? DType::boolean : compute;
  Array left_room, right_room;
  const Array& left = operand(a, compute, shape, into, &left_room);
  const Array& right = operand(b, compute, shape, into, &right_room);
  return produce(shape, dtype, a.device(), {&a, &b}, into,
                 [&](const Array& y) { backend_of(a).binary(op, left, right, y); });
}

}  // namespace

DType result_type(const Array& a, const Array& b) {
  const bool scalar_a = a.ndim() == 0, scalar_b = b.ndim() == 0;
  if (scalar_a == scalar_b) return promote_types(a.dtype(), b.dtype());
  const DType array = scalar_a ? b.dtype() : a.dtype(), scalar = scalar_a ? a.dtype() : b.dtype();
  return kind(scalar) > kind(array) ? promote_types(array, scalar) : array;
}

Array unary(UnaryOp op, const Array& x, const UnaryArgs& args, const Array* into) {
  GRADUS_CHECK(x.dtype() != DType::boolean || is_predicate(op) || needs_floating(op), DTypeError, name(op),
               " of booleans is not defined; convert with .to(kFloat) or use logical_not");
  const DType compute = needs_floating(op) && !is_floating(x.dtype()) ? get_default_dtype() : x.dtype();
  Array room;
  const Array& from = operand(x, compute, x.shape(), into, &room);
  const DType dtype = is_predicate(op) ? DType::boolean : compute;
  return produce(x.shape(), dtype, x.device(), {&x}, into,
                 [&](const Array& y) { backend_of(x).unary(op, from, y, args); });
}

Array unary_backward(UnaryOp op, const Array& dy, const Array& saved, const UnaryArgs& args) {
  return produce(dy.shape(), dy.dtype(), dy.device(), {&saved, &dy}, nullptr,
                 [&](const Array& dx) { backend_of(dy).unary_backward(op, dy, saved, dx, args); });
}

Array binary(BinaryOp op, const Array& a, const Array& b, const Array* into) {
  // A 0-d array on the host combines with an array on any device.
  const DType dtype = result_type(a, b);
  if (!(a.device() == b.device())) {
    const auto is_number = [](const Array& x) { return x.ndim() == 0 && x.device().is_cpu() && x.dtype() != kBool; };
    if (is_number(b)) return binary_scalar(op, cast(a, dtype), item(b), false, into);
    if (is_number(a)) return binary_scalar(op, cast(b, dtype), item(a), true, into);
    check_same_device({&a, &b});
  }
  return binary_in(compute_type(op, dtype), op, a, b, into);
}

Array divide_integers(const Array& a, const Array& b) {
  check_same_device({&a, &b});
  return binary_in(result_type(a, b), div, a, b, nullptr);
}

Array binary_scalar(BinaryOp op, const Array& a, const Scalar& scalar, bool scalar_first, const Array* into) {
  const DType compute = compute_type(op, promote_with_scalar(a.dtype(), scalar));
  const DType dtype = is_predicate(op) ? DType::boolean : compute;
  Array room;
  const Array& from = operand(a, compute, a.shape(), into, &room);
  return produce(a.shape(), dtype, a.device(), {&a}, into,
                 [&](const Array& y) { backend_of(a).binary_scalar(op, from, scalar, scalar_first, y); });
}

Array where(const Array& condition, const Array& a, const Array& b) {
  check_same_device({&condition, &a, &b});
  GRADUS_CHECK(condition.dtype() == DType::boolean || condition.dtype() == DType::u8, DTypeError,
               "condition must be boolean (or uint8), got ", condition.dtype());
  const DType dtype = result_type(a, b);
  const Shape shape = broadcast_shapes(condition.shape(), broadcast_shapes(a.shape(), b.shape()));
  return produce(shape, dtype, a.device(), {&a, &b, &condition}, nullptr, [&](const Array& y) {
    backend_of(a).where(cast(condition, DType::boolean).expand(shape), cast(a, dtype).expand(shape),
                        cast(b, dtype).expand(shape), y);
  });
}

Array cast(const Array& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return produce(x.shape(), dtype, x.device(), {&x}, nullptr, [&](const Array& y) { backend_of(x).copy(x, y); });
}

void copy_into(const Array& into, const Array& x, bool non_blocking) {
  GRADUS_CHECK(broadcast_shapes(into.shape(), x.shape()) == into.shape(), ShapeError, "shape ", x.shape(),
               " does not broadcast to the destination's ", into.shape());
  into.bump_version();
  if (into.numel() == 0) return;
  if (into.device() == x.device()) {
    backend_of(into).copy(apart_from(x.expand(into.shape()), &into), into);
    return;
  }
  // Copies between devices move one contiguous block: convert and pack on the source, then unpack on the destination.
  const Array packed = contiguous(cast(x, into.dtype()).expand(into.shape()));
  if (into.is_contiguous()) {
    DeviceRuntime& mover = runtime(into.device().is_cuda() ? into.device().type() : x.device().type());
    mover.copy(into.data(), into.device(), packed.data(), packed.device(), packed.nbytes(), non_blocking);
    return;
  }
  const Array landed = into.new_empty(into.shape());
  copy_into(landed, packed);
  backend_of(into).copy(landed, into);
}

// Copies x into y, a new array of the same shape on the same device.
static Array filled(Array y, const Array& x) {
  if (y.numel() > 0) backend_of(x).copy(x, y);
  return y;
}

Array clone(const Array& x) { return filled(Array::empty_like(x), x); }
Array clone(const Array& x, MemoryFormat format) { return filled(x.new_empty(x.shape(), format), x); }

Array contiguous(const Array& x, MemoryFormat format) { return x.is_contiguous(format) ? x : clone(x, format); }

Array to_device(const Array& x, Device device, bool non_blocking) {
  device = settled(device);
  if (x.device() == device) return x;
  const Array dense = x.is_dense() ? x : contiguous(x);
  Array y = Array::empty_like(dense);
  y = Array(Storage::allocate(dense.nbytes(), device), 0, dense.shape(), y.strides(), dense.dtype());
  if (y.numel() > 0) {
    DeviceRuntime& mover = runtime(device.is_cuda() ? device.type() : x.device().type());
    mover.copy(y.data(), device, dense.data(), dense.device(), dense.nbytes(), non_blocking);
  }
  return y;
}

Scalar item(const Array& x) {
  GRADUS_CHECK(x.numel() == 1, ShapeError, "item() needs a tensor with one element, got shape ", x.shape());
  check_not_recording(x.device().type(), "reading a number");
  const Array here = to_device(x, Device());
  return visit(here.dtype(), [&]<class T>() { return Scalar(*static_cast<const T*>(here.data())); });
}

}  // namespace gradus::ops
