// Element-wise array operators. Each one handles broadcasting, type promotion and layout, then calls the backend once.
#pragma once

#include <gradus/core/ops/operands.h>

namespace gradus::ops {

/// torch.result_type of two arrays: a 0-d array counts only if its kind (bool, integer, floating) is higher.
DType result_type(const Array& a, const Array& b);

/// op(x). Functions with fractional results (exp, sqrt, …) convert integers to float32. If `into` is given, it is
/// checked, receives the result and is returned.
Array unary(UnaryOp op, const Array& x, const UnaryArgs& args = {}, const Array* into = nullptr);
/// dy * op'(saved); see Backend::unary_backward.
Array unary_backward(UnaryOp op, const Array& dy, const Array& saved, const UnaryArgs& args = {});
/// op(a, b), broadcast. div and atan2 of integers give float32; predicates give booleans.
Array binary(BinaryOp op, const Array& a, const Array& b, const Array* into = nullptr);
/// Integer division a / b, broadcast, rounded towards 0.
Array divide_integers(const Array& a, const Array& b);
/// op(a, scalar), or op(scalar, a).
Array binary_scalar(BinaryOp op, const Array& a, const Scalar& scalar, bool scalar_first = false,
                    const Array* into = nullptr);
/// condition ? a : b, broadcast; condition is boolean.
Array where(const Array& condition, const Array& a, const Array& b);

/// x converted to `dtype`; x itself if it has that type already.
Array cast(const Array& x, DType dtype);
/// Writes x (broadcast and converted) into `into`; the two may be on different devices.
void copy_into(const Array& into, const Array& x, bool non_blocking = false);
/// A copy with x's layout if x is dense, else row-major.
Array clone(const Array& x);
/// A copy that is contiguous in `format`.
Array clone(const Array& x, MemoryFormat format);
/// x itself if it is contiguous in `format`, else a contiguous copy.
Array contiguous(const Array& x, MemoryFormat format = MemoryFormat::contiguous);
/// x on `device`; x itself if it is there already.
Array to_device(const Array& x, Device device, bool non_blocking = false);
/// The single element of x, copied to the host.
Scalar item(const Array& x);

}  // namespace gradus::ops
