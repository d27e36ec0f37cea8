// Methods and operators of Tensor that forward to functions in autograd/ops. More are in ops/unary.cpp and
// ops/comparison.cpp.
#include <gradus/autograd/autograd.h>

namespace gradus {
namespace {

// The left operand of a method call. It has no source line; the line of the call comes with the other operand.
Operand self(const Tensor& x) { return Operand(x, Loc{}); }

}  // namespace

// ---- Element-wise ----

Tensor Tensor::add(const Operand& other, const Scalar& alpha) const { return gradus::add(self(*this), other, alpha); }
Tensor Tensor::sub(const Operand& other, const Scalar& alpha) const { return gradus::sub(self(*this), other, alpha); }
Tensor Tensor::mul(const Operand& other) const { return gradus::mul(self(*this), other); }
Tensor Tensor::div(const Operand& other, std::optional<std::string_view> rounding_mode) const {
  return gradus::div(self(*this), other, rounding_mode);
}
Tensor Tensor::floor_divide(const Operand& other) const { return gradus::floor_divide(self(*this), other); }
Tensor Tensor::pow(const Operand& exponent) const { return gradus::pow(self(*this), exponent); }
Tensor Tensor::clamp(std::optional<Operand> min, std::optional<Operand> max, Loc where) const {
  return gradus::clamp(*this, min, max, where);
}
Tensor Tensor::logical_not(Loc where) const { return gradus::logical_not(*this, where); }
Tensor Tensor::isfinite(Loc where) const { return gradus::isfinite(*this, where); }
Tensor Tensor::tan(Loc where) const { return gradus::tan(*this, where); }
Tensor Tensor::sinh(Loc where) const { return gradus::sinh(*this, where); }
Tensor Tensor::cosh(Loc where) const { return gradus::cosh(*this, where); }
Tensor Tensor::asin(Loc where) const { return gradus::asin(*this, where); }
Tensor Tensor::acos(Loc where) const { return gradus::acos(*this, where); }
Tensor Tensor::atan(Loc where) const { return gradus::atan(*this, where); }
Tensor Tensor::asinh(Loc where) const { return gradus::asinh(*this, where); }
Tensor Tensor::acosh(Loc where) const { return gradus::acosh(*this, where); }
Tensor Tensor::atanh(Loc where) const { return gradus::atanh(*this, where); }
Tensor Tensor::log2(Loc where) const { return gradus::log2(*this, where); }
Tensor Tensor::log10(Loc where) const { return gradus::log10(*this, where); }
Tensor Tensor::isnan(Loc where) const { return gradus::isnan(*this, where); }
Tensor Tensor::isinf(Loc where) const { return gradus::isinf(*this, where); }
Tensor Tensor::bitwise_not(Loc where) const { return gradus::bitwise_not(*this, where); }
Tensor Tensor::maximum(const Operand& other) const { return gradus::maximum(self(*this), other); }
Tensor Tensor::minimum(const Operand& other) const { return gradus::minimum(self(*this), other); }
Tensor Tensor::fmod(const Operand& other) const { return gradus::fmod(self(*this), other); }
Tensor Tensor::remainder(const Operand& other) const { return gradus::remainder(self(*this), other); }
Tensor Tensor::atan2(const Operand& other) const { return gradus::atan2(self(*this), other); }
Tensor Tensor::lerp(const Tensor& end, const Operand& weight) const { return gradus::lerp(*this, end, weight); }
Tensor Tensor::addcmul(const Tensor& a, const Tensor& b, const Scalar& value, Loc where) const {
  return gradus::addcmul(*this, a, b, value, where);
}
Tensor Tensor::addcdiv(const Tensor& a, const Tensor& b, const Scalar& value, Loc where) const {
  return gradus::addcdiv(*this, a, b, value, where);
}
Tensor Tensor::where(const Tensor& condition, const Operand& other) const {
  return gradus::where(condition, self(*this), other);
}

Tensor operator+(const Operand& a, const Operand& b) { return add(a, b); }
Tensor operator-(const Operand& a, const Operand& b) { return sub(a, b); }
Tensor operator*(const Operand& a, const Operand& b) { return mul(a, b); }
Tensor operator/(const Operand& a, const Operand& b) { return div(a, b); }
Tensor operator%(const Operand& a, const Operand& b) { return remainder(a, b); }
Tensor operator==(const Operand& a, const Operand& b) { return eq(a, b); }
Tensor operator!=(const Operand& a, const Operand& b) { return ne(a, b); }
Tensor operator<(const Operand& a, const Operand& b) { return lt(a, b); }
Tensor operator<=(const Operand& a, const Operand& b) { return le(a, b); }
Tensor operator>(const Operand& a, const Operand& b) { return gt(a, b); }
Tensor operator>=(const Operand& a, const Operand& b) { return ge(a, b); }
Tensor operator&(const Operand& a, const Operand& b) { return bitwise_and(a, b); }
Tensor operator|(const Operand& a, const Operand& b) { return bitwise_or(a, b); }
Tensor operator^(const Operand& a, const Operand& b) { return bitwise_xor(a, b); }
Tensor operator~(const Tensor& a) { return bitwise_not(a, Loc{}); }
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
Tensor Tensor::max(const Tensor& other, Loc where) const { return gradus::maximum(self(*this), {other, where}); }
Tensor Tensor::min(const Tensor& other, Loc where) const { return gradus::minimum(self(*this), {other, where}); }
Tensor max(const Tensor& a, const Tensor& b, Loc where) { return a.max(b, where); }
Tensor min(const Tensor& a, const Tensor& b, Loc where) { return a.min(b, where); }
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

Tensor Tensor::all(int64_t dim, bool keepdim, Loc where) const { return gradus::all(*this, dim, keepdim, where); }
Tensor Tensor::any(int64_t dim, bool keepdim, Loc where) const { return gradus::any(*this, dim, keepdim, where); }
Tensor Tensor::amax(IntArrayRef dim, bool keepdim, Loc where) const { return gradus::amax(*this, dim, keepdim, where); }
Tensor Tensor::amin(IntArrayRef dim, bool keepdim, Loc where) const { return gradus::amin(*this, dim, keepdim, where); }
Tensor Tensor::count_nonzero(IntArrayRef dim, Loc where) const { return gradus::count_nonzero(*this, dim, where); }
Tensor Tensor::prod(std::optional<DType> dtype, Loc where) const { return gradus::prod(*this, dtype, where); }
Tensor Tensor::prod(int64_t dim, bool keepdim, std::optional<DType> dtype, Loc where) const {
  return gradus::prod(*this, dim, keepdim, dtype, where);
}
Tensor Tensor::cumsum(int64_t dim, std::optional<DType> dtype, Loc where) const {
  return gradus::cumsum(*this, dim, dtype, where);
}
Tensor Tensor::cumprod(int64_t dim, std::optional<DType> dtype, Loc where) const {
  return gradus::cumprod(*this, dim, dtype, where);
}
Tensor Tensor::var(IntArrayRef dim, std::optional<Scalar> correction, bool keepdim, Loc where) const {
  return gradus::var(*this, dim, correction, keepdim, where);
}
Tensor Tensor::std(IntArrayRef dim, std::optional<Scalar> correction, bool keepdim, Loc where) const {
  return gradus::std(*this, dim, correction, keepdim, where);
}
Tensor Tensor::norm(std::optional<Scalar> p, IntArrayRef dim, bool keepdim, std::optional<DType> dtype,
                    Loc where) const {
  return gradus::norm(*this, p, dim, keepdim, dtype, where);
}
Tensor Tensor::logsumexp(IntArrayRef dim, bool keepdim, Loc where) const {
  return gradus::logsumexp(*this, dim, keepdim, where);
}

// ---- Sorting ----

std::tuple<Tensor, Tensor> Tensor::sort(int64_t dim, bool descending, Loc where) const {
  return gradus::sort(*this, dim, descending, where);
}
Tensor Tensor::argsort(int64_t dim, bool descending, Loc where) const {
  return gradus::argsort(*this, dim, descending, where);
}
std::tuple<Tensor, Tensor> Tensor::topk(int64_t k, int64_t dim, bool largest, bool sorted, Loc where) const {
  return gradus::topk(*this, k, dim, largest, sorted, where);
}
std::tuple<Tensor, Tensor> Tensor::kthvalue(int64_t k, int64_t dim, bool keepdim, Loc where) const {
  return gradus::kthvalue(*this, k, dim, keepdim, where);
}
Tensor Tensor::median(Loc where) const { return gradus::median(*this, where); }
std::tuple<Tensor, Tensor> Tensor::median(int64_t dim, bool keepdim, Loc where) const {
  return gradus::median(*this, dim, keepdim, where);
}
Tensor Tensor::multinomial(int64_t num_samples, bool replacement, Loc where) const {
  return gradus::multinomial(*this, num_samples, replacement, where);
}

// ---- Linear algebra ----

Tensor Tensor::matmul(const Tensor& other, Loc where) const { return gradus::matmul(*this, other, where); }

// ---- Softmax ----

Tensor Tensor::softmax(int64_t dim, std::optional<DType> dtype, Loc where) const {
  return gradus::softmax(*this, dim, dtype, where);
}
Tensor Tensor::log_softmax(int64_t dim, std::optional<DType> dtype, Loc where) const {
  return gradus::log_softmax(*this, dim, dtype, where);
}

}  // namespace gradus
