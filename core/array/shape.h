// Sizes and strides: up to eight int64 values stored in place, without allocation.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <gradus/core/array/dtype.h>

namespace gradus {

inline constexpr int kMaxDims = 8;

/// A short list of int64 (sizes, strides, axes). Converts from braces, vectors and single numbers as LibTorch's
/// IntArrayRef does: x.sum(0), x.view(-1), zeros(3).
class Dims {
 public:
  using value_type = int64_t;
  Dims() = default;
  Dims(std::nullopt_t) {}  // NOLINT(google-explicit-constructor): an absent list is empty
  Dims(std::initializer_list<int64_t> values) : Dims(values.begin(), values.size()) {}  // NOLINT
  Dims(const std::vector<int64_t>& values) : Dims(values.data(), values.size()) {}      // NOLINT
  template <std::integral T>
  requires(!std::is_same_v<T, bool>) Dims(T value) : values_{static_cast<int64_t>(value)}, size_(1) {}  // NOLINT
  Dims(const int64_t* values, size_t count) {
    GRADUS_CHECK(count <= kMaxDims, ShapeError, "at most ", kMaxDims, " dimensions are supported, got ", count);
    size_ = static_cast<int>(count);
    for (int i = 0; i < size_; ++i) values_[i] = values[i];
  }
  /// `count` copies of `value`.
  static Dims filled(int count, int64_t value) {
    Dims dims;
    dims.resize(count, value);
    return dims;
  }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](int64_t i) const { return values_[i]; }
  int64_t& operator[](int64_t i) { return values_[i]; }
  int64_t front() const { return values_[0]; }
  int64_t back() const { return values_[size_ - 1]; }
  const int64_t* data() const { return values_; }
  int64_t* data() { return values_; }
  const int64_t* begin() const { return values_; }
  const int64_t* end() const { return values_ + size_; }
  int64_t* begin() { return values_; }
  int64_t* end() { return values_ + size_; }
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  /// Converts to a vector, for functions that accept lists of any length.
  operator std::vector<int64_t>() const { return vec(); }  // NOLINT(google-explicit-constructor)
  /// The list without its first `start` elements.
  Dims slice(size_t start) const {
    GRADUS_CHECK(start <= static_cast<size_t>(size_), IndexError, "slice(", start, ") of a list of ", size_);
    return Dims(values_ + start, static_cast<size_t>(size_) - start);
  }

  void push_back(int64_t value) {
    GRADUS_CHECK(size_ < kMaxDims, ShapeError, "at most ", kMaxDims, " dimensions are supported");
    values_[size_++] = value;
  }
  void insert(int at, int64_t value) {
    push_back(value);
    for (int i = size_ - 1; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = value;
  }
  void erase(int at) {
    for (int i = at; i + 1 < size_; ++i) values_[i] = values_[i + 1];
    --size_;
  }
  void resize(int count, int64_t fill = 0) {
    GRADUS_CHECK(count >= 0 && count <= kMaxDims, ShapeError, "at most ", kMaxDims, " dimensions are supported");
    for (int i = size_; i < count; ++i) values_[i] = fill;
    size_ = count;
  }

  friend bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  int64_t values_[kMaxDims] = {};
  int size_ = 0;
};

using Shape = Dims;
using Strides = Dims;
/// LibTorch's name for a list of sizes passed to a function.
using IntArrayRef = Dims;

/// "(2, 3, 4)"
std::string to_string(const std::vector<int64_t>& sizes);
inline std::string to_string(const Dims& dims) { return to_string(dims.vec()); }
inline detail::Message& operator<<(detail::Message& message, const Dims& dims) { return message << to_string(dims); }

/// Product of the sizes (1 for a scalar). Throws a ShapeError for a negative size or an overflow.
int64_t numel_of(const Shape& shape);
/// The row-major strides of an array of this shape.
Strides contiguous_strides(const Shape& shape);
/// The numbers of the axes in the order of decreasing stride.
Dims axes_by_stride(const Strides& strides);
/// NHWC strides of a four-dimensional NCHW shape.
Strides channels_last_strides(const Shape& shape);
/// NumPy broadcasting; throws a ShapeError that names both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b);
/// Converts a possibly negative `axis` to [0, ndim); scalars accept 0 and -1. Throws an IndexError otherwise.
int normalize_axis(int64_t axis, int ndim);
/// A mask with bit i set for each axis in `axes` (negative allowed, repeats are an error); all bits set if `axes` is
/// empty.
uint32_t axis_mask(const Dims& axes, int ndim);
/// `shape` with the axes in `mask` set to 1 (keepdim) or removed.
Shape reduced_shape(const Shape& shape, uint32_t mask, bool keepdim);
/// Returns `wanted`, in which one size may be -1, with that size replaced so that the product of all sizes is `numel`
/// (for view and reshape). Throws a ShapeError that names `from` and `wanted` if that is impossible.
Shape infer_shape(const Shape& wanted, int64_t numel, const Shape& from);

// ---- Arithmetic on sizes from users. Throws a ShapeError if a result does not fit in 64 bits. ----

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
