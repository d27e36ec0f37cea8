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
/// Along one dimension: (values, int64 indices); the gradient goes to the index.
std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current());
std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false, Loc where = Loc::current());
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current());
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current());
Tensor all(const Tensor& x, Loc where = Loc::current());
Tensor any(const Tensor& x, Loc where = Loc::current());

}  // namespace gradus
