#include <gradus/autograd/ops/sort.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

struct Reorder : Node {  // y[i] = x[order[i]] along an axis, where order is a permutation
  Saved order{this, "order"};
  int axis = 0;
  Array forward(const Array& x, const Array& order, int axis) {
    this->order = order, this->axis = axis;
    return ops::gather(x, axis, order);
  }
  Grads backward(const Tensor& dy) override {
    return {apply<Reorder>("reorder", dy, ops::argsort(order.array(), axis, false), axis)};
  }
};

struct Sort final : Reorder {  // (values, order); y is x in another order, so backward is inherited
  std::tuple<Array, Array> forward(const Array& x, int axis, bool descending) {
    this->axis = axis;
    auto sorted = ops::sort(x, axis, descending);
    order = std::get<1>(sorted);
    return sorted;
  }
};

struct TopK final : Node {  // (values, indices); gradients go to the elements from which the values were taken
  Saved indices{this, "indices"};
  Shape shape;
  int axis = 0;
  std::tuple<Array, Array> forward(const Array& x, int64_t k, int axis, bool largest) {
    this->axis = axis, shape = x.shape();
    auto found = ops::topk(x, k, axis, largest);
    indices = std::get<1>(found);
    return found;
  }
  Grads backward(const Tensor& dy) override { return {zeros(shape, dy.options()).scatter(axis, indices(), dy)}; }
};

struct Median final : ComposedNode {  // over all elements; equal elements share the gradient
  Saved x{this, "x"}, y{this, "y"};
  Array forward(const Array& X) {
    if (needs_grad(0)) x = input(0);
    const int64_t n = X.numel();
    const Array sorted = std::get<0>(ops::sort(ops::reshape(X, {-1}), 0, false));
    const Array middle = sorted.select(0, (n - 1) / 2), last = sorted.select(0, n - 1);  // NaN is last
    Array Y = ops::where(ops::unary(UnaryOp::isnan, last), last, middle);
    if (needs_grad(0)) y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor hit = (x().detach() == y().detach()).to(dy.dtype());
    return {hit * (dy / hit.sum())};
  }
};

int64_t size_along(const Tensor& x, int axis) { return x.dim() ? x.size(axis) : 1; }

// Returns `found` with empty tensors for the inverse and the counts if the caller did not ask for them.
std::tuple<Tensor, Tensor, Tensor> requested(const std::tuple<Array, Array, Array>& found, bool inverse, bool counts) {
  const auto& [values, places, numbers] = found;
  const Array nothing = Array::empty({0}, DType::i64, values.device());
  return {Tensor(values), Tensor(inverse ? places : nothing), Tensor(counts ? numbers : nothing)};
}

}  // namespace

TensorPair Tensor::sort(int64_t dim, bool descending, Loc where) const {
  OpScope op("sort", where);
  return apply<Sort>(op, *this, axis_of(*this, dim), descending);
}

Tensor Tensor::argsort(int64_t dim, bool descending, Loc where) const {
  OpScope op("argsort", where);
  return Tensor(ops::argsort(array(), axis_of(*this, dim), descending));
}

TensorPair topk(const Tensor& x, int64_t k, int64_t dim, bool largest, bool, Loc where) {
  OpScope op("topk", where);
  const int axis = axis_of(x, dim);
  GRADUS_CHECK(k >= 0 && k <= size_along(x, axis), IndexError, "k is ", k, ", but dimension ", dim, " of shape ",
               x.sizes(), " has ", size_along(x, axis), " elements");
  if (x.dim() == 0) return sort(x, axis, largest);  // the only element, at index 0
  return apply<TopK>(op, x, k, axis, largest);
}

TensorPair kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim, Loc where) {
  OpScope op("kthvalue", where);
  const int axis = axis_of(x, dim);
  GRADUS_CHECK(k >= 1 && k <= size_along(x, axis), IndexError, "k is ", k, ", but dimension ", dim, " of shape ",
               x.sizes(), " has ", size_along(x, axis), " elements, counted from 1");
  const auto [values, indices] = sort(x, axis);
  if (x.dim() == 0) return {values, indices};
  const Tensor value = values.narrow(axis, k - 1, 1).clone(), index = indices.narrow(axis, k - 1, 1).clone();
  if (keepdim) return {value, index};
  return {value.squeeze(axis), index.squeeze(axis)};
}

Tensor median(const Tensor& x, Loc where) {
  OpScope op("median", where);
  GRADUS_CHECK(x.numel() > 0, ShapeError, "median of no elements: shape ", x.sizes());
  return apply<Median>(op, x);
}

TensorPair median(const Tensor& x, int64_t dim, bool keepdim, Loc at) {
  OpScope op("median", at);
  const int axis = axis_of(x, dim);
  const int64_t size = size_along(x, axis);
  GRADUS_CHECK(size > 0, ShapeError, "median of no elements: dimension ", dim, " of shape ", x.sizes(), " is empty");
  const auto [middle, place] = kthvalue(x, (size + 1) / 2, axis, keepdim);
  if (!is_floating(x.dtype())) return {middle, place};
  const auto [largest, largest_place] = max(x, axis, keepdim);  // the first NaN, if there is one
  const Tensor none = isnan(largest);
  return {where(none, largest, middle), where(none, largest_place, place)};
}

std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& x, bool, bool return_inverse, bool return_counts, Loc where) {
  OpScope op("unique", where);
  return requested(ops::unique(x.array(), true), return_inverse, return_counts);
}

std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& x, bool return_inverse, bool return_counts,
                                                      Loc where) {
  OpScope op("unique_consecutive", where);
  return requested(ops::unique(x.array(), false), return_inverse, return_counts);
}

std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor& x, int64_t dim, bool, bool return_inverse,
                                              bool return_counts, Loc where) {
  OpScope op("unique_dim", where);
  GRADUS_CHECK(x.dim() > 0, ShapeError, "a scalar has no slices");
  const int axis = axis_of(x, dim);
  const int64_t count = x.size(axis), length = count > 0 ? x.numel() / count : 0;
  GRADUS_CHECK(count == 0 || length > 0, ShapeError, "the slices along dimension ", dim, " of shape ", x.sizes(),
               " have no elements");
  const Tensor columns = x.detach().movedim(axis, 0).reshape({count, length}).t();  // (length, count)
  // Processes one column after another. `place` is the rank of each slice among the distinct slices, comparing only the
  // columns processed so far.
  const TensorOptions integers = x.options().dtype(kLong);
  Tensor place = zeros({count}, integers);
  for (int64_t i = 0; i < length; ++i)
    place = std::get<1>(_unique2(place * count + std::get<1>(_unique2(columns[i], true, true)), true, true));
  auto [places, inverse, counts] = _unique2(place, true, true, true);
  const Tensor one_of_each = zeros({places.numel()}, integers).scatter_(0, place, arange(count, integers));
  const Array values = ops::index_select(x.array(), axis, one_of_each.array());
  return requested({values, inverse.array(), counts.array()}, return_inverse, return_counts);
}

Tensor Tensor::multinomial(int64_t num_samples, bool replacement, Loc where) const {
  OpScope op("multinomial", where);
  return Tensor(ops::multinomial(array(), num_samples, replacement));
}

}  // namespace gradus
