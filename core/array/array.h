// Array: {storage, offset, shape, strides, dtype}. A cheap handle; views share storage. It knows nothing of gradients.
#pragma once

#include <gradus/core/array/dtype.h>
#include <gradus/core/array/scalar.h>
#include <gradus/core/array/shape.h>
#include <gradus/core/array/storage.h>

namespace gradus {

/// Order of the elements of an image batch in memory. The logical order is always N, C, H, W. The last two names are
/// LibTorch's.
enum class MemoryFormat : uint8_t { contiguous, channels_last, Contiguous = contiguous, ChannelsLast = channels_last };

class Array {
 public:
  Array() = default;
  Array(Storage storage, int64_t offset, const Shape& shape, const Strides& strides, DType dtype)
      : storage_(std::move(storage)), offset_(offset), shape_(shape), strides_(strides), numel_(numel_of(shape)),
        dtype_(dtype) {}

  /// Uninitialised, on `device`.
  static Array empty(const Shape& shape, DType dtype = DType::f32, Device device = {},
                     MemoryFormat format = MemoryFormat::contiguous);
  /// Uninitialised with strides of your own, which must be dense and non-overlapping (a permutation of row-major).
  static Array empty_strided(const Shape& shape, const Strides& strides, DType dtype, Device device = {});
  /// Uninitialised with x's shape, where x is dense its strides, and its dtype and device unless others are given.
  static Array empty_like(const Array& x);
  static Array empty_like(const Array& x, DType dtype);
  static Array empty_like(const Array& x, DType dtype, Device device);

  bool defined() const { return static_cast<bool>(storage_); }
  const Storage& storage() const { return storage_; }
  int64_t offset() const { return offset_; }  ///< in elements
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int64_t size(int64_t axis) const { return shape_[normalize_axis(axis, ndim())]; }
  int64_t stride(int64_t axis) const { return strides_[normalize_axis(axis, ndim())]; }
  int ndim() const { return shape_.size(); }
  int64_t numel() const { return numel_; }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_.device(); }
  size_t nbytes() const { return static_cast<size_t>(numel_) * size_of(dtype_); }

  /// First element. The typed form checks the type.
  void* data() const { return static_cast<char*>(storage_.data()) + offset_ * static_cast<int64_t>(size_of(dtype_)); }
  template <class T>
  T* data() const {
    GRADUS_CHECK(dtype_of<T> == dtype_, DTypeError, "data<", dtype_of<T>, "> of an array of ", dtype_);
    return static_cast<T*>(data());
  }

  /// Row-major without gaps (or, for channels_last, NHWC without gaps). Axes of size 1 may have any stride.
  bool is_contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  /// True if x (N, C, H, W) lies in memory with channels innermost and more than one pixel. One channel lies both ways:
  /// then its stride says what is meant, which `to(format)` sets and results inherit; 1 is channels-last.
  bool is_channels_last() const;
  /// True if the elements fill a block of memory exactly once, in any order of axes.
  bool is_dense() const;
  /// True if two indices may address the same element (an expanded array).
  bool may_overlap() const;

  uint32_t version() const { return storage_.version(); }
  /// Every operation that writes calls this.
  void bump_version() const { storage_.bump_version(); }

  // Views: same storage, no copy. Errors name the shape and what was asked of it.
  Array as_strided(const Shape& shape, const Strides& strides, int64_t offset) const;
  Array transpose(int64_t a, int64_t b) const;
  Array permute(const Dims& order) const;
  Array expand(const Shape& shape) const;
  Array slice(int64_t axis, int64_t start, int64_t end, int64_t step = 1) const;
  Array select(int64_t axis, int64_t index) const;
  Array unsqueeze(int64_t axis) const;
  Array squeeze(int64_t axis) const;
  /// Strides under which this array's elements appear as `shape` without copying; false where there are none.
  bool view_strides(const Shape& shape, Strides* strides) const;
  /// Same elements as `shape`, no copy; ShapeError when that cannot be (use ops::reshape).
  Array view(const Shape& shape) const;

 private:
  Storage storage_;
  int64_t offset_ = 0;
  Shape shape_;
  Strides strides_;
  int64_t numel_ = 0;
  DType dtype_ = DType::f32;
};

}  // namespace gradus
