// Reductions. An empty list of dimensions means all of them.
#pragma once

#include <tuple>

#include <gradus/autograd/tensor.h>

namespace gradus {

inline Tensor sum(const Tensor& x, std::optional<DType> dtype = {}, Loc where = Loc::current()) {
  return x.sum({}, false, dtype, where);
}
inline Tensor sum(const Tensor& x, IntArrayRef dim, bool keepdim = false, std::optional<DType> dtype = {},
                  Loc where = Loc::current()) {
  return x.sum(dim, keepdim, dtype, where);
}
inline Tensor mean(const Tensor& x, std::optional<DType> dtype = {}, Loc where = Loc::current()) {
  return x.mean({}, false, dtype, where);
}
inline Tensor mean(const Tensor& x, IntArrayRef dim, bool keepdim = false, std::optional<DType> dtype = {},
                   Loc where = Loc::current()) {
  return x.mean(dim, keepdim, dtype, where);
}
/// The extreme of all elements. Equal extremes share the gradient.
Tensor max(const Tensor& x, Loc where = Loc::current());
Tensor min(const Tensor& x, Loc where = Loc::current());
/// The element-wise maximum and minimum of two tensors.
inline Tensor max(const Tensor& a, const Tensor& b, Loc where = Loc::current()) { return a.max(b, where); }
inline Tensor min(const Tensor& a, const Tensor& b, Loc where = Loc::current()) { return a.min(b, where); }
/// The extremes along one dimension: (values, int64 indices). The gradient goes to the element at the index.
inline TensorPair max(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current()) {
  return x.max(dim, keepdim, where);
}
inline TensorPair min(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current()) {
  return x.min(dim, keepdim, where);
}
/// The extremes over any set of dimensions. Equal extremes share the gradient.
Tensor amax(const Tensor& x, IntArrayRef dim = {}, bool keepdim = false, Loc where = Loc::current());
Tensor amin(const Tensor& x, IntArrayRef dim = {}, bool keepdim = false, Loc where = Loc::current());
inline Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
                     Loc where = Loc::current()) {
  return x.argmax(dim, keepdim, where);
}
inline Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
                     Loc where = Loc::current()) {
  return x.argmin(dim, keepdim, where);
}
/// True where all elements, or any element, are true (not 0): over all elements of x, or along one dimension.
inline Tensor all(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current()) {
  return x.all(dim, keepdim, where);
}
inline Tensor any(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current()) {
  return x.any(dim, keepdim, where);
}
/// Number of elements that are not 0, as int64.
Tensor count_nonzero(const Tensor& x, IntArrayRef dim = {}, Loc where = Loc::current());

/// Products; for integers the result is int64. Gradients are also correct if x contains zeros, because nothing is
/// divided by x.
Tensor prod(const Tensor& x, std::optional<DType> dtype = {}, Loc where = Loc::current());
Tensor prod(const Tensor& x, int64_t dim, bool keepdim = false, std::optional<DType> dtype = {},
            Loc where = Loc::current());
/// Running sums and products along `dim`; for integers the result is int64.
inline Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current()) {
  return x.cumsum(dim, dtype, where);
}
inline Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current()) {
  return x.cumprod(dim, dtype, where);
}

/// Sum of squared deviations from the mean, divided by max(0, count - correction). Computed in two passes, half types
/// in float32. correction is 1 unless given; true and false mean 1 and 0, as LibTorch's `unbiased`. Deviations of 0
/// have gradient 0. Floating types only. A leading number is a dimension and a leading bool is `unbiased`, so var(x, 0)
/// and var(x, false) differ.
inline Tensor var(const Tensor& x, IntArrayRef dim = {}, std::optional<Scalar> correction = {}, bool keepdim = false,
                  Loc where = Loc::current()) {
  return x.var(dim, correction, keepdim, where);
}
inline Tensor std(const Tensor& x, IntArrayRef dim = {}, std::optional<Scalar> correction = {}, bool keepdim = false,
                  Loc where = Loc::current()) {
  return x.std(dim, correction, keepdim, where);
}
/// (variance or deviation, mean)
TensorPair var_mean(const Tensor& x, IntArrayRef dim = {}, std::optional<Scalar> correction = {}, bool keepdim = false,
                    Loc where = Loc::current());
TensorPair std_mean(const Tensor& x, IntArrayRef dim = {}, std::optional<Scalar> correction = {}, bool keepdim = false,
                    Loc where = Loc::current());
inline Tensor var(const Tensor& x, Flag auto unbiased, Loc where = Loc::current()) {
  return var(x, {}, unbiased, false, where);
}
inline Tensor std(const Tensor& x, Flag auto unbiased, Loc where = Loc::current()) {
  return gradus::std(x, {}, unbiased, false, where);
}
inline TensorPair var_mean(const Tensor& x, Flag auto unbiased, Loc where = Loc::current()) {
  return var_mean(x, {}, unbiased, false, where);
}
inline TensorPair std_mean(const Tensor& x, Flag auto unbiased, Loc where = Loc::current()) {
  return std_mean(x, {}, unbiased, false, where);
}

/// (sum |x|^p)^(1/p), with p = 2 by default. p = 0 counts the elements that are not 0; p = inf and -inf give the
/// largest and smallest magnitude. Where the norm is 0, the gradient is 0. Floating types only; half types are computed
/// in float32. With dtype, x is converted to it first.
Tensor norm(const Tensor& x, std::optional<Scalar> p = 2, IntArrayRef dim = {}, bool keepdim = false,
            std::optional<DType> dtype = {}, Loc where = Loc::current());
inline Tensor norm(const Tensor& x, std::optional<Scalar> p, std::same_as<DType> auto dtype,
                   Loc where = Loc::current()) {
  return norm(x, p, {}, false, dtype, where);
}
/// log(sum(exp(x))) without overflow; -infinity for no elements.
Tensor logsumexp(const Tensor& x, IntArrayRef dim, bool keepdim = false, Loc where = Loc::current());

}  // namespace gradus
