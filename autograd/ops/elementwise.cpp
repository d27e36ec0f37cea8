#include <gradus/autograd/ops/elementwise.h>

#include <cmath>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

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
  bool backward_in_float32() const override { return has_broadcast_input(); }  // the gradient is a sum of products
  Grads backward(const Tensor& dy) override {                                  // da = dy b,  db = dy a
    return {needs_grad(0) ? dy * b() : Tensor(), needs_grad(1) ? dy * a() : Tensor()};
  }
};

struct Div final : ComposedNode {  // y = a / b
  Saved a{this, "a"}, b{this, "b"};
  Array forward(const Array& A, const Array& B) {
    b = input(1);
    if (needs_grad(1)) a = input(0);
    return ops::binary(BinaryOp::div, A, B, destination(A));
  }
  Grads backward(const Tensor& dy) override {  // da = dy / b,  db = -dy a / b²
    const Tensor B = b();
    return {needs_grad(0) ? dy / B : Tensor(), needs_grad(1) ? -dy * (a() / B / B) : Tensor()};
  }
};

struct AddScalar final : Node {  // y = a + s or a - s; s - a if s is `first`
  bool negated = false;
  Array forward(const Array& a, BinaryOp op, const Scalar& s, bool first) {
    negated = first && op == BinaryOp::sub;
    return ops::binary_scalar(op, a, s, first, destination(a));
  }
  Grads backward(const Tensor& dy) override { return {negated ? -dy : dy}; }
};

struct MulScalar final : Node {  // y = a s or a / s
  Scalar s;
  BinaryOp op = BinaryOp::mul;
  Array forward(const Array& a, BinaryOp op, const Scalar& s) {
    this->s = s;
    this->op = op;
    return ops::binary_scalar(op, a, s, false, destination(a));
  }
  Grads backward(const Tensor& dy) override { return {op == BinaryOp::mul ? dy * s : dy / s}; }
};

struct RDivScalar final : ComposedNode {  // y = s / b
  Saved b{this, "b"};
  Scalar s;
  Array forward(const Array& B, const Scalar& s) {
    b = input(0);
    this->s = s;
    return ops::binary_scalar(BinaryOp::div, B, s, true);
  }
  Grads backward(const Tensor& dy) override {  // db = -dy s / b²
    const Tensor B = b();
    return {-dy * (s / B / B)};
  }
};

struct PowScalar final : ComposedNode {  // y = a^n
  Saved a{this, "a"};
  Scalar n;
  Array forward(const Array& A, const Scalar& n) {
    if (needs_grad(0)) a = input(0);
    this->n = n;
    return ops::binary_scalar(BinaryOp::pow, A, n, false, destination(A));
  }
  Grads backward(const Tensor& dy) override {  // da = dy n a^(n - 1); if n = 0 it is 0, even where a = 0
    const double exponent = n.to_double();
    if (exponent == 0) return {zeros_like(dy)};
    return {dy * (a().pow(exponent - 1) * exponent)};
  }
};

struct RPowScalar final : ComposedNode {  // y = s^b
  Saved y{this, "y"}, b{this, "b"};
  Scalar s;
  Array forward(const Array& B, const Scalar& s) {
    b = input(0);
    this->s = s;
    Array Y = ops::binary_scalar(BinaryOp::pow, B, s, true);
    y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {  // db = dy y ln s; 0 if s = 0 and b >= 0 (the limit)
    const double base = s.to_double();
    const Tensor slope = dy * (y() * std::log(base));
    return {base == 0 ? where(b() >= 0, 0.0, slope) : slope};
  }
};

struct Pow final : ComposedNode {  // y = a^b
  Saved a{this, "a"}, b{this, "b"}, y{this, "y"};
  Array forward(const Array& A, const Array& B) {
    if (needs_grad(0) || needs_grad(1)) a = input(0), b = input(1);
    Array Y = ops::binary(BinaryOp::pow, A, B, destination(A));
    if (needs_grad(1)) y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {  // da = dy b a^(b - 1),  db = dy y ln a
    const Tensor A = a(), B = b();
    return {needs_grad(0) ? where(B == 0, 0.0, dy * (B * pow(A, B - 1))) : Tensor(),
            needs_grad(1) ? where((A == 0).logical_and(B >= 0), 0.0, dy * (y() * A.log())) : Tensor()};
  }
};

struct Extreme final : Node {  // y = max(a, b) or min(a, b); if a = b each gets half of dy, at a NaN both get dy
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
    const Tensor A = a().detach(), B = b().detach(), half = where(A == B, dy * 0.5, dy), less = A<B, more = A> B;
    const bool is_max = op == BinaryOp::maximum;
    return {where(is_max ? less : more, 0.0, half), where(is_max ? more : less, 0.0, half)};
  }
};

struct Modulo final : ComposedNode {  // y = a - q b, q = a / b rounded towards 0 (fmod) or down (remainder)
  Saved a{this, "a"}, b{this, "b"};
  BinaryOp op = BinaryOp::fmod;
  const char* name() const override { return gradus::name(op); }
  Array forward(const Array& A, const Array& B, BinaryOp op) {
    if (needs_grad(1)) a = input(0), b = input(1);
    this->op = op;
    return ops::binary(op, A, B, destination(A));
  }
  Grads backward(const Tensor& dy) override {  // da = dy,  db = -dy q
    if (!needs_grad(1)) return {dy, Tensor()};
    // q is not floor(a / b): 1 / 0.1 rounds to 10, but the remainder of 1 and 0.1 belongs to q = 9.
    return {dy, -dy * div(a(), b(), op == BinaryOp::fmod ? "trunc" : "floor")};
  }
};

struct Atan2 final : ComposedNode {  // y = the angle of the point (b, a)
  Saved a{this, "a"}, b{this, "b"};
  Array forward(const Array& A, const Array& B) {
    a = input(0);
    b = input(1);
    return ops::binary(BinaryOp::atan2, A, B);
  }
  // da = dy b / (a² + b²),  db = -dy a / (a² + b²), and 0 at the origin. a and b are first divided by the larger
  // magnitude, because their squares may overflow or underflow.
  Grads backward(const Tensor& dy) override {
    const Tensor size = maximum(a().detach().abs(), b().detach().abs());
    const Tensor unit = where((size > 0).logical_and(isfinite(size)), size, 1.0), A = a() / unit, B = b() / unit;
    const Tensor scaled = dy / (where(size == 0, 1.0, square(A) + square(B)) * unit);
    return {needs_grad(0) ? scaled * B : Tensor(), needs_grad(1) ? -scaled * A : Tensor()};
  }
};

struct RoundedDiv final : Node {  // y = a / b rounded towards 0, or down; piecewise constant
  Array forward(const Array& A, const Array& B, bool down) {
    const DType dtype = ops::result_type(A, B);
    const bool whole = !is_floating(dtype), half = !whole && dtype != kFloat && dtype != kDouble;
    // A scalar tensor on the CPU may be combined with a tensor on any device.
    const auto operand = [&](const Array& x, const Array& other) {
      const Array y = ops::cast(x, half ? kFloat : dtype);
      const bool moves = y.ndim() == 0 && y.device().is_cpu() && !other.device().is_cpu();
      return moves ? ops::full({}, ops::item(y), y.dtype(), other.device()) : y;
    };
    const Array a = operand(A, B), b = operand(B, A);
    const Array plain = whole ? ops::divide_integers(a, b) : ops::binary(BinaryOp::div, a, b);
    if (!down) return whole ? plain : ops::cast(ops::unary(UnaryOp::trunc, plain), dtype);
    // The result is not floor(a / b): 1 / 0.1 rounds to 10, but the double 0.1 is slightly larger than a tenth, so the
    // exact quotient is below 10 and its floor is 9.
    const Array rest = ops::binary(BinaryOp::fmod, a, b), rest_down = ops::binary(BinaryOp::remainder, a, b);
    const auto one_less = [&](const Array& q) {  // floor is one less than truncation if the remainders differ
      return ops::binary(BinaryOp::sub, q, ops::binary(BinaryOp::ne, rest, rest_down));
    };
    if (whole) return one_less(plain);
    const Array quotient = ops::binary(BinaryOp::div, ops::binary(BinaryOp::sub, a, rest), b);
    const Array floored = one_less(ops::unary(UnaryOp::round, quotient));
    return ops::cast(ops::where(ops::binary_scalar(BinaryOp::eq, b, 0), plain, floored), dtype);
  }
  Grads backward(const Tensor& dy) override { return {zeros_like(dy), zeros_like(dy)}; }
};

// Opens an operator of two operands. Throws a ValueError if one is an undefined tensor.
struct BinaryScope : OpScope {
  BinaryScope(const char* name, const Operand& a, const Operand& b) : OpScope(name, line_of(a, b)) {
    for (const Operand* operand : {&a, &b})
      GRADUS_CHECK(!operand->tensor || operand->tensor->defined(), ValueError, "an operand is undefined");
  }
};

// Runs N on two operands, converting numbers to tensors.
template <class N, class... Options>
Tensor of_tensors(const char* name, const Operand& a, const Operand& b, const Options&... options) {
  BinaryScope scope(name, a, b);
  return apply<N>(scope, as_tensor(a, b), as_tensor(b, a), options...);
}

void check_divisor(const Tensor* dividend, const Operand& divisor) {
  const bool whole = (!dividend || !is_floating(dividend->dtype())) && !divisor.tensor && !divisor.scalar.is_floating();
  GRADUS_CHECK(!whole || divisor.scalar.to_int64() != 0, ValueError, "integers cannot be divided by 0");
}

Tensor modulo(const char* name, BinaryOp op, const Operand& a, const Operand& b) {
  BinaryScope scope(name, a, b);
  check_divisor(a.tensor, b);
  return apply<Modulo>(scope, as_tensor(a, b), as_tensor(b, a), op);
}

const Tensor& modulo_(const char* name, BinaryOp op, const Tensor& self, const Operand& other) {
  BinaryScope scope(name, Operand(self, Loc{}), other);
  check_divisor(&self, other);
  return apply_in_place<Modulo>(scope, self, as_tensor(other, self), op);
}

// As in PyTorch, the alpha of add and sub must be representable in the result's type.
void check_alpha(const Operand& a, const Operand& b, const Scalar& alpha) {
  const DType type = a.tensor && b.tensor ? ops::result_type(a.tensor->array(), b.tensor->array())
                     : a.tensor           ? promote_with_scalar(a.tensor->dtype(), b.scalar)
                     : b.tensor           ? promote_with_scalar(b.tensor->dtype(), a.scalar)
                                          : promote_types(a.scalar.dtype(), b.scalar.dtype());
  GRADUS_CHECK(is_floating(type) || !alpha.is_floating(), ValueError,
               "alpha must not be a fraction where the result is ", type);
  ops::check_fits(alpha, type);
}

// The product of a number and the alpha of add or sub.
Scalar scaled(const Scalar& number, const Scalar& alpha) {
  if (alpha.to_double() == 1) return number;
  if (number.is_floating() || alpha.is_floating()) return number.to_double() * alpha.to_double();
  return number.to_int64() * alpha.to_int64();
}

// a + alpha b or a - alpha b, where N is the node for two tensors.
template <class N>
Tensor scaled_sum(const char* name, BinaryOp kind, const Operand& a, const Operand& b, const Scalar& alpha) {
  BinaryScope op(name, a, b);
  const bool plain = alpha.to_double() == 1;
  if (!plain) check_alpha(a, b, alpha);
  if (a.tensor && !b.tensor) return apply<AddScalar>(op, *a.tensor, kind, scaled(b.scalar, alpha), false);
  if (a.tensor && plain) return apply<N>(op, *a.tensor, *b.tensor);
  const auto sum = [&](const Tensor& x, const Tensor& y) {  // x is undefined if a is a number
    const Tensor product = plain ? y : mul(y, alpha);
    return x.defined() ? apply<N>(op, x, product)
                       : apply<AddScalar>(op, product, kind, a.scalar, kind == BinaryOp::sub);
  };
  const Tensor x = a.tensor ? *a.tensor : Tensor(), y = as_tensor(b, a);
  return plain ? sum(x, y) : composed(op, sum, x, y);
}

void check_exponent(const Tensor& base, const Scalar& exponent) {
  GRADUS_CHECK(is_floating(base.dtype()) || exponent.is_floating() || exponent.to_int64() >= 0, ValueError,
               "integers to a negative power are fractions; convert with .to(kFloat) first");
  ops::check_fits(exponent, promote_with_scalar(base.dtype(), exponent));
}

}  // namespace

Tensor add(const Operand& a, const Operand& b, const Scalar& alpha) {
  return scaled_sum<Add>("add", BinaryOp::add, a, b, alpha);
}

Tensor sub(const Operand& a, const Operand& b, const Scalar& alpha) {
  return scaled_sum<Sub>("sub", BinaryOp::sub, a, b, alpha);
}

Tensor mul(const Operand& a, const Operand& b) {
  BinaryScope op("mul", a, b);
  if (a.tensor && b.tensor) return apply<Mul>(op, *a.tensor, *b.tensor);
  if (a.tensor) return apply<MulScalar>(op, *a.tensor, BinaryOp::mul, b.scalar);
  return apply<MulScalar>(op, as_tensor(b, a), BinaryOp::mul, a.scalar);
}

Tensor div(const Operand& a, const Operand& b, std::optional<std::string_view> rounding_mode) {
  BinaryScope op("div", a, b);
  if (rounding_mode) {
    GRADUS_CHECK(*rounding_mode == "trunc" || *rounding_mode == "floor", ValueError,
                 "rounding_mode must be 'trunc' or 'floor', got '", *rounding_mode, "'");
    check_divisor(a.tensor, b);
    return apply<RoundedDiv>(op, as_tensor(a, b), as_tensor(b, a), *rounding_mode == "floor");
  }
  if (a.tensor && b.tensor) return apply<Div>(op, *a.tensor, *b.tensor);
  if (a.tensor) return apply<MulScalar>(op, *a.tensor, BinaryOp::div, b.scalar);
  OpScope reciprocal("reciprocal");  // as in PyTorch, the autocast rule of reciprocal applies to s / b
  return apply<RDivScalar>(op, as_tensor(b, a), a.scalar);
}

Tensor floor_divide(const Operand& a, const Operand& b) { return div(a, b, "floor"); }

Tensor pow(const Operand& base, const Operand& exponent) {
  BinaryScope op("pow", base, exponent);
  if (base.tensor && exponent.tensor) return apply<Pow>(op, *base.tensor, *exponent.tensor);
  if (!base.tensor) return apply<RPowScalar>(op, as_tensor(exponent, base), base.scalar);
  check_exponent(*base.tensor, exponent.scalar);
  return apply<PowScalar>(op, *base.tensor, exponent.scalar);
}

Tensor maximum(const Operand& a, const Operand& b) { return of_tensors<Extreme>("maximum", a, b, BinaryOp::maximum); }
Tensor minimum(const Operand& a, const Operand& b) { return of_tensors<Extreme>("minimum", a, b, BinaryOp::minimum); }

Tensor fmod(const Operand& a, const Operand& b) { return modulo("fmod", BinaryOp::fmod, a, b); }
Tensor remainder(const Operand& a, const Operand& b) { return modulo("remainder", BinaryOp::remainder, a, b); }
Tensor atan2(const Operand& a, const Operand& b) { return of_tensors<Atan2>("atan2", a, b); }

// Interpolates from the nearer end, so that weights 0 and 1 return start and end exactly.
Tensor lerp(const Tensor& start, const Tensor& end, const Operand& weight) {
  OpScope op("lerp", weight.where);
  if (!weight.tensor) {
    const double w = weight.scalar.to_double();
    const DType type = ops::result_type(start.array(), end.array());
    if (is_floating(type)) ops::check_fits(w, type);
    const auto between = [w](const Tensor& a, const Tensor& b) {
      return w < 0.5 ? a + (b - a) * w : b - (b - a) * (1 - w);
    };
    return composed(op, between, start, end);
  }
  const auto between = [](const Tensor& a, const Tensor& b, const Tensor& w) {
    const Tensor way = b - a;
    return where(w < 0.5, a + way * w, b - way * (1 - w));
  };
  return composed(op, between, start, end, *weight.tensor);
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value, Loc where) {
  OpScope op("addcmul", where);
  const auto sum = [&](const Tensor& x, const Tensor& a, const Tensor& b) {
    const Tensor product = a * b;
    return add(x, product, number_of(value, ops::result_type(x.array(), product.array())));
  };
  return composed(op, sum, x, a, b);
}

Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value, Loc where) {
  OpScope op("addcdiv", where);
  return composed(
      op, [&](const Tensor& x, const Tensor& a, const Tensor& b) { return add(x, a / b, value); }, x, a, b);
}

// ---- In place ----

namespace {

template <class N>
const Tensor& add_in_place(const char* name, BinaryOp op, const Tensor& self, const Operand& other,
                           const Scalar& alpha) {
  BinaryScope scope(name, Operand(self, Loc{}), other);
  const bool plain = alpha.to_double() == 1;
  if (!plain) check_alpha(Operand(self), other, alpha);
  if (!other.tensor) return apply_in_place<AddScalar>(scope, self, op, scaled(other.scalar, alpha), false);
  if (plain) return apply_in_place<N>(scope, self, *other.tensor);
  if (is_half(self.dtype())) return self.copy_(op == BinaryOp::add ? add(self, other, alpha) : sub(self, other, alpha));
  return apply_in_place<N>(scope, self, mul(other, alpha));
}

}  // namespace

const Tensor& Tensor::add_(const Operand& other, const Scalar& alpha) const {
  return add_in_place<Add>("add_", BinaryOp::add, *this, other, alpha);
}

const Tensor& Tensor::sub_(const Operand& other, const Scalar& alpha) const {
  return add_in_place<Sub>("sub_", BinaryOp::sub, *this, other, alpha);
}

const Tensor& Tensor::mul_(const Operand& other) const {
  BinaryScope op("mul_", Operand(*this, Loc{}), other);
  return other.tensor ? apply_in_place<Mul>(op, *this, *other.tensor)
                      : apply_in_place<MulScalar>(op, *this, BinaryOp::mul, other.scalar);
}

const Tensor& Tensor::div_(const Operand& other, std::optional<std::string_view> rounding_mode) const {
  BinaryScope op("div_", Operand(*this, Loc{}), other);
  if (rounding_mode) {
    const Tensor y = gradus::div(*this, other, rounding_mode);
    ops::check_into(array(), y.sizes(), y.dtype());
    return copy_(y);
  }
  return other.tensor ? apply_in_place<Div>(op, *this, *other.tensor)
                      : apply_in_place<MulScalar>(op, *this, BinaryOp::div, other.scalar);
}

const Tensor& Tensor::pow_(const Operand& exponent) const {
  BinaryScope op("pow_", Operand(*this, Loc{}), exponent);
  if (exponent.tensor) return apply_in_place<Pow>(op, *this, *exponent.tensor);
  check_exponent(*this, exponent.scalar);
  return apply_in_place<PowScalar>(op, *this, exponent.scalar);
}

const Tensor& Tensor::fmod_(const Operand& other) const { return modulo_("fmod_", BinaryOp::fmod, *this, other); }
const Tensor& Tensor::remainder_(const Operand& other) const {
  return modulo_("remainder_", BinaryOp::remainder, *this, other);
}

const Tensor& Tensor::lerp_(const Tensor& end, const Operand& weight) const {
  OpScope op("lerp_", weight.where);
  return copy_(gradus::lerp(*this, end, weight));
}

const Tensor& Tensor::addcmul_(const Tensor& a, const Tensor& b, const Scalar& value, Loc where) const {
  OpScope op("addcmul_", where);
  if (is_half(dtype())) return copy_(gradus::addcmul(*this, a, b, value));
  return add_(a * b, number_of(value, dtype()));
}

const Tensor& Tensor::addcdiv_(const Tensor& a, const Tensor& b, const Scalar& value, Loc where) const {
  OpScope op("addcdiv_", where);
  return is_half(dtype()) ? copy_(gradus::addcdiv(*this, a, b, value)) : add_(a / b, value);
}

// ---- Comparisons and where ----

Scalar number_of(const Scalar& number, DType dtype) {
  ops::check_fits(number, dtype);
  return is_floating(dtype) ? number : Scalar(number.to_int64());
}

Tensor as_tensor(const Operand& x, const Operand& other, Device device) {
  if (x.tensor) return *x.tensor;
  const DType type = other.tensor ? promote_with_scalar(other.tensor->dtype(), x.scalar) : x.scalar.dtype();
  return Tensor(ops::full({}, x.scalar, type, device));
}

namespace {

struct Compare final : Node {  // the results are booleans or integers, without a gradient
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
  BinaryScope scope(name, a, b);
  if (a.tensor && b.tensor) return apply<Compare>(scope, *a.tensor, *b.tensor, op);
  if (b.tensor) return apply<Compare>(scope, *b.tensor, op, a.scalar, true);
  return apply<Compare>(scope, as_tensor(a, b), op, b.scalar, false);
}

}  // namespace

// Defines the functions and methods listed in core/op_lists.h.
#define GRADUS_COMPARISON(op, ...) \
  Tensor op(const Operand& a, const Operand& b) { return compare(#op, BinaryOp::op, a, b); } \
  Tensor Tensor::op(const Operand& other) const { return gradus::op(Operand(*this, Loc{}), other); }
GRADUS_BINARY_COMPARISONS(GRADUS_COMPARISON)
#undef GRADUS_COMPARISON

Tensor bitwise_not(const Tensor& x, Loc where) {
  OpScope op("bitwise_not", where);
  GRADUS_CHECK(!is_floating(x.dtype()), DTypeError, "bitwise operations need integers or booleans, got ", x.dtype());
  return x.dtype() == DType::boolean ? logical_not(x) : -1 - x;  // -1 - x is ~x in two's complement
}

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  BinaryScope op("where", a, b);
  return apply<Where>(op, condition, as_tensor(a, b, condition.device()), as_tensor(b, a, condition.device()));
}

}  // namespace gradus
