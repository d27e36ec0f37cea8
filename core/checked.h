// Arithmetic on sizes from users. Throws a ShapeError if a result does not fit in 64 bits.
#pragma once

#include <gradus/core/array/dtype.h>
#include <gradus/core/array/shape.h>

namespace gradus {

/// a + b
inline int64_t checked_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  GRADUS_CHECK(!__builtin_add_overflow(a, b, &sum), ShapeError, "the size ", a, " + ", b, " does not fit in 64 bits");
  return sum;
}

/// a * b
inline int64_t checked_product(int64_t a, int64_t b) {
  int64_t product = 0;
  GRADUS_CHECK(!__builtin_mul_overflow(a, b, &product), ShapeError, "the size ", a, " * ", b,
               " does not fit in 64 bits");
  return product;
}

/// Number of bytes of a dense array. Throws a ShapeError for a negative size or an overflow.
inline size_t checked_bytes(const Shape& shape, DType dtype) {
  int64_t bytes = 0;
  GRADUS_CHECK(!__builtin_mul_overflow(numel_of(shape), static_cast<int64_t>(size_of(dtype)), &bytes), ShapeError,
               "shape ", shape, " of ", dtype, " has more bytes than fit in 64 bits");
  return static_cast<size_t>(bytes);
}

}  // namespace gradus
