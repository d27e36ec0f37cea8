// Methods of Tensor, and operators, that are other names for functions of autograd/ops.
#include <gradus/autograd/autograd.h>

namespace gradus {

// ---- Element-wise ----

Tensor Tensor::add(const Operand& other, const Scalar& alpha) const { return gradus::add(*this, other, alpha); }
Tensor Tensor::sub(const Operand& other, const Scalar& alpha) const { return gradus::sub(*this, other, alpha); }
Tensor Tensor::mul(const Operand& other) const { return gradus::mul(*this, other); }
Tensor Tensor::div(const Operand& other) const { return gradus::div(*this, other); }
Tensor Tensor::pow(const Operand& exponent) const { return gradus::pow(*this, exponent); }
Tensor Tensor::neg(Loc where) const { return gradus::neg(*this, where); }
Tensor Tensor::abs(Loc where) const { return gradus::abs(*this, where); }
Tensor Tensor::exp(Loc where) const { return gradus::exp(*this, where); }
Tensor Tensor::log(Loc where) const { return gradus::log(*this, where); }
Tensor Tensor::sqrt(Loc where) const { return gradus::sqrt(*this, where); }
Tensor Tensor::reciprocal(Loc where) const { return gradus::reciprocal(*this, where); }
Tensor Tensor::relu(Loc where) const { return gradus::relu(*this, where); }
Tensor Tensor::sigmoid(Loc where) const { return gradus::sigmoid(*this, where); }
Tensor Tensor::tanh(Loc where) const { return gradus::tanh(*this, where); }
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max, Loc where) const {
  return gradus::clamp(*this, min, max, where);
}
Tensor Tensor::eq(const Operand& other) const { return gradus::eq(*this, other); }
Tensor Tensor::ne(const Operand& other) const { return gradus::ne(*this, other); }
Tensor Tensor::lt(const Operand& other) const { return gradus::lt(*this, other); }
Tensor Tensor::le(const Operand& other) const { return gradus::le(*this, other); }
Tensor Tensor::gt(const Operand& other) const { return gradus::gt(*this, other); }
Tensor Tensor::ge(const Operand& other) const { return gradus::ge(*this, other); }
Tensor Tensor::logical_not(Loc where) const { return gradus::logical_not(*this, where); }
Tensor Tensor::logical_and(const Operand& other) const { return gradus::logical_and(*this, other); }
Tensor Tensor::logical_or(const Operand& other) const { return gradus::logical_or(*this, other); }
Tensor Tensor::isfinite(Loc where) const { return gradus::isfinite(*this, where); }
Tensor Tensor::where(const Tensor& condition, const Operand& other) const {
  return gradus::where(condition, *this, other);
}

Tensor operator+(const Operand& a, const Operand& b) { return add(a, b); }
Tensor operator-(const Operand& a, const Operand& b) { return sub(a, b); }
Tensor operator*(const Operand& a, const Operand& b) { return mul(a, b); }
Tensor operator/(const Operand& a, const Operand& b) { return div(a, b); }
Tensor operator==(const Operand& a, const Operand& b) { return eq(a, b); }
Tensor operator!=(const Operand& a, const Operand& b) { return ne(a, b); }
Tensor operator<(const Operand& a, const Operand& b) { return lt(a, b); }
Tensor operator<=(const Operand& a, const Operand& b) { return le(a, b); }
Tensor operator>(const Operand& a, const Operand& b) { return gt(a, b); }
Tensor operator>=(const Operand& a, const Operand& b) { return ge(a, b); }
Tensor operator-(const Tensor& a) { return neg(a, Loc{}); }
Tensor operator!(const Tensor& a) { return logical_not(a, Loc{}); }

// ---- Reductions ----

Tensor Tensor::sum(std::optional<DType> dtype, Loc where) const { return gradus::sum(*this, dtype, where); }
Tensor Tensor::sum(IntArrayRef dim, bool keepdim, std::optional<DType> dtype, Loc where) const {
  return gradus::sum(*this, dim, keepdim, dtype, where);
}
Tensor Tensor::mean(std::optional<DType> dtype, Loc where) const { return gradus::mean(*this, dtype, where); }
Tensor Tensor::mean(IntArrayRef dim, bool keepdim, std::optional<DType> dtype, Loc where) const {
  return gradus::mean(*this, dim, keepdim, dtype, where);
}
Tensor Tensor::max(Loc where) const { return gradus::max(*this, where); }
Tensor Tensor::min(Loc where) const { return gradus::min(*this, where); }
std::tuple<Tensor, Tensor> Tensor::max(int64_t dim, bool keepdim, Loc where) const {
  return gradus::max(*this, dim, keepdim, where);
}
std::tuple<Tensor, Tensor> Tensor::min(int64_t dim, bool keepdim, Loc where) const {
  return gradus::min(*this, dim, keepdim, where);
}
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim, Loc where) const {
  return gradus::argmax(*this, dim, keepdim, where);
}
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim, Loc where) const {
  return gradus::argmin(*this, dim, keepdim, where);
}
Tensor Tensor::all(Loc where) const { return gradus::all(*this, where); }
Tensor Tensor::any(Loc where) const { return gradus::any(*this, where); }

// ---- Linear algebra ----

Tensor Tensor::matmul(const Tensor& other, Loc where) const { return gradus::matmul(*this, other, where); }

// ---- Softmax ----

Tensor Tensor::softmax(int64_t dim, Loc where) const { return gradus::softmax(*this, dim, where); }
Tensor Tensor::log_softmax(int64_t dim, Loc where) const { return gradus::log_softmax(*this, dim, where); }

}  // namespace gradus
