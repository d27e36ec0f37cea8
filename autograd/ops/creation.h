// Functions that create tensors: constants, ranges, random numbers, and data supplied by the user.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/runtime/random.h>

namespace gradus {

Tensor empty(IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor zeros(IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor ones(IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current());
/// If `options` set no dtype, it follows the value: bool, int64 or float32. A value that the dtype cannot represent
/// (300 in uint8, NaN in int64) is a ValueError. In an unsigned type, a negative integer down to minus the largest
/// number wraps around: -1 becomes the largest number.
Tensor full(IntArrayRef size, const Scalar& value, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor eye(int64_t n, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {}, Loc where = Loc::current());
/// Tensors with x's shape and, unless options say otherwise, its dtype and device.
Tensor empty_like(const Tensor& x, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor zeros_like(const Tensor& x, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor ones_like(const Tensor& x, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor full_like(const Tensor& x, const Scalar& value, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor rand_like(const Tensor& x, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor randn_like(const Tensor& x, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor randint_like(const Tensor& x, int64_t high, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const TensorOptions& options = {},
                    Loc where = Loc::current());

/// start, start + step, … up to but excluding end. Unless options set the type, it is int64 if start, end and step are
/// integers, else the default type.
Tensor arange(const Scalar& end, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options = {},
              Loc where = Loc::current());
/// `steps` values from start to end, both included. With an integer dtype, start and end are truncated first, then the
/// values in between, each computed from the nearer end as on PyTorch's GPUs.
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, const TensorOptions& options = {},
                Loc where = Loc::current());
/// `steps` values from base^start to base^end, both included. With an integer dtype, start and end are truncated first,
/// then the powers; the exponents in between keep their fractions.
Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base = 10,
                const TensorOptions& options = {}, Loc where = Loc::current());
/// int64 (2, count): rows and columns of the elements on and below (tril) or on and above (triu) a diagonal of a row x
/// col matrix.
Tensor tril_indices(int64_t row, int64_t col, int64_t offset = 0, const TensorOptions& options = {},
                    Loc where = Loc::current());
Tensor triu_indices(int64_t row, int64_t col, int64_t offset = 0, const TensorOptions& options = {},
                    Loc where = Loc::current());

/// Random numbers from the default generator (core/runtime/random.h): the same on every backend after the same
/// manual_seed.
Tensor rand(IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current());
Tensor randn(IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current());
/// Random integers in [low, high), of type int64 unless options say otherwise.
Tensor randint(int64_t low, int64_t high, IntArrayRef size, const TensorOptions& options = {},
               Loc where = Loc::current());
inline Tensor randint(int64_t high, IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current()) {
  return randint(0, high, size, options, where);
}
/// A random permutation of 0 … n - 1, int64.
Tensor randperm(int64_t n, const TensorOptions& options = {}, Loc where = Loc::current());
/// Normally distributed numbers with the given mean and standard deviation.
Tensor normal(double mean, double std, IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current());
/// Element i of the result is 1 with probability x[i], else 0, in the type of x. On the CPU a probability that is not
/// in [0, 1] is a ValueError.
Tensor bernoulli(const Tensor& x, Loc where = Loc::current());

/// A tensor over memory that the caller keeps alive, or that `deleter` frees with the last tensor that uses it. The
/// memory is on the CPU unless options name a device.
Tensor from_blob(void* data, IntArrayRef size, std::function<void(void*)> deleter, const TensorOptions& options = {});
inline Tensor from_blob(void* data, IntArrayRef size, const TensorOptions& options = {}) {
  return from_blob(data, size, nullptr, options);
}
/// from_blob with explicit strides in elements. A negative stride is a ValueError.
Tensor from_blob(void* data, IntArrayRef size, IntArrayRef strides, std::function<void(void*)> deleter,
                 const TensorOptions& options = {});
inline Tensor from_blob(void* data, IntArrayRef size, IntArrayRef strides, const TensorOptions& options = {}) {
  return from_blob(data, size, strides, nullptr, options);
}

namespace detail {
/// Numbers in braces, nested to any depth: tensor({{1., 2.}, {3., 4.}}).
struct NestedNumbers {
  template <class T>
  requires std::is_arithmetic_v<T> NestedNumbers(T value)
      : scalar(value), leaf(true) {}  // NOLINT(google-explicit-constructor)
  NestedNumbers(std::initializer_list<NestedNumbers> values) : children(values) {}
  Scalar scalar;
  std::vector<NestedNumbers> children;
  bool leaf = false;
};
Tensor tensor_of(const NestedNumbers& numbers, const TensorOptions& options);
Tensor tensor_of(const void* data, int64_t count, DType dtype, const TensorOptions& options);
}  // namespace detail

/// A tensor of the given numbers. dtype: the default type for float and double, int64 for int and int64_t, else the
/// numbers' own type.
inline Tensor tensor(std::initializer_list<detail::NestedNumbers> numbers, const TensorOptions& options = {}) {
  return detail::tensor_of(detail::NestedNumbers(numbers), options);
}
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(T number, const TensorOptions& options = {}) {
  return detail::tensor_of(detail::NestedNumbers(number), options);
}
template <class T>
Tensor tensor(const std::vector<T>& numbers, const TensorOptions& options = {}) {
  return detail::tensor_of(numbers.data(), static_cast<int64_t>(numbers.size()), dtype_of<T>, options);
}

}  // namespace gradus
