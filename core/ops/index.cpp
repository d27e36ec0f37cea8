#include <gradus/core/ops/ops.h>

#include <gradus/core/op_lists.h>

namespace gradus::ops {

using enum BinaryOp;
using enum UnaryOp;
namespace {

Array as_int64(const Array& index) {
  GRADUS_CHECK(index.dtype() == DType::i64 || index.dtype() == DType::i32, DTypeError,
               "indices must be int64 or int32, got ", index.dtype(), "; convert with .to(kLong)");
  return cast(index, DType::i64);
}

// A scalar as a vector of one element.
Array with_axis(const Array& x) { return x.ndim() == 0 ? x.unsqueeze(0) : x; }

// Returns a copy of x if x shares memory with `into`, because a kernel must not write elements that it reads.
Array apart_from(const Array& x, const Array& into) { return x.storage() == into.storage() ? clone(x) : x; }

void check_index_shape(const Array& index, const Array& x, int axis, const char* what) {
  GRADUS_CHECK(index.ndim() == x.ndim(), ShapeError, "index and ", what,
               " must have the same number of dimensions, got shapes ", index.shape(), " and ", x.shape());
  for (int i = 0; i < x.ndim(); ++i)
    GRADUS_CHECK(i == axis || index.shape()[i] <= x.shape()[i], ShapeError, "index of shape ", index.shape(),
                 " is larger than ", what, " of shape ", x.shape(), " in dimension ", i);
}

// The indices, in an array of this shape, of the element that is number `count` in row-major order.
Dims position_of(int64_t count, const Shape& shape) {
  Dims position = shape;
  for (int i = shape.size() - 1; i >= 0; count /= shape[i--]) position[i] = count % shape[i];
  return position;
}

}  // namespace

Array index_select(const Array& x, int axis, const Array& index) {
  check_same_device({&x, &index});
  const Array places = as_int64(index);
  if (places.ndim() == 0) return index_select(x, axis, places.unsqueeze(0)).squeeze(axis);
  // The kernel expects x and index to have the result's rank. x gets the further dimensions of the index with stride 0,
  // and the index gets the other axes of x with stride 0.
  Shape shape = x.shape(), from_shape = x.shape();
  Strides from_strides = x.strides(), index_strides = Dims::filled(x.ndim(), 0);
  shape[axis] = places.shape()[0], index_strides[axis] = places.strides()[0];
  for (int i = 1; i < places.ndim(); ++i) {
    shape.insert(axis + i, places.shape()[i]), index_strides.insert(axis + i, places.strides()[i]);
    from_shape.insert(axis + i, places.shape()[i]), from_strides.insert(axis + i, 0);
  }
  const bool image = shape.size() == 4 && places.ndim() == 1;
  Array y = x.new_empty(shape, image ? output_format(x) : MemoryFormat::contiguous);
  if (y.numel() > 0)
    backend_of(x).gather(Array(x.storage(), x.offset(), from_shape, from_strides, x.dtype()), axis,
                         Array(places.storage(), places.offset(), shape, index_strides, DType::i64), y);
  return y;
}

void index_into(const Array& into, int axis, const Array& index, const Array& source, bool accumulate) {
  check_same_device({&into, &index, &source});
  check_same_dtype(into, "the tensor", source, "the source");
  GRADUS_CHECK(index.ndim() <= 1, ShapeError, "the index must be a vector, got shape ", index.shape());
  const Array places = with_axis(as_int64(index)), from = with_axis(source);
  Shape shape = with_axis(into).shape();
  shape[axis] = places.numel();
  GRADUS_CHECK(from.shape() == shape, ShapeError, "source has shape ", source.shape(), ", but ", places.numel(),
               " indices along dimension ", axis, " of shape ", into.shape(), " need ", shape);
  // The index does not vary along the other axes.
  Strides strides = Dims::filled(shape.size(), 0);
  strides[axis] = places.strides()[0];
  scatter_into(into, axis, Array(places.storage(), places.offset(), shape, strides, DType::i64), from, accumulate);
}

Array gather(const Array& x, int axis, const Array& index) {
  check_same_device({&x, &index});
  const Array places = with_axis(as_int64(index)), from = with_axis(x);
  check_index_shape(places, from, axis, "the tensor");
  Array y = x.new_empty(places.shape());
  if (y.numel() > 0) backend_of(x).gather(from, axis, places, y);
  return index.ndim() == 0 ? y.squeeze(0) : y;
}

void scatter_into(const Array& into, int axis, const Array& index, const Array& source, bool accumulate) {
  check_same_device({&into, &index, &source});
  check_same_dtype(into, "the tensor", source, "the source");
  const Array places = with_axis(as_int64(index)), to = with_axis(into), from = with_axis(source);
  check_index_shape(places, to, axis, "the tensor");
  GRADUS_CHECK(from.shape() == places.shape(), ShapeError, "source has shape ", source.shape(),
               ", but index has shape ", index.shape());
  into.bump_version();
  if (from.numel() > 0)
    backend_of(into).scatter(apart_from(from, into), axis, apart_from(places, into), accumulate, to);
}

Array checked_index(const Array& index, int64_t size, int64_t axis) {
  const Array places = as_int64(index);
  if (places.numel() == 0) return places;
  const auto wrapped = [&] { return where(binary_scalar(lt, places, 0), binary_scalar(add, places, size), places); };
  if (runtime(places.device().type()).capturing()) {
    const Array all = wrapped();
    return where(binary_scalar(lt, all, size), all, full({}, -1, DType::i64, places.device()));
  }
  const Array flat = reshape(places, {-1});
  const auto extreme = [&](ArgReduceOp op) {
    const auto [value, at] = arg_reduce(op, flat, 0, false);
    const int64_t found = item(value).to_int64();
    GRADUS_CHECK(found >= -size && found < size, IndexError, "index ", found, " at position ",
                 position_of(item(at).to_int64(), places.shape()), " is outside dimension ", axis, " of size ", size);
    return found;
  };
  extreme(ArgReduceOp::argmax);
  return extreme(ArgReduceOp::argmin) >= 0 ? places : wrapped();
}

Array nonzero(const Array& x) {
  const Array hit = contiguous(x.dtype() == DType::boolean ? x : binary_scalar(ne, x, 0));
  const int64_t count = item(sum(hit, axis_mask({}, x.ndim()))).to_int64();
  Array positions = x.new_empty({count, x.ndim()}, DType::i64);
  if (positions.numel() > 0) backend_of(x).nonzero(hit, positions);
  return positions;
}

namespace {

// Sampling without replacement: every category draws an exponentially distributed time with its weight as rate; the
// num_samples earliest categories are the samples (Efraimidis and Spirakis 2006).
Array race(const Array& weights, int64_t num_samples, Generator& generator) {
  const Array u = weights.new_empty(weights.shape(), DType::f64);
  uniform(u, 0, 1, generator);
  const Array times = unary(neg, unary(log1p, unary(neg, u)));  // -log(1 - u)
  const Array never = full({}, -1.0, DType::f64, weights.device());
  const Array speeds = where(binary_scalar(gt, weights, 0), binary(div, weights, times), never);
  return contiguous(argsort(speeds, 1, true).slice(1, 0, num_samples));
}

// Sampling with replacement: the category of a random number in [0, total) is the count of running sums that do not
// exceed it. Sorting the numbers together with the running sums gives all these counts at once.
Array wheel(const Array& weights, int64_t num_samples, Generator& generator) {
  const int64_t rows = weights.shape()[0], categories = weights.shape()[1];
  const Array sums = scan(ScanOp::sum, weights, 1, false, DType::f64);
  const Array total = sums.slice(1, categories - 1, categories);
  const Array u = weights.new_empty({rows, num_samples}, DType::f64);
  uniform(u, 0, 1, generator);
  // Rounding must not produce the total itself, which belongs to no category.
  const Array below = binary_scalar(mul, total, 1 - 0x1p-53);
  const Array numbers = binary(minimum, binary(mul, u, total), below);
  const Array order = argsort(cat({sums, numbers}, 1), 1, false);
  const Array passed = scan(ScanOp::sum, binary_scalar(lt, order, categories), 1, false, DType::i64);
  const Array places = weights.new_empty(order.shape(), DType::i64);
  scatter_into(places, 1, order, passed, false);
  return contiguous(places.slice(1, categories, categories + num_samples));
}

void check_weights(const Array& weights, int64_t distinct) {
  const Array fine = binary(bitwise_and, unary(isfinite, weights), binary_scalar(ge, weights, 0));
  GRADUS_CHECK(all_true(fine), ValueError, "probabilities must be finite and not negative");
  const Array possible = sum(binary_scalar(gt, weights, 0), 0b10);
  GRADUS_CHECK(all_true(binary_scalar(ge, possible, distinct)), ValueError, "a row needs at least ", distinct,
               " probabilities above 0");
}

}  // namespace

std::tuple<Array, Array> sort(const Array& x, int axis, bool descending) {
  const Array values = x.new_empty(x.shape());
  const Array indices = x.new_empty(x.shape(), DType::i64);
  if (x.numel() > 0) backend_of(x).sort(x, axis, descending, values, indices);
  return {values, indices};
}

Array argsort(const Array& x, int axis, bool descending) {
  Array indices = x.new_empty(x.shape(), DType::i64);
  if (x.numel() > 0) backend_of(x).sort(x, axis, descending, MutableView(), indices);
  return indices;
}

std::tuple<Array, Array> topk(const Array& x, int64_t k, int axis, bool largest) {
  Shape shape = x.shape();
  if (x.ndim() > 0) shape[axis] = k;
  const Array values = x.new_empty(shape);
  const Array indices = x.new_empty(shape, DType::i64);
  if (values.numel() > 0) backend_of(x).topk(x, axis, largest, values, indices);
  return {values, indices};
}

std::tuple<Array, Array, Array> unique(const Array& x, bool sorted) {
  const Array flat = reshape(x, {-1});
  const int64_t n = flat.numel();
  if (n == 0) return {flat, zeros(x.shape(), DType::i64, x.device()), zeros({0}, DType::i64, x.device())};
  const auto [values, order] = sorted ? sort(flat, 0, false) : std::tuple(flat, Array());
  const Array is_first = full({n}, true, DType::boolean, x.device());
  copy_into(is_first.slice(0, 1, n), binary(ne, values.slice(0, 1, n), values.slice(0, 0, n - 1)));
  const Array starts = reshape(nonzero(is_first), {-1});
  const Array end = full({1}, n, DType::i64, x.device());
  const Array counts = binary(sub, cat({starts.slice(0, 1, starts.numel()), end}, 0), starts);
  Array places = binary_scalar(sub, scan(ScanOp::sum, is_first, 0, false, DType::i64), 1);
  if (sorted) {
    const Array in_order = places;
    places = x.new_empty({n}, DType::i64);
    scatter_into(places, 0, order, in_order, false);
  }
  return {index_select(values, 0, starts), reshape(places, x.shape()), counts};
}

Array multinomial(const Array& x, int64_t num_samples, bool replacement, Generator& generator) {
  check_floating(x, "probabilities");
  GRADUS_CHECK(x.ndim() == 1 || x.ndim() == 2, ShapeError,
               "probabilities must have the shape (categories) or (rows, categories), got ", x.shape());
  const int64_t categories = x.shape()[x.ndim() - 1];
  GRADUS_CHECK(num_samples > 0, ValueError, "number of samples must be positive, got ", num_samples);
  GRADUS_CHECK(replacement || num_samples <= categories, ValueError, num_samples, " samples without replacement from ",
               categories, " categories");
  GRADUS_CHECK(categories > 0, ShapeError, "there are no categories in shape ", x.shape());
  const Array weights = cast(reshape(x, {-1, categories}), DType::f64);
  if (x.device().is_cpu()) check_weights(weights, replacement ? 1 : num_samples);
  const Array samples = replacement ? wheel(weights, num_samples, generator) : race(weights, num_samples, generator);
  return x.ndim() == 1 ? samples.select(0, 0) : samples;
}

}  // namespace gradus::ops
