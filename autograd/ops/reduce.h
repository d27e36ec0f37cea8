// Reductions. An empty list of dimensions means all of them.
#pragma once

#include <tuple>

#include <gradus/autograd/tensor.h>

namespace gradus {

Tensor sum(const Tensor& x, std::optional<DType> dtype = {}, Loc where = Loc::current());
Tensor sum(const Tensor& x, IntArrayRef dim, bool keepdim = false, std::optional<DType> dtype = {},
           Loc where = Loc::current());
Tensor mean(const Tensor& x, std::optional<DType> dtype = {}, Loc where = Loc::current());
Tensor mean(const Tensor& x, IntArrayRef dim, bool keepdim = false, std::optional<DType> dtype = {},
            Loc where = Loc::current());
/// Over all elements; equal extremes share the gradient.
Tensor max(const Tensor& x, Loc where = Loc::current());
Tensor min(const Tensor& x, Loc where = Loc::current());
/// maximum and minimum of two tensors.
Tensor max(const Tensor& a, const Tensor& b, Loc where = Loc::current());
Tensor min(const Tensor& a, const Tensor& b, Loc where = Loc::current());
/// Along one dimension: (values, int64 indices); the gradient goes to the index.
std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current());
std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current());
/// Over any dimensions; equal extremes share the gradient.
Tensor amax(const Tensor& x, IntArrayRef dim = {}, bool keepdim = false, Loc where = Loc::current());
Tensor amin(const Tensor& x, IntArrayRef dim = {}, bool keepdim = false, Loc where = Loc::current());
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current());
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current());
Tensor all(const Tensor& x, Loc where = Loc::current());
Tensor any(const Tensor& x, Loc where = Loc::current());
Tensor all(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current());
Tensor any(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current());
/// Elements that are not 0, as int64.
Tensor count_nonzero(const Tensor& x, IntArrayRef dim = {}, Loc where = Loc::current());

/// Products; of integers in int64. Gradients are right where there are zeros: nothing is divided by x.
Tensor prod(const Tensor& x, std::optional<DType> dtype = {}, Loc where = Loc::current());
Tensor prod(const Tensor& x, int64_t dim, bool keepdim = false, std::optional<DType> dtype = {},
            Loc where = Loc::current());
/// Running sums and products along `dim`, of integers in int64.
Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current());
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current());

/// Sum of squared deviations from the mean over max(0, count - correction); in two passes, half types in float.
/// correction is 1 unless given; true and false are 1 and 0, LibTorch's `unbiased`. Deviations of 0 have the gradient
/// 0. Floating types only. A number in front is a dimension, true or false `unbiased`: var(x, 0) and var(x, false)
/// differ.
Tensor var(const Tensor& x, IntArrayRef dim = {}, std::optional<Scalar> correction = {}, bool keepdim = false,
           Loc where = Loc::current());
Tensor std(const Tensor& x, IntArrayRef dim = {}, std::optional<Scalar> correction = {}, bool keepdim = false,
           Loc where = Loc::current());
/// (variance or deviation, mean)
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, IntArrayRef dim = {}, std::optional<Scalar> correction = {},
                                    bool keepdim = false, Loc where = Loc::current());
std::tuple<Tensor, Tensor> std_mean(const Tensor& x, IntArrayRef dim = {}, std::optional<Scalar> correction = {},
                                    bool keepdim = false, Loc where = Loc::current());
inline Tensor var(const Tensor& x, Flag auto unbiased, Loc where = Loc::current()) {
  return var(x, {}, unbiased, false, where);
}
inline Tensor std(const Tensor& x, Flag auto unbiased, Loc where = Loc::current()) {
  return gradus::std(x, {}, unbiased, false, where);
}
inline std::tuple<Tensor, Tensor> var_mean(const Tensor& x, Flag auto unbiased, Loc where = Loc::current()) {
  return var_mean(x, {}, unbiased, false, where);
}
inline std::tuple<Tensor, Tensor> std_mean(const Tensor& x, Flag auto unbiased, Loc where = Loc::current()) {
  return std_mean(x, {}, unbiased, false, where);
}

/// (sum |x|^p)^(1/p), p being 2 unless given; the number of elements that are not 0 for p = 0, the largest and smallest
/// magnitude for p = inf and -inf. Where the norm is 0 so is the gradient. Floating types only; half types compute in
/// float. With dtype, of x converted to it first.
Tensor norm(const Tensor& x, std::optional<Scalar> p = 2, IntArrayRef dim = {}, bool keepdim = false,
            std::optional<DType> dtype = {}, Loc where = Loc::current());
inline Tensor norm(const Tensor& x, std::optional<Scalar> p, std::same_as<DType> auto dtype,
                   Loc where = Loc::current()) {
  return norm(x, p, {}, false, dtype, where);
}
/// log(sum(exp(x))) without overflow; of no elements -infinity.
Tensor logsumexp(const Tensor& x, IntArrayRef dim, bool keepdim = false, Loc where = Loc::current());

}  // namespace gradus
