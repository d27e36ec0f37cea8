// Sorting and operators based on it. Sorts are stable, and NaN is larger than all numbers. Gradients go to the elements
// from which the values were taken.
#pragma once

#include <tuple>

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Returns the values in order along `dim` and their int64 indices in x.
inline TensorPair sort(const Tensor& x, int64_t dim = -1, bool descending = false, Loc where = Loc::current()) {
  return x.sort(dim, descending, where);
}
inline Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, Loc where = Loc::current()) {
  return x.argsort(dim, descending, where);
}
/// Accepts LibTorch's `stable` and ignores it, because all sorts are stable.
inline TensorPair sort(const Tensor& x, Flag auto, int64_t dim = -1, bool descending = false,
                       Loc where = Loc::current()) {
  return sort(x, dim, descending, where);
}
inline Tensor argsort(const Tensor& x, Flag auto, int64_t dim = -1, bool descending = false,
                      Loc where = Loc::current()) {
  return argsort(x, dim, descending, where);
}
/// The k largest or smallest elements along `dim`: (values, int64 indices). They are in order even if `sorted` is
/// false.
TensorPair topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true,
                Loc where = Loc::current());
/// The k-th smallest element, counted from 1: (value, int64 index).
TensorPair kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false, Loc where = Loc::current());
/// The middle element in sorted order (the lower of two), or NaN if x contains a NaN. In the median over all elements,
/// the elements that equal the median share the gradient.
Tensor median(const Tensor& x, Loc where = Loc::current());
TensorPair median(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current());

/// Returns the distinct elements of x (always sorted); for each element of x, in x's shape, its index among the
/// distinct elements; and how often each distinct element occurs. Results that are not requested are empty tensors. Not
/// differentiable. (torch::_unique2)
std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& x, bool sorted = true, bool return_inverse = false,
                                            bool return_counts = false, Loc where = Loc::current());
inline TensorPair _unique(const Tensor& x, bool sorted = true, bool return_inverse = false,
                          Loc where = Loc::current()) {
  auto [values, inverse, counts] = _unique2(x, sorted, return_inverse, false, where);
  return {values, inverse};
}
/// Like _unique2, but without sorting: merges only equal neighbours.
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& x, bool return_inverse = false,
                                                      bool return_counts = false, Loc where = Loc::current());
/// The distinct slices along `dim`, with the same results as _unique2. Slices are ordered lexicographically by their
/// elements in row-major order (as in PyTorch 2; 1.13 uses another order). Slices without elements are a ShapeError.
std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor& x, int64_t dim, bool sorted = true,
                                              bool return_inverse = false, bool return_counts = false,
                                              Loc where = Loc::current());

/// Draws num_samples indices (int64) along the last dimension of x (C) or (N, C), with probabilities proportional to x,
/// which must be nonnegative, finite and not all 0. Without replacement, drawn indices are excluded from later draws.
inline Tensor multinomial(const Tensor& x, int64_t num_samples, bool replacement = false, Loc where = Loc::current()) {
  return x.multinomial(num_samples, replacement, where);
}

}  // namespace gradus
