#include <gradus/autograd/ops/shape.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/views.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/shape.h>

namespace gradus {
namespace {

// dx is 0 but where `window` of it, which has dy's shape, shows dy.
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

struct Reshape final : Node {  // where no view is possible: a copy
  Shape shape;
  Array forward(const Array& x, const Shape& size) {
    shape = x.shape();
    return ops::reshape(x, size);
  }
  Grads backward(const Tensor& dy) override { return {dy.reshape(shape)}; }
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

struct Expand final : Node {  // the engine sums dy back to x's shape
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
    return {embed(dy, shape, [&](const Tensor& dx) { return dx.slice(axis, start, end, step, Loc{}); })};
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
    return {embed(dy, shape, [&](const Tensor& dx) { return dx.select(axis, index, Loc{}); })};
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
  Array forward(const Array& x, uint32_t axes) {
    shape = x.shape();
    Array y = x;
    for (int i = x.ndim() - 1; i >= 0; --i)
      if (axes & (1u << i)) y = y.squeeze(i);
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy.reshape(shape)}; }
};

struct AsStrided final : Node {
  ViewGeometry base, view;  // offsets count from x's first element
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

struct Cat final : Node {
  int64_t axis = 0;
  std::vector<int64_t> sizes;
  Grads backward(const Tensor& dy) override {
    Grads gradients;
    int64_t start = 0;
    for (size_t i = 0; i < sizes.size(); start += sizes[i++])
      gradients.push_back(needs_grad(i) ? dy.narrow(axis, start, sizes[i]) : Tensor());
    return gradients;
  }
};

}  // namespace

Tensor Tensor::view(IntArrayRef size, Loc where) const {
  OpScope op("view", where);
  return apply_view<View_>(op, *this, size);
}

Tensor Tensor::reshape(IntArrayRef size, Loc where) const {
  OpScope op("reshape", where);
  Strides strides;
  const Shape shape = infer_shape(size, numel(), sizes());
  return array().view_strides(shape, &strides) ? apply_view<View_>(op, *this, shape) : apply<Reshape>(op, *this, shape);
}

Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim, Loc where) const {
  OpScope op("flatten", where);
  const int first = normalize_axis(start_dim, static_cast<int>(dim())),
            last = normalize_axis(end_dim, static_cast<int>(dim()));
  GRADUS_CHECK(first <= last, ShapeError, "start_dim ", start_dim, " comes after end_dim ", end_dim, " in shape ",
               sizes());
  if (dim() == 0) return reshape({1}, where);
  Shape shape;
  int64_t joined = 1;
  for (int i = 0; i < dim(); ++i) {
    if (i < first || i > last) shape.push_back(sizes()[i]);
    else if ((joined *= sizes()[i], i == last)) shape.push_back(joined);
  }
  return reshape(shape, where);
}

Tensor Tensor::transpose(int64_t dim0, int64_t dim1, Loc where) const {
  OpScope op("transpose", where);
  return apply_view<Transpose>(op, *this, dim0, dim1);
}

Tensor Tensor::t(Loc where) const {
  OpScope op("t", where);
  GRADUS_CHECK(dim() <= 2, ShapeError, "t() needs at most two dimensions, got shape ", sizes(), "; use transpose");
  return dim() < 2 ? *this : transpose(0, 1, where);
}

Tensor Tensor::permute(IntArrayRef dims, Loc where) const {
  OpScope op("permute", where);
  return apply_view<Permute>(op, *this, dims);
}

Tensor Tensor::expand(IntArrayRef size, Loc where) const {
  OpScope op("expand", where);
  return apply_view<Expand>(op, *this, size);
}

Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step,
                     Loc where) const {
  OpScope op("slice", where);
  return apply_view<SliceView>(op, *this, dim, start.value_or(0), end.value_or(INT64_MAX), step);
}

Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length, Loc where) const {
  OpScope op("narrow", where);
  const int64_t size = this->size(dim);
  if (start < 0) start += size;
  GRADUS_CHECK(start >= 0 && length >= 0 && start <= size && length <= size - start, IndexError, "elements ", start,
               " to ", start + length, " are outside dimension ", dim, " of size ", size);
  return slice(dim, start, start + length, 1, where);
}

Tensor Tensor::select(int64_t dim, int64_t index, Loc where) const {
  OpScope op("select", where);
  return apply_view<Select>(op, *this, dim, index);
}

Tensor Tensor::unsqueeze(int64_t dim, Loc where) const {
  OpScope op("unsqueeze", where);
  return apply_view<Unsqueeze>(op, *this, static_cast<int64_t>(normalize_axis(dim, static_cast<int>(this->dim()) + 1)));
}

Tensor Tensor::squeeze(Loc where) const {
  OpScope op("squeeze", where);
  return apply_view<Squeeze>(op, *this, ~0u);
}

Tensor Tensor::squeeze(int64_t dim, Loc where) const {
  OpScope op("squeeze", where);
  return apply_view<Squeeze>(op, *this, 1u << normalize_axis(dim, static_cast<int>(this->dim())));
}

Tensor Tensor::as_strided(IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset,
                          Loc where) const {
  OpScope op("as_strided", where);
  return apply_view<AsStrided>(op, *this, size, stride, storage_offset.value_or(array().offset()));
}

Tensor cat(const TensorList& tensors, int64_t dim, Loc where) {
  OpScope op("cat", where);
  GRADUS_CHECK(!tensors.empty(), ValueError, "needs at least one tensor");
  std::vector<const Tensor*> pointers;
  std::vector<Array> arrays;
  for (const Tensor& tensor : tensors) {
    pointers.push_back(&tensor);
    arrays.push_back(tensor.array());
  }
  const bool recording = GradMode::is_enabled() && detail::any_requires_grad(pointers.data(), pointers.size());
  detail::check_inputs(pointers.data(), pointers.size(), recording);
  if (!recording) return detail::plain_output(ops::cat(arrays, dim));
  Ref<Cat> node = make_ref<Cat>();
  detail::begin_node(*node, pointers.data(), pointers.size(), "Cat");
  Array joined = ops::cat(arrays, dim);
  node->axis = normalize_axis(dim, joined.ndim());
  for (const Array& array : arrays) node->sizes.push_back(array.size(dim));
  return detail::finish_output(node, std::move(joined));
}

Tensor stack(const TensorList& tensors, int64_t dim, Loc where) {
  OpScope op("stack", where);
  GRADUS_CHECK(!tensors.empty(), ValueError, "needs at least one tensor");
  TensorList rows;
  for (size_t i = 0; i < tensors.size(); ++i) {
    GRADUS_CHECK(tensors[i].sizes() == tensors[0].sizes(), ShapeError, "tensor ", i, " has shape ", tensors[i].sizes(),
                 " but the first has ", tensors[0].sizes());
    rows.push_back(tensors[i].unsqueeze(dim, where));
  }
  return cat(rows, normalize_axis(dim, static_cast<int>(rows[0].dim())), where);
}

Tensor reshape(const Tensor& x, IntArrayRef size, Loc where) { return x.reshape(size, where); }
Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim, Loc where) {
  return x.flatten(start_dim, end_dim, where);
}
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1, Loc where) { return x.transpose(dim0, dim1, where); }
Tensor permute(const Tensor& x, IntArrayRef dims, Loc where) { return x.permute(dims, where); }
Tensor squeeze(const Tensor& x, int64_t dim, Loc where) { return x.squeeze(dim, where); }
Tensor unsqueeze(const Tensor& x, int64_t dim, Loc where) { return x.unsqueeze(dim, where); }

}  // namespace gradus
