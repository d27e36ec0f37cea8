#include <gradus/autograd/ops/creation.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

Tensor finished(Array array, const TensorOptions& options) { return Tensor(std::move(array), options.requires_grad()); }

Array uninitialised(const Shape& size, const TensorOptions& options) {
  return Array::empty(size, options.dtype(), options.device(), options.memory_format());
}

Tensor filled(const char* name, const Shape& size, const Scalar& value, const TensorOptions& options, Loc where) {
  OpScope op(name, where);
  return finished(ops::full(size, value, options.dtype(), options.device(), options.memory_format()), options);
}

// Options with x's dtype and device unless `options` set them.
TensorOptions options_like(const Tensor& x, const TensorOptions& options) {
  return options.dtype(options.dtype_or(x.dtype())).device(options.device_or(x.device()));
}

Array uninitialised(const Tensor& x, const TensorOptions& options) {
  return Array::empty_like(x.array(), options.dtype_or(x.dtype()), options.device_or(x.device()));
}

// Returns a tensor of size `like`, or like the tensor `like`, after `write` has written its elements.
template <class Like, class Write>
Tensor written(const char* name, const Like& like, const TensorOptions& options, Loc where, const Write& write) {
  OpScope op(name, where);
  Array y = uninitialised(like, options);
  write(y);
  return finished(std::move(y), options);
}

Tensor filled_like(const char* name, const Tensor& x, const Scalar& value, const TensorOptions& options, Loc where) {
  return written(name, x, options, where, [&](const Array& y) { ops::fill(y, value); });
}

// Determines the shape of nested braces, checks that all rows have equal length, and collects the numbers in order.
void flatten(const detail::NestedNumbers& numbers, int depth, Shape* shape, std::vector<Scalar>* values) {
  if (numbers.leaf) {
    GRADUS_CHECK(depth == shape->size(), ShapeError, "found a number instead of a row of ",
                 (*shape)[shape->size() - 1]);
    values->push_back(numbers.scalar);
    return;
  }
  const int64_t count = std::ssize(numbers.children);
  if (depth == shape->size()) {
    GRADUS_CHECK(values->empty(), ShapeError, "found a row instead of a number");
    shape->push_back(count);
  }
  GRADUS_CHECK((*shape)[depth] == count, ShapeError, "rows of different lengths: ", (*shape)[depth], " and ", count);
  for (const detail::NestedNumbers& child : numbers.children) flatten(child, depth + 1, shape, values);
}

}  // namespace

Tensor empty(IntArrayRef size, const TensorOptions& options, Loc where) {
  OpScope op("empty", where);
  return finished(uninitialised(size, options), options);
}
Tensor zeros(IntArrayRef size, const TensorOptions& options, Loc where) {
  return filled("zeros", size, 0, options, where);
}
Tensor ones(IntArrayRef size, const TensorOptions& options, Loc where) {
  return filled("ones", size, 1, options, where);
}
Tensor full(IntArrayRef size, const Scalar& value, const TensorOptions& options, Loc where) {
  return filled("full", size, value, options.dtype(options.dtype_or(value.dtype())), where);
}
Tensor eye(int64_t n, const TensorOptions& options, Loc where) { return eye(n, n, options, where); }
Tensor eye(int64_t n, int64_t m, const TensorOptions& options, Loc where) {
  OpScope op("eye", where);
  GRADUS_CHECK(n >= 0 && m >= 0, ValueError, "sizes must not be negative, got ", n, " and ", m);
  Array y = Array::empty({n, m}, options.dtype(), options.device());
  ops::fill(y, 0);
  if (y.numel() > 0) ops::fill(y.as_strided({std::min(n, m)}, {m + 1}, 0), 1);
  return finished(std::move(y), options);
}
Tensor empty_like(const Tensor& x, const TensorOptions& options, Loc where) {
  OpScope op("empty_like", where);
  return finished(uninitialised(x, options), options);
}
Tensor zeros_like(const Tensor& x, const TensorOptions& options, Loc where) {
  return filled_like("zeros_like", x, 0, options, where);
}
Tensor ones_like(const Tensor& x, const TensorOptions& options, Loc where) {
  return filled_like("ones_like", x, 1, options, where);
}
Tensor full_like(const Tensor& x, const Scalar& value, const TensorOptions& options, Loc where) {
  return filled_like("full_like", x, value, options, where);
}
Tensor rand_like(const Tensor& x, const TensorOptions& options, Loc where) {
  return written("rand_like", x, options, where, [](const Array& y) { ops::uniform(y, 0, 1); });
}
Tensor randn_like(const Tensor& x, const TensorOptions& options, Loc where) {
  return written("randn_like", x, options, where, [](const Array& y) { ops::normal(y, 0, 1); });
}
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const TensorOptions& options, Loc where) {
  return written("randint_like", x, options, where, [&](const Array& y) { ops::randint(y, low, high); });
}
Tensor randint_like(const Tensor& x, int64_t high, const TensorOptions& options, Loc where) {
  return randint_like(x, 0, high, options, where);
}

Tensor Tensor::new_empty(IntArrayRef size, const TensorOptions& wanted, Loc where) const {
  OpScope op("new_empty", where);
  return gradus::empty(size, options_like(*this, wanted));
}
Tensor Tensor::new_zeros(IntArrayRef size, const TensorOptions& wanted, Loc where) const {
  OpScope op("new_zeros", where);
  return zeros(size, options_like(*this, wanted));
}
Tensor Tensor::new_ones(IntArrayRef size, const TensorOptions& wanted, Loc where) const {
  OpScope op("new_ones", where);
  return ones(size, options_like(*this, wanted));
}
Tensor Tensor::new_full(IntArrayRef size, const Scalar& value, const TensorOptions& wanted, Loc where) const {
  OpScope op("new_full", where);
  return full(size, value, options_like(*this, wanted));
}

Tensor arange(const Scalar& end, const TensorOptions& options, Loc where) { return arange(0, end, 1, options, where); }
Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options, Loc where) {
  return arange(start, end, 1, options, where);
}
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options, Loc where) {
  OpScope op("arange", where);
  const bool fraction = start.is_floating() || end.is_floating() || step.is_floating();
  const DType dtype = options.dtype_or(fraction ? get_default_dtype() : DType::i64);
  return finished(ops::arange(start, end, step, dtype, options.device()), options);
}
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, const TensorOptions& options, Loc where) {
  OpScope op("linspace", where);
  return finished(ops::linspace(start.to_double(), end.to_double(), steps, options.dtype(), options.device()), options);
}
Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base, const TensorOptions& options,
                Loc where) {
  OpScope op("logspace", where);
  GRADUS_CHECK(options.dtype() != kBool, DTypeError, "needs a numeric type, got ", options.dtype());
  const bool whole = !is_floating(options.dtype());
  const auto bound = [&](const Scalar& x) { return whole ? std::trunc(x.to_double()) : x.to_double(); };
  const Array exponents = ops::linspace(bound(start), bound(end), steps, DType::f64, options.device());
  Array powers = ops::binary_scalar(BinaryOp::pow, exponents, base, true);
  if (whole) {  // rounds near-integers, because pow may return 999.9999999999999 for 10^3
    const Array nearest = ops::unary(UnaryOp::round, powers);
    const Array error = ops::unary(UnaryOp::abs, ops::binary(BinaryOp::sub, powers, nearest));
    const Array allowed = ops::binary_scalar(BinaryOp::mul, ops::unary(UnaryOp::abs, nearest), 0x1p-50);
    powers = ops::where(ops::binary(BinaryOp::le, error, allowed), nearest, powers);
  }
  return finished(ops::cast(powers, options.dtype()), options);
}

// Indices of the elements of a triangle: those for which `compare` holds between column - row and offset.
static Tensor triangle(const char* name, BinaryOp compare, int64_t row, int64_t col, int64_t offset,
                       const TensorOptions& options, Loc where) {
  OpScope op(name, where);
  GRADUS_CHECK(row >= 0 && col >= 0, ValueError, "sizes must not be negative, got ", row, " and ", col);
  offset = std::clamp(offset, -row, col);
  const Array rows = ops::arange(offset, checked_sum(row, offset), 1, DType::i64, options.device());
  const Array columns = ops::arange(0, col, 1, DType::i64, options.device());
  const Array places = ops::nonzero(ops::binary(compare, columns, rows.unsqueeze(1)));
  return finished(ops::cast(ops::contiguous(places.transpose(0, 1)), options.dtype_or(DType::i64)), options);
}
Tensor tril_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& options, Loc where) {
  return triangle("tril_indices", BinaryOp::le, row, col, offset, options, where);
}
Tensor triu_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& options, Loc where) {
  return triangle("triu_indices", BinaryOp::ge, row, col, offset, options, where);
}

Tensor rand(IntArrayRef size, const TensorOptions& options, Loc where) {
  return written("rand", size, options, where, [](const Array& y) { ops::uniform(y, 0, 1); });
}
Tensor randn(IntArrayRef size, const TensorOptions& options, Loc where) {
  return written("randn", size, options, where, [](const Array& y) { ops::normal(y, 0, 1); });
}
Tensor randint(int64_t low, int64_t high, IntArrayRef size, const TensorOptions& options, Loc where) {
  OpScope op("randint", where);
  Array y = Array::empty(size, options.dtype_or(DType::i64), options.device());
  ops::randint(y, low, high);
  return finished(std::move(y), options);
}
Tensor randperm(int64_t n, const TensorOptions& options, Loc where) {
  OpScope op("randperm", where);
  return finished(ops::cast(ops::randperm(n, options.device()), options.dtype_or(DType::i64)), options);
}
Tensor normal(double mean, double std, IntArrayRef size, const TensorOptions& options, Loc where) {
  return written("normal", size, options, where, [&](const Array& y) { ops::normal(y, mean, std); });
}
Tensor bernoulli(const Tensor& x, Loc where) {
  OpScope op("bernoulli", where);
  NoGradGuard no_grad;
  // Not checked on a GPU, as in PyTorch: the host would have to wait for the result.
  GRADUS_CHECK(!x.device().is_cpu() || logical_and(x >= 0, x <= 1).all().item<bool>(), ValueError,
               "probabilities must be in [0, 1]");
  return (rand_like(x) < x).to(x.dtype());
}

Tensor from_blob(void* data, IntArrayRef size, std::function<void(void*)> deleter, const TensorOptions& options) {
  return from_blob(data, size, contiguous_strides(size), std::move(deleter), options);
}
Tensor from_blob(void* data, IntArrayRef size, IntArrayRef strides, std::function<void(void*)> deleter,
                 const TensorOptions& options) {
  OpContext context("from_blob");
  GRADUS_CHECK(strides.size() == size.size(), ShapeError, "strides ", strides, " for a shape ", size);
  int64_t elements = numel_of(size) > 0;
  for (int i = 0; elements > 0 && i < size.size(); ++i) {
    GRADUS_CHECK(strides[i] >= 0, ValueError, "strides must not be negative, got ", strides);
    elements = checked_sum(elements, checked_product(size[i] - 1, strides[i]));
  }
  const size_t bytes = checked_bytes({elements}, options.dtype());
  GRADUS_CHECK(data || bytes == 0, ValueError, "the address is null but the shape ", size, " has elements");
  Storage storage = Storage::adopt(data, bytes, options.device(), std::move(deleter));
  return finished(Array(std::move(storage), 0, size, strides, options.dtype()), options);
}

Tensor detail::tensor_of(const NestedNumbers& numbers, const TensorOptions& options) {
  OpContext context("tensor");
  Shape shape;
  std::vector<Scalar> values;
  flatten(numbers, 0, &shape, &values);
  DType dtype = values.empty() ? get_default_dtype() : DType::boolean;
  for (const Scalar& value : values) dtype = promote_types(dtype, value.dtype());
  dtype = options.dtype_or(dtype);
  Array host = Array::empty(shape, dtype);
  visit(dtype, [&]<class T>() {
    T* to = static_cast<T*>(host.data());
    for (const Scalar& value : values) ops::check_fits(value, dtype), *to++ = value.cast<T>();
  });
  return finished(ops::to_device(host, options.device()), options);
}

Tensor detail::tensor_of(const void* data, int64_t count, DType dtype, const TensorOptions& options) {
  OpContext context("tensor");
  Array host = Array::empty({count}, dtype);
  if (count > 0) std::memcpy(host.data(), data, host.nbytes());
  // Types are chosen as for literals: int becomes int64, and float and double become the default type.
  const DType wanted = dtype == DType::i32                          ? DType::i64
                       : dtype == DType::f32 || dtype == DType::f64 ? get_default_dtype()
                                                                    : dtype;
  return finished(ops::to_device(ops::cast(host, options.dtype_or(wanted)), options.device()), options);
}

// ---- Copies, conversions and overwriting ----

namespace {

struct To final : Node {  // converts type or device
  DType dtype = DType::f32;
  Device device;
  Array forward(const Array& x, Device target, DType type, bool non_blocking) {
    dtype = x.dtype(), device = x.device();
    // Converts before the transfer if the new type is smaller, so that fewer bytes are transferred.
    if (size_of(type) < size_of(dtype)) return ops::to_device(ops::cast(x, type), target, non_blocking);
    return ops::cast(ops::to_device(x, target, non_blocking), type);
  }
  Grads backward(const Tensor& dy) override { return {dy.to(device, dtype)}; }
};

struct Clone final : Node {
  Array forward(const Array& x) { return ops::clone(x); }
  Array forward(const Array& x, MemoryFormat format) { return ops::clone(x, format); }
  Grads backward(const Tensor& dy) override { return {dy}; }
};

struct Copy final : Node {  // self = source
  DType dtype = DType::f32;
  Device device;
  Array forward(const Array& self, const Array& source, bool non_blocking) {
    dtype = source.dtype(), device = source.device();
    ops::copy_into(self, source, non_blocking);
    return self;
  }
  Grads backward(const Tensor& dy) override { return {Tensor(), needs_grad(1) ? dy.to(device, dtype) : Tensor()}; }
};

struct Overwrite : Node {  // no gradient flows to the old data
  const char* name() const override { return "Fill"; }
  template <class Write>
  Array forward(const Array& self, const Write& write) {
    write(self);
    return self;
  }
  Grads backward(const Tensor&) override { return {Tensor()}; }
};

struct OverwriteWithIntegers final : Overwrite {
  Grads backward(const Tensor& dy) override { return {zeros_like(dy)}; }
};

// The exclusive upper bound of random_() without bounds: the type represents all smaller integers.
int64_t end_of_integers(DType dtype) {
  return visit(dtype, [&]<class T>() -> int64_t {
    if constexpr (std::is_same_v<T, Half>) return (1 << 11) + 1;
    else if constexpr (std::is_same_v<T, BFloat16>) return (1 << 8) + 1;
    else if constexpr (std::is_floating_point_v<T>) return (int64_t{1} << std::numeric_limits<T>::digits) + 1;
    else if constexpr (std::is_same_v<T, int64_t>) return INT64_MAX;
    else return int64_t{std::numeric_limits<T>::max()} + 1;
  });
}

}  // namespace

Tensor Tensor::to(Device target, DType type, bool non_blocking, bool copy, Loc where) const {
  OpScope op("to", where);
  target = settled(target);
  if (target == device() && type == dtype()) return copy ? clone() : *this;
  return detail::apply_as_is<To>(*this, target, type, non_blocking);
}
Tensor Tensor::to(DType type, bool non_blocking, bool copy, Loc where) const {
  const OpContext context("to", where);
  return to(device(), type, non_blocking, copy);
}
Tensor Tensor::to(Device target, bool non_blocking, bool copy, Loc where) const {
  const OpContext context("to", where);
  return to(target, dtype(), non_blocking, copy);
}
Tensor Tensor::to(const TensorOptions& options, bool non_blocking, bool copy, Loc where) const {
  const OpContext context("to", where);
  return to(options.device_or(device()), options.dtype_or(dtype()), non_blocking, copy);
}

Tensor Tensor::clone(Loc where) const { return apply<Clone>({"clone", where}, *this); }

Tensor Tensor::contiguous(MemoryFormat format, Loc where) const {
  OpScope op("contiguous", where);
  return is_contiguous(format) ? *this : apply<Clone>(op, *this, format);
}

Tensor Tensor::to(MemoryFormat format, Loc where) const {
  const bool one_channel = dim() == 4 && size(1) == 1, last = format == MemoryFormat::channels_last;
  if (!one_channel || array().is_channels_last() == last) return contiguous(format, where);
  return apply<Clone>({"to", where}, *this, format);
}

Tensor Tensor::to(Device target, DType type, bool non_blocking, bool copy, std::optional<MemoryFormat> format,
                  Loc where) const {
  const Tensor converted = to(target, type, non_blocking, copy, where);
  return format ? converted.to(*format, where) : converted;
}

const Tensor& Tensor::copy_(const Tensor& source, bool non_blocking, Loc where) const {
  OpScope op("copy_", where);
  GRADUS_CHECK(source.defined(), ValueError, "the source is undefined");
  return apply_in_place<Copy>(op, *this, source, non_blocking);
}

const Tensor& Tensor::fill_(const Tensor& value, Loc where) const {
  const OpContext context("fill_", where);
  GRADUS_CHECK(value.numel() == 1, ShapeError, "the value must have one element, got shape ", value.sizes());
  return copy_(value.reshape({}));
}

const Tensor& Tensor::fill_(const Scalar& value, Loc where) const {
  return apply_in_place<Overwrite>({"fill_", where}, *this, [&](const Array& self) { ops::fill(self, value); });
}

const Tensor& Tensor::zero_(Loc where) const {
  return apply_in_place<Overwrite>({"zero_", where}, *this, [](const Array& self) { ops::fill(self, 0); });
}

const Tensor& Tensor::uniform_(double low, double high, Loc where) const {
  return apply_in_place<Overwrite>({"uniform_", where}, *this,
                                   [&](const Array& self) { ops::uniform(self, low, high); });
}

const Tensor& Tensor::normal_(double mean, double std, Loc where) const {
  return apply_in_place<Overwrite>({"normal_", where}, *this, [&](const Array& self) { ops::normal(self, mean, std); });
}

const Tensor& Tensor::bernoulli_(double p, Loc where) const {
  return apply_in_place<Overwrite>({"bernoulli_", where}, *this, [&](const Array& self) { ops::bernoulli(self, p); });
}

const Tensor& Tensor::random_(int64_t low, int64_t high, Loc where) const {
  return apply_in_place<OverwriteWithIntegers>({"random_", where}, *this,
                                               [&](const Array& self) { ops::randint(self, low, high); });
}

const Tensor& Tensor::random_(Loc where) const { return random_(0, end_of_integers(dtype()), where); }

}  // namespace gradus
