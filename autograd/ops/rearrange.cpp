// Joined, repeated, reversed and shifted copies, and views of parts.
#include <algorithm>
#include <cmath>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

struct Diag final : Node {  // a square matrix with x on one of its diagonals and zeros elsewhere
  int64_t offset = 0;
  Array forward(const Array& x, int64_t number) {
    offset = number;
    const int64_t size = x.numel() + std::abs(number), first = number >= 0 ? number : -number * size;
    Array y = ops::zeros({size, size}, x.dtype(), x.device());
    if (x.numel() > 0) ops::copy_into(y.as_strided(x.shape(), {size + 1}, first), x);
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy.diagonal(offset, 0, 1)}; }
};

struct Flip final : Node {
  uint32_t mask = 0;
  Array forward(const Array& x, uint32_t axes) {
    mask = axes;
    Array y = Array::empty(x.shape(), x.dtype(), x.device(), ops::output_format(x));
    // Copies from a view of x that starts at the last element of each flipped axis and has negative strides.
    Strides strides = x.strides();
    int64_t first = x.offset();
    for (int i = 0; i < x.ndim(); ++i)
      if (axes & (1u << i)) first += (x.shape()[i] - 1) * strides[i], strides[i] = -strides[i];
    ops::copy_into(y, Array(x.storage(), first, x.shape(), strides, x.dtype()));
    return y;
  }
  Grads backward(const Tensor& dy) override { return {mask ? dy.flip(axes_of(mask)) : dy}; }
};

struct Roll final : Node {  // along one dimension
  int64_t axis = 0, shift = 0;
  Array forward(const Array& x, int along, int64_t by) {
    Array y = Array::empty_like(x);
    const int64_t size = x.shape()[along], first = size > 0 ? ((by % size) + size) % size : 0;
    axis = along, shift = first;
    ops::copy_into(y.slice(along, first, size), x.slice(along, 0, size - first));
    ops::copy_into(y.slice(along, 0, first), x.slice(along, size - first, size));
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy.roll({-shift}, {axis})}; }
};

// Inserts a dimension of size `count` at `at` and merges it with dimension `start` of x. If the new dimension comes
// before that dimension (at == start), the sequence of elements is repeated as a whole; if it comes after, each element
// is repeated.
Tensor repeat_along(const Tensor& x, int at, int start, int64_t count) {
  const Tensor room = x.unsqueeze(at);
  Shape shape = room.sizes();
  shape[at] = count;
  const Tensor repeated = room.expand(shape);  // throws if there are too many elements
  Shape joined = x.sizes();
  joined[start] *= count;
  return repeated.reshape(joined);
}

// True for the elements that tril keeps: column - row <= diagonal.
Tensor lower_triangle(const Tensor& x, int64_t diagonal) {
  GRADUS_CHECK(x.dim() >= 2, ShapeError, "needs at least two dimensions, got shape ", x.sizes());
  diagonal = std::clamp(diagonal, -x.size(-2), x.size(-1));
  // Float32 represents integers up to 2^24 exactly, and its comparisons are vectorized.
  const DType dtype = x.size(-2) + x.size(-1) < (1 << 23) ? kFloat : kLong;
  const TensorOptions options = TensorOptions(dtype).device(x.device());
  return arange(x.size(-1), options) <= arange(x.size(-2), options).unsqueeze(1) + diagonal;
}

}  // namespace

Tensor repeat(const Tensor& x, IntArrayRef repeats, Loc where) {
  OpScope op("repeat", where);
  GRADUS_CHECK(repeats.size() >= x.dim(), ShapeError, "the numbers ", repeats,
               " are fewer than the dimensions of shape ", x.sizes());
  Shape shape = Dims::filled(repeats.size() - ndim_of(x), 1);
  for (int64_t size : x.sizes()) shape.push_back(size);
  int repeated = 0;
  for (int64_t count : repeats) {
    GRADUS_CHECK(count >= 0, ValueError, "numbers of repetitions must not be negative, got ", repeats);
    repeated += count != 1;
  }
  const auto by_dimensions = [&](const Tensor& x) {
    Tensor y = x.reshape(shape);
    for (int i = 0; i < repeats.size(); ++i)
      if (repeats[i] != 1) y = repeat_along(y, i, i, repeats[i]);
    return y;
  };
  // If several dimensions are repeated, the gradient is summed once for each. A composition rounds it to a half type
  // only once.
  const Tensor y = repeated > 1 ? composed(op, by_dimensions, x) : by_dimensions(x);
  return y.array().storage() == x.array().storage() ? y.clone() : y;
}

Tensor tile(const Tensor& x, IntArrayRef repeats, Loc where) {
  OpScope op("tile", where);
  Dims all = Dims::filled(std::max(0, ndim_of(x) - repeats.size()), 1);
  for (int64_t count : repeats) all.push_back(count);
  return repeat(x, all);
}

Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> dim, Loc where) const {
  OpScope op("repeat_interleave", where);
  GRADUS_CHECK(repeats >= 0, ValueError, "the number of repetitions must not be negative, got ", repeats);
  const Tensor from = dim && this->dim() > 0 ? *this : reshape({-1});
  const int axis = axis_of(from, dim.value_or(0));
  const Tensor y = repeat_along(from, axis + 1, axis, repeats);
  return y.array().storage() == array().storage() ? y.clone() : y;
}

Tensor flip(const Tensor& x, IntArrayRef dims, Loc where) {
  OpScope op("flip", where);
  return apply<Flip>(op, x, dims.empty() ? 0u : axis_mask(dims, ndim_of(x)));
}
Tensor fliplr(const Tensor& x, Loc where) {
  OpScope op("fliplr", where);
  GRADUS_CHECK(x.dim() >= 2, ShapeError, "needs at least two dimensions, got shape ", x.sizes());
  return x.flip({1});
}
Tensor flipud(const Tensor& x, Loc where) {
  OpScope op("flipud", where);
  GRADUS_CHECK(x.dim() >= 1, ShapeError, "needs at least one dimension, got a scalar");
  return x.flip({0});
}

Tensor Tensor::roll(IntArrayRef shifts, IntArrayRef dims, Loc where) const {
  OpScope op("roll", where);
  if (dims.empty()) {
    GRADUS_CHECK(shifts.size() == 1, ValueError, "without dims one shift is needed, got ", shifts);
    return apply<Roll>(op, reshape({-1}), 0, shifts[0]).reshape(sizes());
  }
  GRADUS_CHECK(shifts.size() == dims.size(), ValueError, "shifts ", shifts, " and dims ", dims, " differ in number");
  GRADUS_CHECK(dim() > 0, ShapeError, "a scalar has no dimension to roll along");
  Tensor y = *this;
  for (int i = 0; i < dims.size(); ++i) y = apply<Roll>(op, y, axis_of(*this, dims[i]), shifts[i]);
  return y;
}

Tensor tril(const Tensor& x, int64_t diagonal, Loc where) {
  OpScope op("tril", where);
  return gradus::where(lower_triangle(x, diagonal), x, false);
}
Tensor triu(const Tensor& x, int64_t diagonal, Loc where) {
  OpScope op("triu", where);
  return gradus::where(lower_triangle(x, std::max(diagonal, -INT64_MAX) - 1), false, x);
}

Tensor diag(const Tensor& x, int64_t diagonal, Loc where) {
  OpScope op("diag", where);
  GRADUS_CHECK(x.dim() == 1 || x.dim() == 2, ShapeError, "needs a vector or a matrix, got shape ", x.sizes());
  constexpr int64_t most = int64_t{1} << 31;
  GRADUS_CHECK(-most < diagonal && diagonal < most, ValueError, "there is no diagonal ", diagonal);
  return x.dim() == 1 ? apply<Diag>(op, x, diagonal) : x.diagonal(diagonal, 0, 1).clone();
}

Tensor Tensor::repeat(IntArrayRef repeats, Loc where) const { return gradus::repeat(*this, repeats, where); }
Tensor Tensor::tile(IntArrayRef repeats, Loc where) const { return gradus::tile(*this, repeats, where); }
Tensor Tensor::flip(IntArrayRef dims, Loc where) const { return gradus::flip(*this, dims, where); }
Tensor Tensor::tril(int64_t diagonal, Loc where) const { return gradus::tril(*this, diagonal, where); }
Tensor Tensor::triu(int64_t diagonal, Loc where) const { return gradus::triu(*this, diagonal, where); }
Tensor Tensor::diag(int64_t diagonal, Loc where) const { return gradus::diag(*this, diagonal, where); }

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

// The node of split and unbind, which return several views. Its backward joins the gradients of all views in one
// operation.
struct Parts final : Node {
  int64_t axis = 0;
  bool stacked = false;  // unbind: the parts lack the dimension `axis`
  Grads backward_all(const Grads& dys) override {
    const auto defined = std::find_if(dys.begin(), dys.end(), [](const Tensor& dy) { return dy.defined(); });
    TensorList parts;
    for (size_t i = 0; i < outputs().size(); ++i)
      parts.push_back(dys[i].defined() ? dys[i] : zeros(outputs()[i].shape, defined->options()));
    return {stacked ? stack(parts, axis) : cat(parts, axis)};
  }
};

// Returns the views `parts` of x as tensors.
TensorList finish_parts(const Tensor& x, int axis, bool stacked, std::vector<Array> parts) {
  const Tensor* input = &x;
  Ref<Parts> node;
  if (!parts.empty() && detail::is_recorded({&input, 1})) {
    node = make_ref<Parts>();
    detail::begin_node(*node, {&input, 1}, stacked ? "Unbind" : "Split");
    node->axis = axis, node->stacked = stacked;
  }
  TensorList views;
  for (Array& part : parts) views.push_back(detail::finish_view(node, x, std::move(part)));
  return views;
}

TensorList run_split(const Tensor& x, const std::vector<int64_t>& sizes, int axis) {
  std::vector<Array> parts;
  int64_t start = 0;
  for (size_t i = 0; i < sizes.size(); start += sizes[i++])
    parts.push_back(x.array().slice(axis, start, start + sizes[i]));
  return finish_parts(x, axis, false, std::move(parts));
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
  if (!detail::is_recorded(pointers)) return Tensor(ops::cat(arrays, dim));
  Ref<Cat> node = make_ref<Cat>();
  detail::begin_node(*node, pointers, "Cat");
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
    rows.push_back(tensors[i].unsqueeze(dim));
  }
  return cat(rows, normalize_axis(dim, ndim_of(rows[0])));
}

// Joins the tensors along `dim` after `raise` has given each of them enough dimensions.
static Tensor cat_raised(const char* name, const TensorList& tensors, Tensor (*raise)(const Tensor&, Loc), int64_t dim,
                         Loc where) {
  OpScope op(name, where);
  TensorList raised;
  for (const Tensor& tensor : tensors) raised.push_back(raise(tensor, Loc{}));
  return cat(raised, dim);
}
Tensor hstack(const TensorList& tensors, Loc where) {
  const bool vectors = tensors.empty() || !tensors[0].defined() || tensors[0].dim() <= 1;
  return cat_raised("hstack", tensors, atleast_1d, vectors ? 0 : 1, where);
}
Tensor vstack(const TensorList& tensors, Loc where) { return cat_raised("vstack", tensors, atleast_2d, 0, where); }
Tensor dstack(const TensorList& tensors, Loc where) { return cat_raised("dstack", tensors, atleast_3d, 2, where); }

Tensor atleast_1d(const Tensor& x, Loc where) {
  OpScope op("atleast_1d", where);
  return x.dim() >= 1 ? x : x.reshape({1});
}
Tensor atleast_2d(const Tensor& x, Loc where) {
  OpScope op("atleast_2d", where);
  return x.dim() >= 2 ? x : atleast_1d(x).unsqueeze(0);
}
Tensor atleast_3d(const Tensor& x, Loc where) {
  OpScope op("atleast_3d", where);
  return x.dim() >= 3 ? x : atleast_2d(x).unsqueeze(-1);
}

// ---- Parts ----

TensorList Tensor::split(int64_t split_size, int64_t dim, Loc where) const {
  OpScope op("split", where);
  const int axis = axis_of_array(*this, dim);
  const int64_t size = sizes()[axis];
  GRADUS_CHECK(split_size > 0 || (split_size == 0 && size == 0), ValueError, "split_size must be positive, got ",
               split_size, " for dimension ", dim, " of size ", size);
  std::vector<int64_t> parts;
  for (int64_t start = 0; start < size; start += split_size) parts.push_back(std::min(split_size, size - start));
  if (size == 0) parts.push_back(0);
  return run_split(*this, parts, axis);
}

TensorList Tensor::split(const std::vector<int64_t>& split_sizes, int64_t dim, Loc where) const {
  OpScope op("split", where);
  const int axis = axis_of_array(*this, dim);
  const int64_t size = sizes()[axis];
  int64_t sum = 0;  // cannot overflow, because it stops growing once it exceeds `size`
  for (int64_t part : split_sizes) {
    GRADUS_CHECK(part >= 0, ValueError, "sizes must not be negative, got ", part);
    if (sum <= size) sum += std::min(part, size + 1);
  }
  GRADUS_CHECK(sum == size, ShapeError, "sizes ", to_string(split_sizes), " do not add up to dimension ", dim,
               " of shape ", sizes());
  return run_split(*this, split_sizes, axis);
}
TensorList Tensor::split_with_sizes(const std::vector<int64_t>& split_sizes, int64_t dim, Loc where) const {
  return split(split_sizes, dim, where);
}

TensorList Tensor::chunk(int64_t chunks, int64_t dim, Loc where) const {
  OpScope op("chunk", where);
  GRADUS_CHECK(chunks > 0, ValueError, "the number of chunks must be positive, got ", chunks);
  const int axis = axis_of_array(*this, dim);
  const int64_t size = sizes()[axis];
  if (size == 0) return run_split(*this, std::vector<int64_t>(static_cast<size_t>(chunks), 0), axis);
  return split(size / chunks + (size % chunks != 0), axis);
}

TensorList unbind(const Tensor& x, int64_t dim, Loc where) {
  OpScope op("unbind", where);
  const int axis = axis_of_array(x, dim);
  std::vector<Array> parts;
  for (int64_t i = 0; i < x.sizes()[axis]; ++i) parts.push_back(x.array().select(axis, i));
  return finish_parts(x, axis, true, std::move(parts));
}

TensorList Tensor::unbind(int64_t dim, Loc where) const { return gradus::unbind(*this, dim, where); }

}  // namespace gradus
