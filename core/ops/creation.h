// Operators that create arrays.
#pragma once

#include <gradus/core/ops/operands.h>
#include <gradus/core/runtime/random.h>

namespace gradus::ops {

/// Throws a ValueError unless `value` is in the range of this type; rounding and a dropped fraction are allowed. As in
/// PyTorch, NaN and infinities fit floating types only, and u8 accepts -1 as 255.
void check_fits(const Scalar& value, DType dtype);
/// Writes `value`, which must fit, into every element of `into`.
void fill(const Array& into, const Scalar& value);
Array full(const Shape& shape, const Scalar& value, DType dtype, Device device = {},
           MemoryFormat format = MemoryFormat::contiguous);
inline Array zeros(const Shape& shape, DType dtype, Device device = {}) { return full(shape, 0, dtype, device); }
/// start, start + step, … up to but excluding end. Integers are counted exactly; for int64 fractions are truncated
/// first.
Array arange(const Scalar& start, const Scalar& end, const Scalar& step, DType dtype, Device device = {});
/// `steps` evenly spaced numbers from start to end, both included. For integer types, start, end and the numbers
/// between are truncated; each number is computed from the nearer end.
Array linspace(double start, double end, int64_t steps, DType dtype, Device device = {});

// Random numbers: each call is one draw of `generator` (core/runtime/random.h).
void uniform(const Array& into, double low, double high, Generator& generator = default_generator());
void normal(const Array& into, double mean, double deviation, Generator& generator = default_generator());
void bernoulli(const Array& into, double p, Generator& generator = default_generator());
void randint(const Array& into, int64_t low, int64_t high, Generator& generator = default_generator());
Array randperm(int64_t n, Device device = {}, Generator& generator = default_generator());

}  // namespace gradus::ops
