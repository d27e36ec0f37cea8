// Reading and writing through index tensors and masks. gather and scatter are each other's gradients.
#include <gradus/autograd/ops/index.h>

#include <algorithm>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

// Each element of an index along one dimension addresses either a whole slice of x or a single element of x.
enum class Access : uint8_t { slices, elements };

struct Places {
  Access access;
  int axis;
  Array index;
};
Places slices(const Tensor& x, int64_t dim, const Tensor& index) {
  return {Access::slices, axis_of(x, dim), index.array()};
}
Places elements(const Tensor& x, int64_t dim, const Tensor& index) {
  return {Access::elements, axis_of(x, dim), index.array()};
}

struct Take final : Node {  // y[…, i, …] = x[…, index[i], …] for slices; gather() in ops/index.h for elements
  Saved index{this, "index"};
  Shape shape;
  int64_t axis = 0;
  Access access = Access::slices;
  const char* name() const override { return access == Access::slices ? "IndexSelect" : "Gather"; }
  Array forward(const Array& x, const Places& from) {
    access = from.access, shape = x.shape(), axis = from.axis, index = from.index;
    return (access == Access::slices ? ops::index_select : ops::gather)(x, from.axis, from.index);
  }
  Grads backward(const Tensor& dy) override {
    const Tensor dx = zeros(shape, dy.options());
    return {access == Access::slices ? dx.index_add_(axis, index(), dy) : dx.scatter_add_(axis, index(), dy)};
  }
};

struct Put final : Node {  // y = x, but source (or x + source) in the elements that Take would read
  Saved index{this, "index"};
  int64_t axis = 0;
  Access access = Access::slices;
  bool adds = false;
  const char* name() const override {
    if (access == Access::slices) return adds ? "IndexAdd" : "IndexCopy";
    return adds ? "ScatterAdd" : "Scatter";
  }
  Array forward(const Array& x, const Array& source, const Places& to, bool accumulate) {
    access = to.access, axis = to.axis, adds = accumulate, index = to.index;
    Array y = destination(x) ? x : ops::clone(x);
    (access == Access::slices ? ops::index_into : ops::scatter_into)(y, to.axis, to.index, source, accumulate);
    return y;
  }
  Grads backward(const Tensor& dy) override {
    Grads gradients = {dy, Tensor()};
    const bool slices = access == Access::slices;
    if (needs_grad(0) && !adds) gradients[0] = slices ? dy.index_fill(axis, index(), 0) : dy.scatter(axis, index(), 0);
    if (needs_grad(1)) gradients[1] = slices ? dy.index_select(axis, index()) : dy.gather(axis, index());
    return gradients;
  }
};

// Returns a tensor of x's type and the given shape that is expanded from a single element in memory.
Tensor filled(const Tensor& x, const Scalar& value, const Shape& shape) {
  return full({}, value, x.options()).expand(shape);
}

// Returns the value of masked_fill as a scalar tensor of x's type.
Tensor fill_value(const Tensor& x, const Operand& value) {
  if (!value.tensor) return filled(x, value.scalar, {});
  GRADUS_CHECK(value.tensor->numel() == 1, ShapeError, "the value must be a number or have one element, got shape ",
               value.tensor->sizes());
  if (value.tensor->device().is_cpu()) ops::check_fits(ops::item(value.tensor->array()), x.dtype());
  return value.tensor->reshape({}).to(x.device(), x.dtype());
}

Tensor scaled(const Tensor& source, const Scalar& alpha) {
  return alpha.to_double() == 1 ? source : mul(source, alpha);
}

// Returns the part of the source that has the shape of the index; a source may be larger than the index.
Tensor source_for(const Tensor& x, const Tensor& index, const Operand& source) {
  if (!source.tensor) return filled(x, source.scalar, index.sizes());
  Tensor part = *source.tensor;
  GRADUS_CHECK(part.dim() == index.dim(), ShapeError, "index and source must have the same number of dimensions, got ",
               "shapes ", index.sizes(), " and ", part.sizes());
  for (int i = 0; i < part.dim(); ++i) {
    const int64_t size = part.sizes()[i], wanted = index.sizes()[i];
    GRADUS_CHECK(wanted <= size, ShapeError, "index of shape ", index.sizes(), " is larger than the source of shape ",
                 source.tensor->sizes(), " in dimension ", i);
    if (wanted < size) part = part.narrow(i, 0, wanted);
  }
  return part;
}

// Returns a source for index_fill.
Tensor filled_slices(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value) {
  Shape shape = x.sizes();
  if (shape.size() > 0) shape[axis_of(x, dim)] = index.numel();
  return filled(x, value, shape);
}

}  // namespace

// ---- Parts along one dimension ----

Tensor Tensor::index_select(int64_t dim, const Tensor& index, Loc where) const {
  OpScope op("index_select", where);
  GRADUS_CHECK(index.dim() <= 1, ShapeError, "the index must be a vector, got shape ", index.sizes());
  const Places places = slices(*this, dim, index.dim() == 0 ? index.unsqueeze(0) : index);
  if (this->dim() > 0) return apply<Take>(op, *this, places);
  GRADUS_CHECK(index.numel() == 1, ShapeError, "a scalar has one element to select, got an index of shape ",
               index.sizes());
  return apply<Take>(op, unsqueeze(0), places).squeeze(0);
}
Tensor Tensor::index_add(int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha, Loc where) const {
  OpScope op("index_add", where);
  const auto sum = [&](const Tensor& x, const Tensor& source) {
    return apply<Put>(op, x, scaled(source, alpha), slices(x, dim, index), true);
  };
  return alpha.to_double() == 1 ? sum(*this, source) : composed(op, sum, *this, source);
}
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Loc where) {
  OpScope op("index_copy", where);
  return apply<Put>(op, x, source, slices(x, dim, index), false);
}
const Tensor& index_copy_(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Loc where) {
  OpScope op("index_copy_", where);
  return apply_in_place<Put>(op, x, source, slices(x, dim, index), false);
}
Tensor Tensor::index_fill(int64_t dim, const Tensor& index, const Scalar& value, Loc where) const {
  OpScope op("index_fill", where);
  return apply<Put>(op, *this, filled_slices(*this, dim, index, value), slices(*this, dim, index), false);
}

const Tensor& Tensor::index_add_(int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha,
                                 Loc where) const {
  OpScope op("index_add_", where);
  if (is_half(dtype()) && alpha.to_double() != 1) return copy_(gradus::index_add(*this, dim, index, source, alpha));
  return apply_in_place<Put>(op, *this, scaled(source, alpha), slices(*this, dim, index), true);
}
const Tensor& Tensor::index_fill_(int64_t dim, const Tensor& index, const Scalar& value, Loc where) const {
  OpScope op("index_fill_", where);
  return apply_in_place<Put>(op, *this, filled_slices(*this, dim, index, value), slices(*this, dim, index), false);
}

// ---- Element by element ----

Tensor Tensor::gather(int64_t dim, const Tensor& index, Loc where) const {
  OpScope op("gather", where);
  return apply<Take>(op, *this, elements(*this, dim, index));
}

Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::optional<int64_t> dim, Loc where) {
  OpScope op("take_along_dim", where);
  if (!dim) return x.reshape({-1}).gather(0, indices.reshape({-1}));
  const int axis = axis_of(x, *dim);
  GRADUS_CHECK(x.dim() == indices.dim(), ShapeError,
               "x and indices must have the same number of dimensions, got shapes ", x.sizes(), " and ",
               indices.sizes());
  Shape from = x.sizes(), to = indices.sizes();
  from[axis] = to[axis];
  from = to = broadcast_shapes(from, to);
  from[axis] = x.sizes()[axis];
  return x.expand(from).gather(axis, indices.expand(to));
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source) {
  OpScope op("scatter", source.where);
  return apply<Put>(op, x, source_for(x, index, source), elements(x, dim, index), false);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce) {
  OpScope op("scatter", source.where);
  GRADUS_CHECK(reduce == "add", ValueError, "reduce must be \"add\", got \"", reduce, "\"");
  return apply<Put>(op, x, source_for(x, index, source), elements(x, dim, index), true);
}
Tensor Tensor::scatter_add(int64_t dim, const Tensor& index, const Tensor& source, Loc where) const {
  OpScope op("scatter_add", where);
  return apply<Put>(op, *this, source_for(*this, index, source), elements(*this, dim, index), true);
}

Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Operand& source) const {
  return gradus::scatter(*this, dim, index, source);
}
const Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Operand& source) const {
  OpScope op("scatter_", source.where);
  return apply_in_place<Put>(op, *this, source_for(*this, index, source), elements(*this, dim, index), false);
}
const Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& index, const Tensor& source, Loc where) const {
  OpScope op("scatter_add_", where);
  return apply_in_place<Put>(op, *this, source_for(*this, index, source), elements(*this, dim, index), true);
}

// ---- Masks ----

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value) {
  OpScope op("masked_fill", value.where);
  return gradus::where(mask, fill_value(x, value), x);
}
Tensor Tensor::masked_fill(const Tensor& mask, const Operand& value) const {
  return gradus::masked_fill(*this, mask, value);
}
const Tensor& Tensor::masked_fill_(const Tensor& mask, const Operand& value) const {
  OpScope op("masked_fill_", value.where);
  return copy_(gradus::where(mask, fill_value(*this, value), *this));
}

Tensor masked_select(const Tensor& x, const Tensor& mask, Loc where) {
  OpScope op("masked_select", where);
  GRADUS_CHECK(mask.dtype() == kBool || mask.dtype() == kByte, DTypeError, "the mask must be boolean (or uint8), got ",
               mask.dtype());
  const Shape shape = broadcast_shapes(x.sizes(), mask.sizes());
  return x.expand(shape).reshape({-1}).index_select(0, places_of(mask.to(kBool).expand(shape)));
}
Tensor Tensor::masked_select(const Tensor& mask, Loc where) const { return gradus::masked_select(*this, mask, where); }

Tensor nonzero(const Tensor& x, Loc where) {
  OpScope op("nonzero", where);
  return Tensor(ops::nonzero(x.array()));
}
Tensor argwhere(const Tensor& x, Loc where) { return nonzero(x, where); }
Tensor Tensor::nonzero(Loc where) const { return gradus::nonzero(*this, where); }
TensorList nonzero_numpy(const Tensor& x, Loc where) {
  OpScope op("nonzero_numpy", where);
  return nonzero(x.dim() == 0 ? x.reshape({1}) : x).unbind(1);
}
TensorList where(const Tensor& condition, Loc where) {
  OpScope op("where", where);
  return nonzero_numpy(condition);
}

// ---- Classes and grids ----

Tensor one_hot(const Tensor& x, int64_t num_classes, Loc where) {
  OpScope op("one_hot", where);
  GRADUS_CHECK(x.dtype() == kLong || x.dtype() == kInt, DTypeError, "classes must be int64 or int32, got ", x.dtype());
  GRADUS_CHECK(num_classes >= -1, ValueError, "num_classes must not be negative, got ", num_classes);
  GRADUS_CHECK(num_classes > 0 || x.numel() > 0, ValueError, "without elements the number of classes must be given");
  const int64_t largest = num_classes >= 0 ? num_classes - 1 : x.max().item<int64_t>();
  const int64_t classes = std::min(largest, INT64_MAX - 1) + 1;
  Shape shape = x.sizes();
  shape.push_back(std::max<int64_t>(classes, 0));
  return zeros(shape, x.options().dtype(kLong)).scatter_(-1, x.unsqueeze(-1), 1);
}

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength, Loc where) {
  OpScope op("bincount", where);
  GRADUS_CHECK(is_integral(x.dtype()), DTypeError, "needs integers, got ", x.dtype());
  GRADUS_CHECK(x.dim() == 1, ShapeError, "needs one dimension, got shape ", x.sizes());
  GRADUS_CHECK(minlength >= 0, ValueError, "minlength must not be negative, got ", minlength);
  GRADUS_CHECK(!weights.defined() || weights.sizes() == x.sizes(), ShapeError, "weights of shape ", weights.sizes(),
               " for numbers of shape ", x.sizes());
  const NoGradGuard no_grad;
  const Tensor places = x.to(kLong);
  int64_t length = minlength;
  if (x.numel() > 0) {
    GRADUS_CHECK(places.min().item<int64_t>() >= 0, ValueError, "the numbers must not be negative");
    length = std::max(minlength, checked_sum(places.max().item<int64_t>(), 1));
  }
  const DType type = !weights.defined() ? kLong : weights.dtype() == kFloat ? kFloat : kDouble;
  const Tensor counts = zeros({length}, TensorOptions(type).device(x.device()));
  return counts.index_add_(0, places, weights.defined() ? weights.to(type) : ones_like(places));
}

TensorList meshgrid(const TensorList& tensors, std::string_view indexing, Loc where) {
  OpScope op("meshgrid", where);
  GRADUS_CHECK(!tensors.empty(), ValueError, "needs at least one tensor");
  GRADUS_CHECK(indexing == "ij" || indexing == "xy", ValueError, "indexing must be \"ij\" or \"xy\", got \"", indexing,
               "\"");
  Shape grid;
  for (const Tensor& tensor : tensors) {
    GRADUS_CHECK(tensor.dim() <= 1, ShapeError, "needs vectors, got shape ", tensor.sizes());
    grid.push_back(tensor.numel());
  }
  TensorList result;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Shape shape = Dims::filled(grid.size(), 1);
    shape[static_cast<int>(i)] = grid[static_cast<int>(i)];
    result.push_back(tensors[i].reshape(shape).expand(grid));
    if (indexing == "xy" && grid.size() > 1) result.back() = result.back().transpose(0, 1);
  }
  return result;
}

}  // namespace gradus
