// Copies, conversions and overwriting: to, clone, contiguous, copy_, fill_, zero_ and the random fills.
#include <limits>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>

namespace gradus {
namespace {

struct To final : Node {  // converts type or device
  DType dtype = DType::f32;
  Device device;
  Array forward(const Array& x, Device target, DType type, bool non_blocking) {
    dtype = x.dtype(), device = x.device();
    // Convert on the side where fewer bytes need to be transferred.
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

struct Fill final : Node {  // self = value: the old history has no effect on the result
  Array forward(const Array& self, const Scalar& value) {
    ops::fill(self, value);
    return self;
  }
  Grads backward(const Tensor&) override { return {Tensor()}; }
};

struct RandomFill final : Node {
  Array forward(const Array& self, void (*fill)(const Array&, double, double), double a, double b) {
    fill(self, a, b);
    return self;
  }
  Grads backward(const Tensor&) override { return {Tensor()}; }
};

}  // namespace

Tensor Tensor::to(Device target, DType type, bool non_blocking, bool copy, Loc where) const {
  OpScope op("to", where);
  target = settled(target);
  if (target == device() && type == dtype()) return copy ? clone(where) : *this;
  return detail::apply_as_is<To>(*this, target, type, non_blocking);
}
Tensor Tensor::to(DType type, bool non_blocking, bool copy, Loc where) const {
  const OpContext context("to", where);
  return to(device(), type, non_blocking, copy, where);
}
Tensor Tensor::to(Device target, bool non_blocking, bool copy, Loc where) const {
  const OpContext context("to", where);
  return to(target, dtype(), non_blocking, copy, where);
}
Tensor Tensor::to(const TensorOptions& options, bool non_blocking, bool copy, Loc where) const {
  const OpContext context("to", where);
  return to(options.device_or(device()), options.dtype_or(dtype()), non_blocking, copy, where);
}

Tensor Tensor::clone(Loc where) const {
  OpScope op("clone", where);
  return apply<Clone>(op, *this);
}

Tensor Tensor::contiguous(MemoryFormat format, Loc where) const {
  OpScope op("contiguous", where);
  return is_contiguous(format) ? *this : apply<Clone>(op, *this, format);
}

Tensor Tensor::to(MemoryFormat format, Loc where) const {
  const bool one_channel = dim() == 4 && size(1) == 1, last = format == MemoryFormat::channels_last;
  if (!one_channel || array().is_channels_last() == last) return contiguous(format, where);
  OpScope op("to", where);
  return apply<Clone>(op, *this, format);
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
  return copy_(value.reshape({}), false, where);
}

const Tensor& Tensor::fill_(const Scalar& value, Loc where) const {
  OpScope op("fill_", where);
  return apply_in_place<Fill>(op, *this, value);
}

const Tensor& Tensor::zero_(Loc where) const {
  OpScope op("zero_", where);
  return apply_in_place<Fill>(op, *this, Scalar(0));
}

const Tensor& Tensor::uniform_(double low, double high, Loc where) const {
  OpScope op("uniform_", where);
  auto fill = +[](const Array& self, double a, double b) { ops::uniform(self, a, b); };
  return apply_in_place<RandomFill>(op, *this, fill, low, high);
}

const Tensor& Tensor::normal_(double mean, double std, Loc where) const {
  OpScope op("normal_", where);
  auto fill = +[](const Array& self, double a, double b) { ops::normal(self, a, b); };
  return apply_in_place<RandomFill>(op, *this, fill, mean, std);
}

const Tensor& Tensor::bernoulli_(double p, Loc where) const {
  OpScope op("bernoulli_", where);
  auto fill = +[](const Array& self, double a, double) { ops::bernoulli(self, a); };
  return apply_in_place<RandomFill>(op, *this, fill, p, 0.0);
}

namespace {
struct RandomIntegers final : Node {
  Array forward(const Array& self, int64_t low, int64_t high) {
    ops::randint(self, low, high);
    return self;
  }
  Grads backward(const Tensor& dy) override { return {zeros_like(dy)}; }
};

// The first integer that the type cannot represent, or the first beyond which it does not represent all integers.
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

const Tensor& Tensor::random_(int64_t low, int64_t high, Loc where) const {
  OpScope op("random_", where);
  return apply_in_place<RandomIntegers>(op, *this, low, high);
}

const Tensor& Tensor::random_(Loc where) const { return random_(0, end_of_integers(dtype()), where); }

}  // namespace gradus
