// Comparisons, logic, and the choice between two.
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

Tensor eq(const Operand& a, const Operand& b) { return compare("eq", BinaryOp::eq, a, b); }
Tensor ne(const Operand& a, const Operand& b) { return compare("ne", BinaryOp::ne, a, b); }
Tensor lt(const Operand& a, const Operand& b) { return compare("lt", BinaryOp::lt, a, b); }
Tensor le(const Operand& a, const Operand& b) { return compare("le", BinaryOp::le, a, b); }
Tensor gt(const Operand& a, const Operand& b) { return compare("gt", BinaryOp::gt, a, b); }
Tensor ge(const Operand& a, const Operand& b) { return compare("ge", BinaryOp::ge, a, b); }
Tensor logical_and(const Operand& a, const Operand& b) { return compare("logical_and", BinaryOp::logical_and, a, b); }
Tensor logical_or(const Operand& a, const Operand& b) { return compare("logical_or", BinaryOp::logical_or, a, b); }
Tensor logical_xor(const Operand& a, const Operand& b) { return compare("logical_xor", BinaryOp::logical_xor, a, b); }

Tensor bitwise_and(const Operand& a, const Operand& b) { return compare("bitwise_and", BinaryOp::bitwise_and, a, b); }
Tensor bitwise_or(const Operand& a, const Operand& b) { return compare("bitwise_or", BinaryOp::bitwise_or, a, b); }
Tensor bitwise_xor(const Operand& a, const Operand& b) { return compare("bitwise_xor", BinaryOp::bitwise_xor, a, b); }
Tensor bitwise_not(const Tensor& x, Loc where) {
  OpScope op("bitwise_not", where);
  GRADUS_CHECK(!is_floating(x.dtype()), DTypeError, "integers and booleans have bits, ", x.dtype(), " has not");
  return x.dtype() == DType::boolean ? logical_not(x) : -1 - x;  // two's complement
}

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  OpScope op("where", line_of(a, b));
  check_operands(a, b);
  return apply<Where>(op, condition, as_tensor(a, b, condition.device()), as_tensor(b, a, condition.device()));
}

}  // namespace gradus
