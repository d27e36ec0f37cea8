// Operators on arrays, without gradients. Each operator checks its arguments, allocates the result and calls the
// backend once. Each family of operators has a source file of its name: elementwise.cpp, reduce.cpp, and so on.
#pragma once

#include <initializer_list>
#include <tuple>
#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/random.h>

namespace gradus::ops {

// ---- Operands and results (operands.cpp) ----
/// The backend that runs operators on x in this thread.
inline Backend& backend_of(const Array& x) { return current_backend(x.device().type()); }

/// Throws a DeviceError that names two arrays on different devices, if there are any. Undefined arrays are skipped.
void check_same_device(std::initializer_list<const Array*> arrays);
/// Throws unless `x` has `ndim` dimensions. `layout` describes the expected shape in the message: "(N, C, H, W)".
void check_ndim(const Array& x, int ndim, const char* what, const char* layout);
/// Throws a DTypeError unless `x` has a floating type.
void check_floating(const Array& x, const char* what);
/// Throws a DTypeError that names both dtypes unless they are equal.
void check_same_dtype(const Array& a, const char* name_a, const Array& b, const char* name_b);
/// Throws unless `into` has this shape and its dtype can hold results of type `dtype`: an integer type cannot hold
/// floating-point numbers, and boolean holds only booleans.
void check_into(const Array& into, const Shape& shape, DType dtype);

/// Memory layout of the result of a convolution or pooling: channels-last if x or `weight` (may be undefined) is.
MemoryFormat output_format(const Array& x, const Array& weight = {});
/// Allocates the result of an element-wise operator. It takes the strides of the first operand that has this shape and
/// is dense. Operands that are both row-major and channels-last, such as images of one channel, do not count. If no
/// operand is left, the result is row-major.
Array output_like(const Shape& shape, DType dtype, Device device, std::initializer_list<const Array*> operands);

// ---- Creation ----
/// Throws a ValueError unless `value` is in the range of `dtype`; rounding and a dropped fraction are allowed. As in
/// PyTorch, NaN and infinities fit floating types only, and u8 accepts -1 as 255.
void check_fits(const Scalar& value, DType dtype);
/// Writes `value`, which must fit, into every element of `into`.
void fill(const Array& into, const Scalar& value);
Array full(const Shape& shape, const Scalar& value, DType dtype, Device device = {},
           MemoryFormat format = MemoryFormat::contiguous);
inline Array zeros(const Shape& shape, DType dtype, Device device = {}) { return full(shape, 0, dtype, device); }
/// start, start + step, … up to but excluding end. If the numbers and dtype are integers, the length is exact even
/// where a double would round. If dtype is int64, the three numbers are truncated to integers first.
Array arange(const Scalar& start, const Scalar& end, const Scalar& step, DType dtype, Device device = {});
/// `steps` evenly spaced numbers from start to end, both included. For integer types, start, end and the numbers
/// between are truncated, and each number is computed from the nearer end.
Array linspace(double start, double end, int64_t steps, DType dtype, Device device = {});

/// Random numbers. Each call is one draw of `generator` (core/runtime/random.h).
void uniform(const Array& into, double low, double high, Generator& generator = default_generator());
void normal(const Array& into, double mean, double deviation, Generator& generator = default_generator());
void bernoulli(const Array& into, double p, Generator& generator = default_generator());
void randint(const Array& into, int64_t low, int64_t high, Generator& generator = default_generator());
Array randperm(int64_t n, Device device = {}, Generator& generator = default_generator());

// ---- Element-wise, with broadcasting and type promotion; copies ----
/// torch.result_type of two arrays. A 0-d array takes part only if its kind (bool, integer, floating) is higher than
/// the kind of the other array.
DType result_type(const Array& a, const Array& b);

/// op(x). Operations with fractional results (exp, sqrt, …) convert integers to the default dtype. If `into` is given,
/// the result is written there, and `into` is returned.
Array unary(UnaryOp op, const Array& x, const UnaryArgs& args = {}, const Array* into = nullptr);
/// dy * op'(saved); see Backend::unary_backward.
Array unary_backward(UnaryOp op, const Array& dy, const Array& saved, const UnaryArgs& args = {});
/// op(a, b). div and atan2 convert integers to the default dtype; comparisons give booleans.
Array binary(BinaryOp op, const Array& a, const Array& b, const Array* into = nullptr);
/// Integer division a / b, rounded towards 0.
Array divide_integers(const Array& a, const Array& b);
/// op(a, scalar), or op(scalar, a) if `scalar_first`.
Array binary_scalar(BinaryOp op, const Array& a, const Scalar& scalar, bool scalar_first = false,
                    const Array* into = nullptr);
/// condition ? a : b. condition is boolean or uint8.
Array where(const Array& condition, const Array& a, const Array& b);

/// x converted to `dtype`; x itself if it already has that type.
Array cast(const Array& x, DType dtype);
/// Writes x, broadcast and converted, into `into`. The two may be on different devices.
void copy_into(const Array& into, const Array& x, bool non_blocking = false);
/// A copy with x's strides if x is dense, else a row-major copy.
Array clone(const Array& x);
/// A copy that is contiguous in `format`.
Array clone(const Array& x, MemoryFormat format);
/// x itself if it is contiguous in `format`, else a contiguous copy.
Array contiguous(const Array& x, MemoryFormat format = MemoryFormat::contiguous);
/// A copy of x on `device`; x itself if it is already there.
Array to_device(const Array& x, Device device, bool non_blocking = false);
/// The single element of x, copied to the host.
Scalar item(const Array& x);

// ---- Shapes (shape.cpp). Views that never copy are methods of Array. ----
/// A view of x if its strides allow one, else a row-major copy.
Array reshape(const Array& x, const Shape& shape);
/// Concatenates arrays along an existing axis. The result has the promoted dtype.
Array cat(const std::vector<Array>& arrays, int64_t axis);

// ---- Reductions and scans (reduce.cpp) ----
/// Reduces over the axes in `mask` (see axis_mask) to a result of type `dtype`. mean needs a floating type. max and min
/// of no elements throw a ShapeError.
Array reduce(ReduceOp op, const Array& x, uint32_t mask, bool keepdim, DType dtype);
/// True if all elements of x are true (not 0). The host waits for the device.
bool all_true(const Array& x);
/// The default result type of sum and prod: int64 for integers and booleans.
inline DType sum_type(DType dtype) { return is_floating(dtype) ? dtype : DType::i64; }
/// Sum over the axes in `mask`, of type sum_type(x.dtype()).
inline Array sum(const Array& x, uint32_t mask, bool keepdim = false) {
  return reduce(ReduceOp::sum, x, mask, keepdim, sum_type(x.dtype()));
}
/// (values, int64 indices) of the largest or smallest elements along `axis`.
std::tuple<Array, Array> arg_reduce(ArgReduceOp op, const Array& x, int axis, bool keepdim);
/// Variance over the axes in `mask` of a floating type, computed in two passes: the mean first, then the sum of squared
/// deviations from it, divided by max(0, count - correction).
Array variance(const Array& x, uint32_t mask, bool keepdim, double correction);
/// Square root of the variance. On the CPU it is also correct where squares overflow or underflow, for example for
/// float32 beyond 1e19. The norm of order 2 has the same property.
Array deviation(const Array& x, uint32_t mask, bool keepdim, double correction);
/// (sum |x|^p)^(1/p) for finite p; for p = 0 the number of nonzero elements. For floating types.
Array norm(const Array& x, double p, uint32_t mask, bool keepdim);
/// log(sum(exp(x))). Integers are converted to the default dtype.
Array logsumexp(const Array& x, uint32_t mask, bool keepdim);

/// Running sums or products of x along `axis`, as an array of type `dtype`. With `reverse` they start at the end.
Array scan(ScanOp op, const Array& x, int axis, bool reverse, DType dtype);
/// y[k] = b[k] + a[k] y[k - 1]; see Backend::linear_recurrence. a and b have the same shape and dtype.
Array linear_recurrence(const Array& a, const Array& b, int axis, bool reverse);

// ---- Matrix products (matmul.cpp) ----
/// torch.matmul of floating or integer arrays of one dtype. If a is a vector, it is treated as a matrix of one row, and
/// if b is one, as a matrix of one column; the added dimension is removed from the result. Leading dimensions
/// broadcast.
Array matmul(const Array& a, const Array& b);
/// x wᵀ + bias: x (…, in), w (out, in), bias (out) or undefined; result (…, out).
Array linear(const Array& x, const Array& w, const Array& bias);
/// x + a b: a (M, K) and b (K, N) are matrices, or batches of matrices with equal leading sizes. x has the same dtype
/// and broadcasts to the shape of the product.
Array addmm(const Array& x, const Array& a, const Array& b);

// ---- Indexing with arrays of int64 or int32, sorting, sampling (index.cpp) ----
/// y[…, i, …] = x[…, index[i], …]. In y, the dimensions of `index` replace the dimension `axis`.
Array index_select(const Array& x, int axis, const Array& index);
/// into[…, index[i], …] = source[…, i, …], or += if `accumulate`, for a vector `index`. If an index repeats, its
/// elements are written in the order of i. `source` has the shape of `into` except along `axis`.
void index_into(const Array& into, int axis, const Array& index, const Array& source, bool accumulate);
/// torch.gather. For example, y[i, j] = x[index[i, j], j] along axis 0 of a matrix. y has the shape of `index`.
Array gather(const Array& x, int axis, const Array& index);
/// torch.scatter_. For example, into[index[i, j], j] = source[i, j] along axis 0 of a matrix, or += if `accumulate`.
/// Elements are written in row-major order. `source` has the shape of `index`.
void scatter_into(const Array& into, int axis, const Array& index, const Array& source, bool accumulate);

/// Returns `index` as int64 with each negative index i replaced by i + size. An index outside [-size, size) is an
/// IndexError, for which the host waits for the device. In a captured or recorded step it becomes negative, so that the
/// kernel that uses it finds it. `axis` is the number of the dimension, for the message.
Array checked_index(const Array& index, int64_t size, int64_t axis);
/// The indices of the nonzero elements in row-major order, (count, x.ndim()). The host waits for the count.
Array nonzero(const Array& x);

/// (values, int64 indices) of a stable sort; see Backend::sort.
std::tuple<Array, Array> sort(const Array& x, int axis, bool descending);
Array argsort(const Array& x, int axis, bool descending);
/// The first k values and indices of sort(x, axis, largest). k is at most the size of the axis (1 for a scalar).
std::tuple<Array, Array> topk(const Array& x, int64_t k, int axis, bool largest);
/// Returns three arrays: the distinct elements of x; for each element of x, the index of its value among them; and the
/// number of occurrences of each value. If `sorted`, all elements of x are sorted first (torch.unique); otherwise only
/// equal neighbours are merged (torch.unique_consecutive). The host waits for the number of distinct elements.
std::tuple<Array, Array, Array> unique(const Array& x, bool sorted);
/// num_samples int64 indices of the categories in x (C) or (N, C), drawn with probabilities proportional to x. On the
/// CPU, negative, infinite or too few positive probabilities throw a ValueError; on other devices they are not checked,
/// because the host would have to wait.
Array multinomial(const Array& x, int64_t num_samples, bool replacement, Generator& generator = default_generator());

}  // namespace gradus::ops
