// Sorting, and what stands on it. Sorts are stable; NaN is larger than all numbers. Gradients go to where values came
// from.
#pragma once

#include <tuple>

#include <gradus/autograd/tensor.h>

namespace gradus {

/// (values in order along `dim`, int64 indices of where they were)
std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false, Loc where = Loc::current());
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, Loc where = Loc::current());
/// LibTorch's `stable` changes nothing.
inline std::tuple<Tensor, Tensor> sort(const Tensor& x, Flag auto, int64_t dim = -1, bool descending = false,
                                       Loc where = Loc::current()) {
  return sort(x, dim, descending, where);
}
inline Tensor argsort(const Tensor& x, Flag auto, int64_t dim = -1, bool descending = false,
                      Loc where = Loc::current()) {
  return argsort(x, dim, descending, where);
}
/// The k largest or smallest along `dim`: (values, int64 indices), in order whatever `sorted` says.
std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true,
                                Loc where = Loc::current());
/// The k-th smallest, counted from 1: (value, int64 index).
std::tuple<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false,
                                    Loc where = Loc::current());
/// The lower of the two in the middle; NaN if there is one. Over all elements equal ones share the gradient.
Tensor median(const Tensor& x, Loc where = Loc::current());
std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current());

/// The different elements of x in order (always sorted), the place of each of x's elements among them (x's shape), and
/// how often each occurs; what is not asked for is an empty tensor. Not differentiable. (torch::_unique2)
std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& x, bool sorted = true, bool return_inverse = false,
                                            bool return_counts = false, Loc where = Loc::current());
std::tuple<Tensor, Tensor> _unique(const Tensor& x, bool sorted = true, bool return_inverse = false,
                                   Loc where = Loc::current());
/// The same without sorting: only neighbours that are equal become one.
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& x, bool return_inverse = false,
                                                      bool return_counts = false, Loc where = Loc::current());
/// The different slices along `dim`, with the same tuple, in lexicographic order of their elements in row-major order
/// (as in PyTorch 2; 1.13 takes another). Slices without elements are a ShapeError.
std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor& x, int64_t dim, bool sorted = true,
                                              bool return_inverse = false, bool return_counts = false,
                                              Loc where = Loc::current());

/// num_samples indices (int64) along the last dimension of x (C) or (N, C), each drawn with a probability proportional
/// to x (not negative, finite, not all 0); without replacement one after the other from what is left.
Tensor multinomial(const Tensor& x, int64_t num_samples, bool replacement = false, Loc where = Loc::current());

}  // namespace gradus
