#include <gradus/autograd/ops/elementwise.h>

#include <cmath>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/unary_backward.h>
#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>

namespace gradus {
namespace {

struct Add final : Node {  // y = a + b
  Array forward(const Array& a, const Array& b) { return ops::binary(BinaryOp::add, a, b, destination(a)); }
  Grads backward(const Tensor& dy) override { return {dy, dy}; }
};

struct Sub final : Node {  // y = a - b
  Array forward(const Array& a, const Array& b) { return ops::binary(BinaryOp::sub, a, b, destination(a)); }
  Grads backward(const Tensor& dy) override { return {dy, needs_grad(1) ? -dy : Tensor()}; }
};

struct Mul final : Node {  // y = a b
  Saved a{this, "a"}, b{this, "b"};
  Array forward(const Array& A, const Array& B) {
    if (needs_grad(0)) b = input(1);
    if (needs_grad(1)) a = input(0);
    return ops::binary(BinaryOp::mul, A, B, destination(A));
  }
  Grads backward(const Tensor& dy) override {  // da = dy b,  db = dy a
    return {needs_grad(0) ? dy * b() : Tensor(), needs_grad(1) ? dy * a() : Tensor()};
  }
};

struct Div final : Node {  // y = a / b
  Saved a{this, "a"}, b{this, "b"};
  Array forward(const Array& A, const Array& B) {
    b = input(1);
    if (needs_grad(1)) a = input(0);
    return ops::binary(BinaryOp::div, A, B, destination(A));
  }
  Grads backward(const Tensor& dy) override {  // da = dy / b,  db = -dy a / b²
    return {needs_grad(0) ? dy / b() : Tensor(), needs_grad(1) ? -dy * (a() / b() / b()) : Tensor()};
  }
};

struct AddScalar final : Node {  // y = a + s, a - s
  Array forward(const Array& a, BinaryOp op, const Scalar& s) {
    return ops::binary_scalar(op, a, s, false, destination(a));
  }
  Grads backward(const Tensor& dy) override { return {dy}; }
};

struct RSubScalar final : Node {  // y = s - a
  Array forward(const Array& a, const Scalar& s) { return ops::binary_scalar(BinaryOp::sub, a, s, true); }
  Grads backward(const Tensor& dy) override { return {-dy}; }
};

struct MulScalar final : Node {  // y = a s, a / s
  Scalar s;
  BinaryOp op = BinaryOp::mul;
  Array forward(const Array& a, BinaryOp op, const Scalar& s) {
    this->s = s;
    this->op = op;
    return ops::binary_scalar(op, a, s, false, destination(a));
  }
  Grads backward(const Tensor& dy) override { return {op == BinaryOp::mul ? dy * s : dy / s}; }
};

struct RDivScalar final : Node {  // y = s / b
  Saved b{this, "b"};
  Scalar s;
  Array forward(const Array& B, const Scalar& s) {
    b = input(0);
    this->s = s;
    return ops::binary_scalar(BinaryOp::div, B, s, true);
  }
  Grads backward(const Tensor& dy) override { return {-dy * (s / b() / b())}; }  // db = -dy s / b²
};

struct PowScalar final : Node {  // y = a^n
  Saved a{this, "a"};
  Scalar n;
  Array forward(const Array& A, const Scalar& n) {
    a = input(0);
    this->n = n;
    return ops::binary_scalar(BinaryOp::pow, A, n);
  }
  Grads backward(const Tensor& dy) override {  // da = dy n a^(n - 1); 0 for n = 0, also at a = 0
    const double exponent = n.to_double();
    if (exponent == 0) return {zeros_like(dy)};
    return {dy * (a().pow(exponent - 1) * exponent)};
  }
};

struct RPowScalar final : Node {  // y = s^b
  Saved y{this, "y"}, b{this, "b"};
  Scalar s;
  Array forward(const Array& B, const Scalar& s) {
    b = input(0);
    this->s = s;
    Array Y = ops::binary_scalar(BinaryOp::pow, B, s, true);
    y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {  // db = dy y ln s; at s = 0 the limit 0 where b >= 0
    const double base = s.to_double();
    const Tensor slope = dy * (y() * std::log(base));
    return {base == 0 ? where(b() >= 0, 0.0, slope) : slope};
  }
};

struct Pow final : Node {  // y = a^b
  Saved a{this, "a"}, b{this, "b"}, y{this, "y"};
  Array forward(const Array& A, const Array& B) {
    a = input(0);
    b = input(1);
    Array Y = ops::binary(BinaryOp::pow, A, B);
    if (needs_grad(1)) y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {  // da = dy b a^(b - 1),  db = dy y ln a
    Grads gradients(2);
    if (needs_grad(0)) gradients[0] = where(b() == 0, 0.0, dy * (b() * pow(a(), b() - 1)));
    if (needs_grad(1)) gradients[1] = where((a() == 0).logical_and(b() >= 0), 0.0, dy * (y() * a().log()));
    return gradients;
  }
};

struct Extreme final : Node {  // y = max(a, b) or min(a, b); at a tie each gets half
  Saved a{this, "a"}, b{this, "b"};
  BinaryOp op = BinaryOp::maximum;
  const char* name() const override { return op == BinaryOp::maximum ? "Maximum" : "Minimum"; }
  Array forward(const Array& A, const Array& B, BinaryOp op) {
    a = input(0);
    b = input(1);
    this->op = op;
    return ops::binary(op, A, B);
  }
  Grads backward(const Tensor& dy) override {
    const Tensor A = a().detach(), B = b().detach(), half = where(A == B, dy * 0.5, 0.0);
    const Tensor first = op == BinaryOp::maximum ? A > B : A < B, second = op == BinaryOp::maximum ? A < B : A > B;
    return {where(first, dy, half), where(second, dy, half)};
  }
};

struct Compare final : Node {  // booleans: no gradient
  Array forward(const Array& a, const Array& b, BinaryOp op) { return ops::binary(op, a, b); }
  Array forward(const Array& a, BinaryOp op, const Scalar& s, bool first) {
    return ops::binary_scalar(op, a, s, first);
  }
};

struct Unary final : Node {  // y = op(x); formulas and derivatives in core/scalar_ops.h
  Saved saved{this, "x or y"};
  UnaryOp op = UnaryOp::neg;
  UnaryArgs args;
  const char* name() const override { return gradus::name(op); }
  Array forward(const Array& x, UnaryOp op, const UnaryArgs& args) {
    this->op = op;
    this->args = args;
    const bool keep = needs_grad(0) && op != UnaryOp::neg;  // the derivative of -x needs neither x nor y
    if (keep && !saves_output(op)) saved = input(0);
    Array y = ops::unary(op, x, args, destination(x));
    if (keep && saves_output(op)) saved = own(y);
    return y;
  }
  Grads backward(const Tensor& dy) override {
    return {op == UnaryOp::neg ? -dy : unary_backward(op, dy, saved(), args)};
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

struct UnaryBackward final : Node {  // dx = dy op'(saved), linear in dy; see unary_backward for derivatives
  Array forward(const Array& dy, const Array& saved, UnaryOp op, const UnaryArgs& args) {
    return ops::unary_backward(op, dy, saved, args);
  }
};

// A number where a tensor stands, of the type that promotion gives it.
Tensor number_tensor(const Scalar& number) { return Tensor(ops::full({}, number, number.dtype())); }

Loc line_of(const Operand& a, const Operand& b) { return a.where.line ? a.where : b.where; }

void check_operands(const Operand& a, const Operand& b) {
  GRADUS_CHECK((!a.tensor || a.tensor->defined()) && (!b.tensor || b.tensor->defined()), ValueError,
               "an operand is undefined");
}

Tensor compare(const char* name, BinaryOp op, const Operand& a, const Operand& b) {
  OpScope scope(name, line_of(a, b));
  check_operands(a, b);
  if (a.tensor && b.tensor) return apply<Compare>(scope, *a.tensor, *b.tensor, op);
  if (a.tensor) return apply<Compare>(scope, *a.tensor, op, b.scalar, false);
  if (b.tensor) return apply<Compare>(scope, *b.tensor, op, a.scalar, true);
  return apply<Compare>(scope, number_tensor(a.scalar), op, b.scalar, false);
}

Tensor run_unary(const char* name, UnaryOp op, const Tensor& x, Loc where, const UnaryArgs& args = {}) {
  OpScope scope(name, where);
  return apply<Unary>(scope, x, op, args);
}

// b alpha, for add and sub.
Operand scaled(const Operand& b, const Scalar& alpha, Tensor* room) {
  if (alpha.to_double() == 1) return b;
  if (!b.tensor) {
    const bool fraction = b.scalar.is_floating() || alpha.is_floating();
    return fraction ? Operand(b.scalar.to_double() * alpha.to_double(), b.where)
                    : Operand(b.scalar.to_int64() * alpha.to_int64(), b.where);
  }
  *room = mul(b, alpha);
  return Operand(*room, b.where);
}

UnaryArgs clamp_bounds(const std::optional<Scalar>& min, const std::optional<Scalar>& max) {
  GRADUS_CHECK(min || max, ValueError, "clamp needs a lower or an upper bound");
  return {min ? min->to_double() : -HUGE_VAL, max ? max->to_double() : HUGE_VAL};
}

Tensor extreme(const char* name, BinaryOp op, const Operand& a, const Operand& b) {
  OpScope scope(name, line_of(a, b));
  check_operands(a, b);
  return apply<Extreme>(scope, a.tensor ? *a.tensor : number_tensor(a.scalar),
                        b.tensor ? *b.tensor : number_tensor(b.scalar), op);
}

}  // namespace

Tensor unary_backward(UnaryOp op, const Tensor& dy, const Tensor& saved, const UnaryArgs& args) {
  const bool differentiable = GradMode::is_enabled() && (dy.requires_grad() || saved.requires_grad());
  if (!differentiable) {
    OpScope scope("unary_backward", Loc{});
    return apply<UnaryBackward>(scope, dy, saved, op, args);
  }
  switch (op) {  // saved is y where saves_output(op), else x
    case UnaryOp::abs: return where(saved > 0, dy, where(saved < 0, -dy, 0.0));
    case UnaryOp::exp: return dy * saved;
    case UnaryOp::log: return dy / saved;
    case UnaryOp::sqrt: return dy / (saved * 2);
    case UnaryOp::reciprocal: return -dy * (saved * saved);
    case UnaryOp::relu: return where(saved > 0, dy, 0.0);
    case UnaryOp::sigmoid: return dy * (saved * (1 - saved));
    case UnaryOp::tanh: return dy * (1 - saved * saved);
    case UnaryOp::clamp: return where((saved >= args.a).logical_and(saved <= args.b), dy, 0.0);
    default: GRADUS_FAIL(AutogradError, name(op), " has no derivative");
  }
}

Tensor add(const Operand& a, const Operand& b_unscaled, const Scalar& alpha) {
  OpScope op("add", line_of(a, b_unscaled));
  check_operands(a, b_unscaled);
  Tensor room;
  const Operand b = scaled(b_unscaled, alpha, &room);
  if (a.tensor && b.tensor) return apply<Add>(op, *a.tensor, *b.tensor);
  if (a.tensor) return apply<AddScalar>(op, *a.tensor, BinaryOp::add, b.scalar);
  return apply<AddScalar>(op, b.tensor ? *b.tensor : number_tensor(b.scalar), BinaryOp::add, a.scalar);
}

Tensor sub(const Operand& a, const Operand& b_unscaled, const Scalar& alpha) {
  OpScope op("sub", line_of(a, b_unscaled));
  check_operands(a, b_unscaled);
  Tensor room;
  const Operand b = scaled(b_unscaled, alpha, &room);
  if (a.tensor && b.tensor) return apply<Sub>(op, *a.tensor, *b.tensor);
  if (a.tensor) return apply<AddScalar>(op, *a.tensor, BinaryOp::sub, b.scalar);
  return apply<RSubScalar>(op, b.tensor ? *b.tensor : number_tensor(b.scalar), a.scalar);
}

Tensor mul(const Operand& a, const Operand& b) {
  OpScope op("mul", line_of(a, b));
  check_operands(a, b);
  if (a.tensor && b.tensor) return apply<Mul>(op, *a.tensor, *b.tensor);
  if (a.tensor) return apply<MulScalar>(op, *a.tensor, BinaryOp::mul, b.scalar);
  return apply<MulScalar>(op, b.tensor ? *b.tensor : number_tensor(b.scalar), BinaryOp::mul, a.scalar);
}

Tensor div(const Operand& a, const Operand& b) {
  OpScope op("div", line_of(a, b));
  check_operands(a, b);
  if (a.tensor && b.tensor) return apply<Div>(op, *a.tensor, *b.tensor);
  if (a.tensor) return apply<MulScalar>(op, *a.tensor, BinaryOp::div, b.scalar);
  return apply<RDivScalar>(op, b.tensor ? *b.tensor : number_tensor(b.scalar), a.scalar);
}

Tensor pow(const Operand& base, const Operand& exponent) {
  OpScope op("pow", line_of(base, exponent));
  check_operands(base, exponent);
  if (base.tensor && exponent.tensor) return apply<Pow>(op, *base.tensor, *exponent.tensor);
  if (!base.tensor)
    return apply<RPowScalar>(op, exponent.tensor ? *exponent.tensor : number_tensor(exponent.scalar), base.scalar);
  GRADUS_CHECK(is_floating(base.tensor->dtype()) || exponent.scalar.is_floating() || exponent.scalar.to_int64() >= 0,
               ValueError, "integers to a negative power are fractions; convert with .to(kFloat) first");
  return apply<PowScalar>(op, *base.tensor, exponent.scalar);
}

Tensor maximum(const Operand& a, const Operand& b) { return extreme("maximum", BinaryOp::maximum, a, b); }
Tensor minimum(const Operand& a, const Operand& b) { return extreme("minimum", BinaryOp::minimum, a, b); }

Tensor neg(const Tensor& x, Loc where) { return run_unary("neg", UnaryOp::neg, x, where); }
Tensor abs(const Tensor& x, Loc where) { return run_unary("abs", UnaryOp::abs, x, where); }
Tensor exp(const Tensor& x, Loc where) { return run_unary("exp", UnaryOp::exp, x, where); }
Tensor log(const Tensor& x, Loc where) { return run_unary("log", UnaryOp::log, x, where); }
Tensor sqrt(const Tensor& x, Loc where) { return run_unary("sqrt", UnaryOp::sqrt, x, where); }
Tensor reciprocal(const Tensor& x, Loc where) { return run_unary("reciprocal", UnaryOp::reciprocal, x, where); }
Tensor relu(const Tensor& x, Loc where) { return run_unary("relu", UnaryOp::relu, x, where); }
Tensor sigmoid(const Tensor& x, Loc where) { return run_unary("sigmoid", UnaryOp::sigmoid, x, where); }
Tensor tanh(const Tensor& x, Loc where) { return run_unary("tanh", UnaryOp::tanh, x, where); }
Tensor logical_not(const Tensor& x, Loc where) { return run_unary("logical_not", UnaryOp::logical_not, x, where); }
Tensor isfinite(const Tensor& x, Loc where) { return run_unary("isfinite", UnaryOp::isfinite, x, where); }
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max, Loc where) {
  OpScope op("clamp", where);
  return apply<Unary>(op, x, UnaryOp::clamp, clamp_bounds(min, max));
}

Tensor eq(const Operand& a, const Operand& b) { return compare("eq", BinaryOp::eq, a, b); }
Tensor ne(const Operand& a, const Operand& b) { return compare("ne", BinaryOp::ne, a, b); }
Tensor lt(const Operand& a, const Operand& b) { return compare("lt", BinaryOp::lt, a, b); }
Tensor le(const Operand& a, const Operand& b) { return compare("le", BinaryOp::le, a, b); }
Tensor gt(const Operand& a, const Operand& b) { return compare("gt", BinaryOp::gt, a, b); }
Tensor ge(const Operand& a, const Operand& b) { return compare("ge", BinaryOp::ge, a, b); }
Tensor logical_and(const Operand& a, const Operand& b) { return compare("logical_and", BinaryOp::logical_and, a, b); }
Tensor logical_or(const Operand& a, const Operand& b) { return compare("logical_or", BinaryOp::logical_or, a, b); }

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  OpScope op("where", line_of(a, b));
  check_operands(a, b);
  // A number takes the type of the tensor on the other side unless it is of a higher kind.
  auto as_tensor = [&](const Operand& x, const Operand& other) {
    if (x.tensor) return *x.tensor;
    const DType type = other.tensor ? promote_with_scalar(other.tensor->dtype(), x.scalar) : x.scalar.dtype();
    return Tensor(ops::full({}, x.scalar, type, condition.device()));
  };
  return apply<Where>(op, condition, as_tensor(a, b), as_tensor(b, a));
}

// ---- In place ----

namespace {

template <class N>
const Tensor& add_in_place(const char* name, BinaryOp op, const Tensor& self, const Operand& other,
                           const Scalar& alpha) {
  OpScope scope(name, other.where);
  check_operands(Operand(self), other);
  Tensor room;
  const Operand b = scaled(other, alpha, &room);
  return b.tensor ? apply_in_place<N>(scope, self, *b.tensor) : apply_in_place<AddScalar>(scope, self, op, b.scalar);
}

}  // namespace

const Tensor& Tensor::add_(const Operand& other, const Scalar& alpha) const {
  return add_in_place<Add>("add_", BinaryOp::add, *this, other, alpha);
}

const Tensor& Tensor::sub_(const Operand& other, const Scalar& alpha) const {
  return add_in_place<Sub>("sub_", BinaryOp::sub, *this, other, alpha);
}

const Tensor& Tensor::mul_(const Operand& other) const {
  OpScope op("mul_", other.where);
  check_operands(Operand(*this), other);
  return other.tensor ? apply_in_place<Mul>(op, *this, *other.tensor)
                      : apply_in_place<MulScalar>(op, *this, BinaryOp::mul, other.scalar);
}

const Tensor& Tensor::div_(const Operand& other) const {
  OpScope op("div_", other.where);
  check_operands(Operand(*this), other);
  return other.tensor ? apply_in_place<Div>(op, *this, *other.tensor)
                      : apply_in_place<MulScalar>(op, *this, BinaryOp::div, other.scalar);
}

const Tensor& Tensor::relu_(Loc where) const {
  OpScope op("relu_", where);
  return apply_in_place<Unary>(op, *this, UnaryOp::relu, UnaryArgs());
}

const Tensor& Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max, Loc where) const {
  OpScope op("clamp_", where);
  return apply_in_place<Unary>(op, *this, UnaryOp::clamp, clamp_bounds(min, max));
}

}  // namespace gradus
