#include <gradus/autograd/ops/shape.h>

#include <algorithm>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

// Returns the gradient of a tensor of the given shape from the gradient dy of the part that window(tensor) selects.
template <class Window>
Tensor embed(const Tensor& dy, const Shape& shape, Window&& window) {
  Tensor dx = zeros(shape, dy.options());
  window(dx).copy_(dy);
  return dx;
}

struct View_ final : Node {  // y = x under another shape
  Shape shape;
  const char* name() const override { return "View"; }
  Array forward(const Array& x, const Shape& size) {
    shape = x.shape();
    return x.view(size);
  }
  Grads backward(const Tensor& dy) override { return {dy.reshape(shape)}; }
};

struct Reshape final : Node {  // y = x under another shape, copied because no view can have it
  Shape shape;
  bool channels_last = false;
  Array forward(const Array& x, const Shape& size) {
    shape = x.shape();
    channels_last = x.is_channels_last();
    return ops::reshape(x, size);
  }
  // Gives dx the layout of x, which the backward of the convolution that made x needs. The conversion here frees dy
  // early; a conversion in the backward of the convolution would keep both copies in memory.
  Grads backward(const Tensor& dy) override {
    const Tensor dx = dy.reshape(shape);
    return {channels_last ? dx.contiguous(MemoryFormat::channels_last) : dx};
  }
};

struct Transpose final : Node {
  int64_t a = 0, b = 0;
  Array forward(const Array& x, int64_t dim0, int64_t dim1) {
    a = dim0, b = dim1;
    return x.transpose(a, b);
  }
  Grads backward(const Tensor& dy) override { return {dy.transpose(a, b)}; }
};

struct Permute final : Node {
  Dims inverse;
  Array forward(const Array& x, const Dims& order) {
    Array y = x.permute(order);
    inverse = order;
    for (int i = 0; i < order.size(); ++i) inverse[normalize_axis(order[i], x.ndim())] = i;
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy.permute(inverse)}; }
};

struct Expand final : Node {  // the engine sums the gradient to x's shape
  Array forward(const Array& x, const Shape& size) { return x.expand(size); }
  Grads backward(const Tensor& dy) override { return {dy}; }
};

struct SliceView final : Node {
  Shape shape;
  int64_t axis = 0, start = 0, end = 0, step = 1;
  const char* name() const override { return "Slice"; }
  Array forward(const Array& x, int64_t axis, int64_t start, int64_t end, int64_t step) {
    shape = x.shape();
    this->axis = axis, this->start = start, this->end = end, this->step = step;
    return x.slice(axis, start, end, step);
  }
  Grads backward(const Tensor& dy) override {
    return {embed(dy, shape, [&](const Tensor& dx) { return dx.slice(axis, start, end, step); })};
  }
};

struct Select final : Node {
  Shape shape;
  int64_t axis = 0, index = 0;
  Array forward(const Array& x, int64_t axis, int64_t index) {
    shape = x.shape();
    this->axis = axis, this->index = index;
    return x.select(axis, index);
  }
  Grads backward(const Tensor& dy) override {
    return {embed(dy, shape, [&](const Tensor& dx) { return dx.select(axis, index); })};
  }
};

struct Unsqueeze final : Node {
  int64_t axis = 0;
  Array forward(const Array& x, int64_t axis) {
    this->axis = axis;
    return x.unsqueeze(axis);
  }
  Grads backward(const Tensor& dy) override { return {dy.squeeze(axis)}; }
};

struct Squeeze final : Node {
  Shape shape;
  Array forward(const Array& x, std::optional<int64_t> dim) {
    const uint32_t axes = dim ? 1u << normalize_axis(*dim, x.ndim()) : ~0u;
    shape = x.shape();
    Array y = x;
    for (int i = x.ndim() - 1; i >= 0; --i)
      if (axes & (1u << i)) y = y.squeeze(i);
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy.reshape(shape)}; }
};

struct AsStrided final : Node {
  ViewGeometry base, view;  // offsets are relative to x's first element
  Array forward(const Array& x, const Shape& size, const Strides& stride, int64_t storage_offset) {
    Array y = x.as_strided(size, stride, storage_offset);
    GRADUS_CHECK(!needs_grad(0) || !x.may_overlap(), AutogradError, "elements of the input, of shape ", x.shape(),
                 " and strides ", x.strides(), ", share memory (an expanded tensor); clone() it first");
    GRADUS_CHECK(!needs_grad(0) || storage_offset >= x.offset(), AutogradError, "a view that starts at element ",
                 storage_offset, ", before its input's first element ", x.offset(), ", has no gradient");
    base = {x.shape(), x.strides(), 0};
    view = {size, stride, storage_offset - x.offset()};
    return y;
  }
  Grads backward(const Tensor& dy) override { return {gradient_of_base(dy, base, view)}; }
};

struct Diagonal final : Node {
  Shape shape;
  int64_t offset = 0, dim1 = 0, dim2 = 1;
  Array forward(const Array& x, int64_t number, int first, int second) {
    shape = x.shape(), offset = number, dim1 = first, dim2 = second;
    const int64_t rows = shape[first], columns = shape[second];
    const int64_t skip = number >= 0 ? number * x.strides()[second] : -number * x.strides()[first];
    const int64_t length = number >= 0 ? std::min(rows, columns - number) : std::min(rows + number, columns);
    Shape sizes;
    Strides strides;
    for (int i = 0; i < x.ndim(); ++i)
      if (i != first && i != second) sizes.push_back(shape[i]), strides.push_back(x.strides()[i]);
    sizes.push_back(std::max<int64_t>(length, 0));
    strides.push_back(x.strides()[first] + x.strides()[second]);
    return Array(x.storage(), x.offset() + (length > 0 ? skip : 0), sizes, strides, x.dtype());
  }
  Grads backward(const Tensor& dy) override {
    return {embed(dy, shape, [&](const Tensor& dx) { return dx.diagonal(offset, dim1, dim2); })};
  }
};

struct UnfoldAlong final : Node {  // y[…, i, …, k] = x[…, i step + k, …]
  Shape shape;
  int64_t axis = 0, step = 1;
  const char* name() const override { return "Unfold"; }
  Array forward(const Array& x, int along, int64_t size, int64_t distance) {
    shape = x.shape(), axis = along, step = distance;
    Shape sizes = x.shape();
    Strides strides = x.strides();
    sizes[along] = (sizes[along] - size) / distance + 1;
    sizes.push_back(size), strides.push_back(strides[along]);
    if (sizes[along] > 1) strides[along] *= distance;
    return Array(x.storage(), x.offset(), sizes, strides, x.dtype());
  }
  Grads backward(const Tensor& dy) override {
    const Tensor dx = zeros(shape, dy.options());
    const int64_t windows = dy.size(axis), size = dy.size(-1);
    for (int64_t k = 0; k < size; ++k) dx.slice(axis, k, k + (windows - 1) * step + 1, step).add_(dy.select(-1, k));
    return {dx};
  }
};

void check_matrix(const Tensor& x, const char* method) {
  GRADUS_CHECK(x.dim() <= 2, ShapeError, method, " needs at most two dimensions, got shape ", x.sizes(),
               "; use transpose");
}

}  // namespace

Tensor Tensor::view(IntArrayRef size, Loc where) const { return apply_view<View_>({"view", where}, *this, size); }

Tensor Tensor::view_as_type(DType dtype, Loc where) const {
  OpScope op("view", where);
  const Array& x = array();
  const int64_t from = static_cast<int64_t>(size_of(x.dtype())), to = static_cast<int64_t>(size_of(dtype));
  int64_t offset = x.offset();
  Shape shape = x.shape();
  Strides strides = x.strides();
  if (from != to) {
    GRADUS_CHECK(x.ndim() > 0 && strides.back() == 1, ShapeError, "a view of ", x.dtype(), " as ", dtype,
                 ", of another size, needs a last dimension with stride 1; shape ", x.shape(), " has strides ",
                 x.strides());
    const auto rescale = [&](int64_t& count) {
      GRADUS_CHECK(count * from % to == 0, ShapeError, "shape ", x.shape(), " with strides ", x.strides(),
                   " at offset ", x.offset(), " of ", x.dtype(), " does not divide into ", dtype);
      count = count * from / to;
    };
    rescale(offset), rescale(shape[x.ndim() - 1]);
    for (int axis = 0; axis < x.ndim() - 1; ++axis) rescale(strides[axis]);
  }
  return Tensor(Array(x.storage(), offset, shape, strides, dtype));
}

Tensor Tensor::reshape(IntArrayRef size, Loc where) const {
  OpScope op("reshape", where);
  Strides strides;
  const Shape shape = infer_shape(size, numel(), sizes());
  return array().view_strides(shape, &strides) ? apply_view<View_>(op, *this, shape) : apply<Reshape>(op, *this, shape);
}

Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim, Loc where) const {
  OpScope op("flatten", where);
  const int first = axis_of(*this, start_dim), last = axis_of(*this, end_dim);
  GRADUS_CHECK(first <= last, ShapeError, "start_dim ", start_dim, " comes after end_dim ", end_dim, " in shape ",
               sizes());
  if (dim() == 0) return reshape({1});
  Shape shape = sizes();
  for (int i = first; i < last; ++i) {
    shape[first] *= shape[first + 1];
    shape.erase(first + 1);
  }
  return reshape(shape);
}

Tensor Tensor::transpose(int64_t dim0, int64_t dim1, Loc where) const {
  return apply_view<Transpose>({"transpose", where}, *this, dim0, dim1);
}

Tensor Tensor::t(Loc where) const {
  OpScope op("t", where);
  check_matrix(*this, "t()");
  return dim() < 2 ? *this : transpose(0, 1);
}

Tensor Tensor::permute(IntArrayRef dims, Loc where) const {
  return apply_view<Permute>({"permute", where}, *this, dims);
}

Tensor Tensor::expand(IntArrayRef size, Loc where) const { return apply_view<Expand>({"expand", where}, *this, size); }

Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step,
                     Loc where) const {
  return apply_view<SliceView>({"slice", where}, *this, dim, start.value_or(0), end.value_or(INT64_MAX), step);
}

Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length, Loc where) const {
  OpScope op("narrow", where);
  const int64_t size = this->size(dim);
  if (start < 0) start += size;
  GRADUS_CHECK(start >= 0 && length >= 0 && start <= size && length <= size - start, IndexError, length,
               " elements from index ", start, " are out of range for dimension ", dim, " of size ", size);
  return slice(dim, start, start + length, 1);
}

Tensor Tensor::select(int64_t dim, int64_t index, Loc where) const {
  return apply_view<Select>({"select", where}, *this, dim, index);
}

Tensor Tensor::unsqueeze(int64_t dim, Loc where) const {
  return apply_view<Unsqueeze>({"unsqueeze", where}, *this, dim);
}

Tensor Tensor::squeeze(std::optional<int64_t> dim, Loc where) const {
  return apply_view<Squeeze>({"squeeze", where}, *this, dim);
}

const Tensor& Tensor::resize_(IntArrayRef size, Loc where) const {
  OpScope op("resize_", where);
  GRADUS_CHECK(!requires_grad(), AutogradError, "cannot resize variables that require grad");
  const Array& old = array();
  const size_t bytes = checked_bytes(size, old.dtype());
  const size_t first = static_cast<size_t>(old.offset()) * size_of(old.dtype());
  Array resized;
  if (first + bytes <= old.storage().bytes()) {
    resized = old.as_strided(size, contiguous_strides(size), old.offset());
  } else {
    resized = Array::empty(size, old.dtype(), old.device());
    const int64_t kept =
        (static_cast<int64_t>(old.storage().bytes() - first)) / static_cast<int64_t>(size_of(old.dtype()));
    if (kept > 0) ops::copy_into(resized.as_strided({kept}, {1}, 0), old.as_strided({kept}, {1}, old.offset()));
  }
  impl()->array = std::move(resized);
  return *this;
}

const Tensor& Tensor::transpose_(int64_t dim0, int64_t dim1, Loc where) const {
  return apply_view_in_place<Transpose>({"transpose_", where}, *this, dim0, dim1);
}

const Tensor& Tensor::t_(Loc where) const {
  OpScope op("t_", where);
  check_matrix(*this, "t_()");
  return dim() < 2 ? *this : transpose_(0, 1);
}

const Tensor& Tensor::unsqueeze_(int64_t dim, Loc where) const {
  return apply_view_in_place<Unsqueeze>({"unsqueeze_", where}, *this, dim);
}

const Tensor& Tensor::squeeze_(std::optional<int64_t> dim, Loc where) const {
  return apply_view_in_place<Squeeze>({"squeeze_", where}, *this, dim);
}

Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step, Loc where) const {
  OpScope op("unfold", where);
  GRADUS_CHECK(step > 0, ValueError, "step must be positive, got ", step);
  const int axis = axis_of(*this, dim);
  const int64_t length = this->dim() > 0 ? sizes()[axis] : 1;
  GRADUS_CHECK(size >= 0 && size <= length, ShapeError, "windows of ", size, " elements do not fit dimension ", dim,
               " of shape ", sizes());
  if (this->dim() == 0) return unsqueeze(0).unfold(0, size, step).select(0, 0);
  return apply_view<UnfoldAlong>(op, *this, axis, size, step);
}

Tensor Tensor::as_strided(IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset,
                          Loc where) const {
  OpScope op("as_strided", where);  // opened before array() can throw, so that the error names as_strided
  return apply_view<AsStrided>(op, *this, size, stride, storage_offset.value_or(array().offset()));
}

Tensor Tensor::unflatten(int64_t dim, IntArrayRef sizes, Loc where) const {
  OpScope op("unflatten", where);
  const int axis = axis_of(*this, dim);
  GRADUS_CHECK(this->dim() > 0 && !sizes.empty(), ShapeError, "dimension ", dim, " of shape ", this->sizes(),
               " cannot become ", sizes);
  Shape shape;
  for (int i = 0; i < axis; ++i) shape.push_back(this->sizes()[i]);
  for (int64_t size : infer_shape(sizes, this->sizes()[axis], {this->sizes()[axis]})) shape.push_back(size);
  for (int i = axis + 1; i < this->dim(); ++i) shape.push_back(this->sizes()[i]);
  return reshape(shape);
}

Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2, Loc where) const {
  OpScope op("diagonal", where);
  GRADUS_CHECK(dim() >= 2, ShapeError, "needs at least two dimensions, got shape ", sizes());
  const int first = axis_of(*this, dim1), second = axis_of(*this, dim2);
  GRADUS_CHECK(first != second, IndexError, "dim1 and dim2 are both ", first);
  return apply_view<Diagonal>(op, *this, std::clamp(offset, -sizes()[first], sizes()[second]), first, second);
}

Tensor Tensor::movedim(IntArrayRef source, IntArrayRef destination, Loc where) const {
  OpScope op("movedim", where);
  GRADUS_CHECK(source.size() == destination.size(), ShapeError, "sources ", source, " and destinations ", destination,
               " differ in number");
  Dims order = Dims::filled(ndim_of(*this), -1);
  uint32_t moved = axis_mask(source, ndim_of(*this));  // throws on repeated dimensions
  axis_mask(destination, ndim_of(*this));
  if (source.empty()) moved = 0;
  for (int i = 0; i < source.size(); ++i) order[axis_of(*this, destination[i])] = axis_of(*this, source[i]);
  int next = 0;
  for (int64_t& axis : order) {
    if (axis >= 0) continue;
    while (moved & (1u << next)) ++next;
    axis = next++;
  }
  return permute(order);
}

// ---- Functions that are not methods ----

Tensor broadcast_to(const Tensor& x, IntArrayRef size, Loc where) {
  OpScope op("broadcast_to", where);
  return x.expand(size);
}

TensorList broadcast_tensors(const TensorList& tensors, Loc where) {
  OpScope op("broadcast_tensors", where);
  Shape shape;
  for (const Tensor& tensor : tensors) shape = broadcast_shapes(shape, tensor.sizes());
  TensorList result;
  for (const Tensor& tensor : tensors) result.push_back(tensor.expand(shape));
  return result;
}

}  // namespace gradus
