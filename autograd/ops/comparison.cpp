// Comparisons, logical operators, and where().
#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/operand.h>
#include <gradus/core/binary_ops.h>
#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>

namespace gradus {

void check_operands(const Operand& a, const Operand& b) {
  GRADUS_CHECK((!a.tensor || a.tensor->defined()) && (!b.tensor || b.tensor->defined()), ValueError,
               "an operand is undefined");
}

Scalar number_of(const Scalar& number, DType dtype) {
  ops::check_fits(number, dtype);
  return is_floating(dtype) ? number : Scalar(number.to_int64());
}

Tensor number_tensor(const Scalar& number) { return Tensor(ops::full({}, number, number.dtype())); }

Tensor as_tensor(const Operand& x, const Operand& other, Device device) {
  if (x.tensor) return *x.tensor;
  const DType type = other.tensor ? promote_with_scalar(other.tensor->dtype(), x.scalar) : x.scalar.dtype();
  return Tensor(ops::full({}, x.scalar, type, device));
}

namespace {

struct Compare final : Node {  // booleans and integers: no gradient
  Array forward(const Array& a, const Array& b, BinaryOp op) { return ops::binary(op, a, b); }
  Array forward(const Array& a, BinaryOp op, const Scalar& s, bool first) {
    return ops::binary_scalar(op, a, s, first);
  }
};

struct Where final : Node {  // y = condition ? a : b
  Saved condition{this, "condition"};
  Array forward(const Array& c, const Array& a, const Array& b) {
    condition = c;
    return ops::where(c, a, b);
  }
  Grads backward(const Tensor& dy) override {
    return {Tensor(), needs_grad(1) ? where(condition(), dy, 0.0) : Tensor(),
            needs_grad(2) ? where(condition(), 0.0, dy) : Tensor()};
  }
};

Tensor compare(const char* name, BinaryOp op, const Operand& a, const Operand& b) {
  OpScope scope(name, line_of(a, b));
  check_operands(a, b);
  if (a.tensor && b.tensor) return apply<Compare>(scope, *a.tensor, *b.tensor, op);
  if (a.tensor) return apply<Compare>(scope, *a.tensor, op, b.scalar, false);
  if (b.tensor) return apply<Compare>(scope, *b.tensor, op, a.scalar, true);
  return apply<Compare>(scope, number_tensor(a.scalar), op, b.scalar, false);
}

}  // namespace

// Defines the functions and methods listed in core/binary_ops.h.
#define GRADUS_COMPARISON(op, ...)                                                           \
  Tensor op(const Operand& a, const Operand& b) { return compare(#op, BinaryOp::op, a, b); } \
  Tensor Tensor::op(const Operand& other) const { return gradus::op(Operand(*this, Loc{}), other); }
GRADUS_BINARY_COMPARISONS(GRADUS_COMPARISON)
#undef GRADUS_COMPARISON

Tensor bitwise_not(const Tensor& x, Loc where) {
  OpScope op("bitwise_not", where);
  GRADUS_CHECK(!is_floating(x.dtype()), DTypeError, "bitwise operations need integers or booleans, got ", x.dtype());
  return x.dtype() == DType::boolean ? logical_not(x) : -1 - x;  // two's complement
}

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  OpScope op("where", line_of(a, b));
  check_operands(a, b);
  return apply<Where>(op, condition, as_tensor(a, b, condition.device()), as_tensor(b, a, condition.device()));
}

}  // namespace gradus
