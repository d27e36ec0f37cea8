#include <gradus/core/ops/sort.h>

#include <gradus/core/binary_ops.h>
#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/index.h>
#include <gradus/core/ops/reduce.h>
#include <gradus/core/ops/scan.h>
#include <gradus/core/ops/shape.h>
#include <gradus/core/unary_ops.h>

namespace gradus::ops {
namespace {

// Sampling without replacement: every category draws an exponentially distributed time with its weight as rate; the
// num_samples earliest categories are the samples (Efraimidis and Spirakis 2006).
Array race(const Array& weights, int64_t num_samples, Generator& generator) {
  const Array u = Array::empty(weights.shape(), DType::f64, weights.device());
  uniform(u, 0, 1, generator);
  const Array times = unary(UnaryOp::neg, unary(UnaryOp::log1p, unary(UnaryOp::neg, u)));  // -log(1 - u)
  const Array never = full({}, -1.0, DType::f64, weights.device());
  const Array speeds = where(binary_scalar(BinaryOp::gt, weights, 0), binary(BinaryOp::div, weights, times), never);
  return contiguous(argsort(speeds, 1, true).slice(1, 0, num_samples));
}

// Sampling with replacement: the category of a random number in [0, total) is the count of running sums that do not
// exceed it. Sorting the numbers together with the running sums gives all these counts at once.
Array wheel(const Array& weights, int64_t num_samples, Generator& generator) {
  const int64_t rows = weights.shape()[0], categories = weights.shape()[1];
  const Array sums = scan(ScanOp::sum, weights, 1, false, DType::f64);
  const Array total = sums.slice(1, categories - 1, categories);
  const Array u = Array::empty({rows, num_samples}, DType::f64, weights.device());
  uniform(u, 0, 1, generator);
  // Rounding must not produce the total itself, which belongs to no category.
  const Array below = binary_scalar(BinaryOp::mul, total, 1 - 0x1p-53);
  const Array numbers = binary(BinaryOp::minimum, binary(BinaryOp::mul, u, total), below);
  const Array order = argsort(cat({sums, numbers}, 1), 1, false);
  const Array passed = scan(ScanOp::sum, binary_scalar(BinaryOp::lt, order, categories), 1, false, DType::i64);
  const Array places = Array::empty(order.shape(), DType::i64, weights.device());
  scatter_into(places, 1, order, passed, false);
  return contiguous(places.slice(1, categories, categories + num_samples));
}

void check_weights(const Array& weights, int64_t distinct) {
  const auto all_of = [](const Array& test) {
    return item(reduce(ReduceOp::all, test, axis_mask({}, test.ndim()), false, DType::boolean)).to_bool();
  };
  const Array fine =
      binary(BinaryOp::bitwise_and, unary(UnaryOp::isfinite, weights), binary_scalar(BinaryOp::ge, weights, 0));
  GRADUS_CHECK(all_of(fine), ValueError, "probabilities must be finite and not negative");
  const Array possible = sum(binary_scalar(BinaryOp::gt, weights, 0), 0b10);
  GRADUS_CHECK(all_of(binary_scalar(BinaryOp::ge, possible, distinct)), ValueError, "a row needs at least ", distinct,
               " probabilities above 0");
}

}  // namespace

std::tuple<Array, Array> sort(const Array& x, int axis, bool descending) {
  const Array values = Array::empty(x.shape(), x.dtype(), x.device());
  const Array indices = Array::empty(x.shape(), DType::i64, x.device());
  if (x.numel() > 0) backend_of(x).sort(x, axis, descending, values, indices);
  return {values, indices};
}

Array argsort(const Array& x, int axis, bool descending) {
  Array indices = Array::empty(x.shape(), DType::i64, x.device());
  if (x.numel() > 0) backend_of(x).sort(x, axis, descending, MutableView(), indices);
  return indices;
}

std::tuple<Array, Array> topk(const Array& x, int64_t k, int axis, bool largest) {
  Shape shape = x.shape();
  if (x.ndim() > 0) shape[axis] = k;
  const Array values = Array::empty(shape, x.dtype(), x.device());
  const Array indices = Array::empty(shape, DType::i64, x.device());
  if (values.numel() > 0) backend_of(x).topk(x, axis, largest, values, indices);
  return {values, indices};
}

std::tuple<Array, Array, Array> unique(const Array& x, bool sorted) {
  const Array flat = reshape(x, {-1});
  const int64_t n = flat.numel();
  if (n == 0) return {flat, zeros(x.shape(), DType::i64, x.device()), zeros({0}, DType::i64, x.device())};
  const auto [values, order] = sorted ? sort(flat, 0, false) : std::tuple(flat, Array());
  const Array is_first = full({n}, true, DType::boolean, x.device());
  copy_into(is_first.slice(0, 1, n), binary(BinaryOp::ne, values.slice(0, 1, n), values.slice(0, 0, n - 1)));
  const Array starts = reshape(nonzero(is_first), {-1});
  const Array end = full({1}, n, DType::i64, x.device());
  const Array counts = binary(BinaryOp::sub, cat({starts.slice(0, 1, starts.numel()), end}, 0), starts);
  Array places = binary_scalar(BinaryOp::sub, scan(ScanOp::sum, is_first, 0, false, DType::i64), 1);
  if (sorted) {
    const Array in_order = places;
    places = Array::empty({n}, DType::i64, x.device());
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
