// Joining tensors, and views of their parts.
#include <algorithm>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/axes.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/shape.h>

namespace gradus {
namespace {

struct Cat final : Node {
  int64_t axis = 0;
  std::vector<Shape> shapes;
  Grads backward(const Tensor& dy) override {
    Grads gradients;
    int64_t start = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const bool nothing = shapes[i] == Shape{0};
      const int64_t size = nothing ? 0 : shapes[i][static_cast<int>(axis)];
      if (!needs_grad(i)) gradients.push_back(Tensor());
      else gradients.push_back(nothing ? dy.new_zeros({0}) : dy.narrow(axis, start, size));
      start += size;
    }
    return gradients;
  }
};

// Split and unbind return several views, whose gradients are joined in one operation.
struct Split final : Node {
  Shape shape;
  int64_t axis = 0;
  std::vector<int64_t> sizes;
  Grads backward_all(const Grads& dys) override {
    TensorList parts;
    for (size_t i = 0; i < sizes.size(); ++i) {
      shape[static_cast<int>(axis)] = sizes[i];
      parts.push_back(part_or_zeros(dys, i, shape));
    }
    return {cat(parts, axis, Loc{})};
  }
  static Tensor part_or_zeros(const Grads& dys, size_t i, const Shape& shape) {
    if (i < dys.size() && dys[i].defined()) return dys[i];
    for (const Tensor& dy : dys)
      if (dy.defined()) return zeros(shape, dy.options());
    return {};
  }
};

struct Unbind final : Node {
  Shape shape;  // of one part
  int64_t axis = 0;
  size_t count = 0;
  Grads backward_all(const Grads& dys) override {
    TensorList parts;
    for (size_t i = 0; i < count; ++i) parts.push_back(Split::part_or_zeros(dys, i, shape));
    return {stack(parts, axis, Loc{})};
  }
};

// Makes the node of an operator that returns several views of x; null while nothing is recorded.
template <class N>
Ref<N> begin_views(const Tensor& x, const char* name) {
  const Tensor* input = &x;
  const bool recording = GradMode::is_enabled() && detail::any_requires_grad(&input, 1);
  detail::check_inputs(&input, 1);
  if (!recording) return nullptr;
  Ref<N> node = make_ref<N>();
  detail::begin_node(*node, &input, 1, name);
  return node;
}

TensorList run_split(const Tensor& x, const std::vector<int64_t>& sizes, int axis) {
  const Ref<Split> node = begin_views<Split>(x, "Split");
  if (node) node->shape = x.sizes(), node->axis = axis, node->sizes = sizes;
  TensorList parts;
  int64_t start = 0;
  for (size_t i = 0; i < sizes.size(); start += sizes[i++])
    parts.push_back(detail::finish_view(node, x, x.array().slice(axis, start, start + sizes[i])));
  return parts;
}

// Converts `dim` to an axis. Throws for scalars, which have no dimensions.
int axis_of_array(const Tensor& x, int64_t dim) {
  GRADUS_CHECK(x.dim() > 0, ShapeError, "a scalar has no dimensions; reshape it to (1) first");
  return axis_of(x, dim);
}

}  // namespace

// ---- Joining ----

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
  detail::check_inputs(pointers.data(), pointers.size());
  if (!recording) return detail::plain_output(ops::cat(arrays, dim));
  Ref<Cat> node = make_ref<Cat>();
  detail::begin_node(*node, pointers.data(), pointers.size(), "Cat");
  Array joined = ops::cat(arrays, dim);
  node->axis = joined.ndim() == 1 ? 0 : normalize_axis(dim, joined.ndim());
  for (const Array& array : arrays) node->shapes.push_back(array.shape());
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

Tensor hstack(const TensorList& tensors, Loc where) {
  OpScope op("hstack", where);
  GRADUS_CHECK(!tensors.empty(), ValueError, "needs at least one tensor");
  TensorList columns;
  for (const Tensor& tensor : tensors) columns.push_back(atleast_1d(tensor, where));
  return cat(columns, columns[0].dim() == 1 ? 0 : 1, where);
}

Tensor vstack(const TensorList& tensors, Loc where) {
  OpScope op("vstack", where);
  TensorList rows;
  for (const Tensor& tensor : tensors) rows.push_back(atleast_2d(tensor, where));
  return cat(rows, 0, where);
}

Tensor dstack(const TensorList& tensors, Loc where) {
  OpScope op("dstack", where);
  TensorList planes;
  for (const Tensor& tensor : tensors) planes.push_back(atleast_3d(tensor, where));
  return cat(planes, 2, where);
}

Tensor atleast_1d(const Tensor& x, Loc where) {
  OpScope op("atleast_1d", where);
  return x.dim() >= 1 ? x : x.reshape({1}, where);
}
Tensor atleast_2d(const Tensor& x, Loc where) {
  OpScope op("atleast_2d", where);
  return x.dim() >= 2 ? x : atleast_1d(x, where).unsqueeze(0, where);
}
Tensor atleast_3d(const Tensor& x, Loc where) {
  OpScope op("atleast_3d", where);
  return x.dim() >= 3 ? x : atleast_2d(x, where).unsqueeze(-1, where);
}

// ---- Parts ----

TensorList split(const Tensor& x, int64_t split_size, int64_t dim, Loc where) {
  OpScope op("split", where);
  const int axis = axis_of_array(x, dim);
  const int64_t size = x.sizes()[axis];
  GRADUS_CHECK(split_size > 0 || (split_size == 0 && size == 0), ValueError, "split_size must be positive, got ",
               split_size, " for dimension ", dim, " of size ", size);
  std::vector<int64_t> sizes;
  for (int64_t start = 0; start < size; start += split_size) sizes.push_back(std::min(split_size, size - start));
  if (size == 0) sizes.push_back(0);
  return run_split(x, sizes, axis);
}

TensorList split(const Tensor& x, const std::vector<int64_t>& split_sizes, int64_t dim, Loc where) {
  OpScope op("split", where);
  const int axis = axis_of_array(x, dim);
  const int64_t size = x.sizes()[axis];
  int64_t sum = 0;  // cannot overflow, because it is checked after each addition
  for (int64_t part : split_sizes) {
    GRADUS_CHECK(part >= 0, ValueError, "sizes must not be negative, got ", part);
    if (sum <= size) sum += std::min(part, size + 1);
  }
  GRADUS_CHECK(sum == size, ShapeError, "sizes ", to_string(split_sizes), " do not add up to dimension ", dim,
               " of shape ", x.sizes());
  return run_split(x, split_sizes, axis);
}
TensorList split_with_sizes(const Tensor& x, const std::vector<int64_t>& split_sizes, int64_t dim, Loc where) {
  return split(x, split_sizes, dim, where);
}

TensorList chunk(const Tensor& x, int64_t chunks, int64_t dim, Loc where) {
  OpScope op("chunk", where);
  GRADUS_CHECK(chunks > 0, ValueError, "the number of chunks must be positive, got ", chunks);
  const int axis = axis_of_array(x, dim);
  const int64_t size = x.sizes()[axis];
  if (size == 0) return run_split(x, std::vector<int64_t>(static_cast<size_t>(chunks), 0), axis);
  return split(x, size / chunks + (size % chunks != 0), axis, where);
}

TensorList unbind(const Tensor& x, int64_t dim, Loc where) {
  OpScope op("unbind", where);
  const int axis = axis_of_array(x, dim);
  const size_t count = static_cast<size_t>(x.sizes()[axis]);
  const Ref<Unbind> node = count > 0 ? begin_views<Unbind>(x, "Unbind") : nullptr;
  TensorList parts;
  for (size_t i = 0; i < count; ++i)
    parts.push_back(detail::finish_view(node, x, x.array().select(axis, static_cast<int64_t>(i))));
  if (node) node->shape = parts[0].sizes(), node->axis = axis, node->count = count;
  return parts;
}

std::vector<Tensor> Tensor::split(int64_t split_size, int64_t dim, Loc where) const {
  return gradus::split(*this, split_size, dim, where);
}
std::vector<Tensor> Tensor::split(const std::vector<int64_t>& split_sizes, int64_t dim, Loc where) const {
  return gradus::split(*this, split_sizes, dim, where);
}
std::vector<Tensor> Tensor::split_with_sizes(const std::vector<int64_t>& split_sizes, int64_t dim, Loc where) const {
  return gradus::split(*this, split_sizes, dim, where);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim, Loc where) const {
  return gradus::chunk(*this, chunks, dim, where);
}
std::vector<Tensor> Tensor::unbind(int64_t dim, Loc where) const { return gradus::unbind(*this, dim, where); }

}  // namespace gradus
