// Array: {storage, offset, shape, strides, dtype}. A copy of an Array is another handle to the same elements; views
// share the storage too. Gradients belong to autograd's Tensor, which holds an Array.
#pragma once

#include <gradus/core/array/dtype.h>
#include <gradus/core/array/scalar.h>
#include <gradus/core/array/shape.h>
#include <gradus/core/array/storage.h>

namespace gradus {

/// Order in memory of the elements of an image batch. The logical order is always N, C, H, W. The capitalised names are
/// LibTorch's.
enum class MemoryFormat : uint8_t { contiguous, channels_last, Contiguous = contiguous, ChannelsLast = channels_last };

class Array {
 public:
  Array() = default;
  Array(Storage storage, int64_t offset, const Shape& shape, const Strides& strides, DType dtype)
      : storage_(std::move(storage)), offset_(offset), shape_(shape), strides_(strides), numel_(numel_of(shape)),
        dtype_(dtype) {}

  /// An uninitialised array on `device`.
  static Array empty(const Shape& shape, DType dtype = DType::f32, Device device = {},
                     MemoryFormat format = MemoryFormat::contiguous);
  /// An uninitialised array with the given strides, which must be dense: row-major for some order of the axes.
  static Array empty_strided(const Shape& shape, const Strides& strides, DType dtype, Device device = {});
  /// An uninitialised array with x's shape, and with x's dtype and device unless others are given. It has x's strides
  /// if x is dense; otherwise it is row-major.
  static Array empty_like(const Array& x) { return empty_like(x, x.dtype(), x.device()); }
  static Array empty_like(const Array& x, DType dtype) { return empty_like(x, dtype, x.device()); }
  static Array empty_like(const Array& x, DType dtype, Device device);
  /// An uninitialised array on this array's device, of its dtype unless another is given (torch.Tensor.new_empty).
  Array new_empty(const Shape& shape, MemoryFormat format = MemoryFormat::contiguous) const {
    return empty(shape, dtype_, device(), format);
  }
  Array new_empty(const Shape& shape, DType dtype, MemoryFormat format = MemoryFormat::contiguous) const {
    return empty(shape, dtype, device(), format);
  }

  /// False for Array().
  bool defined() const { return static_cast<bool>(storage_); }
  const Storage& storage() const { return storage_; }
  int64_t offset() const { return offset_; }  ///< in elements
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  /// The size along an axis; negative axes count from the end.
  int64_t size(int64_t axis) const { return shape_[normalize_axis(axis, ndim())]; }
  int64_t stride(int64_t axis) const { return strides_[normalize_axis(axis, ndim())]; }
  int ndim() const { return shape_.size(); }
  int64_t numel() const { return numel_; }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_.device(); }
  size_t nbytes() const { return static_cast<size_t>(numel_) * size_of(dtype_); }

  /// Address of the first element. The typed form checks the dtype.
  void* data() const { return static_cast<char*>(storage_.data()) + offset_ * static_cast<int64_t>(size_of(dtype_)); }
  template <class T>
  T* data() const {
    GRADUS_CHECK(dtype_of<T> == dtype_, DTypeError, "data<", dtype_of<T>, "> of an array of ", dtype_);
    return static_cast<T*>(data());
  }

  /// Row-major without gaps (or, for channels_last, NHWC without gaps). Axes of size 1 may have any stride.
  bool is_contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  /// True if this array is (N, C, H, W), has more than one pixel, and its channels are innermost in memory. With one
  /// channel, both layouts address the same memory; the array then counts as channels-last if its channel stride is 1.
  /// Tensor::to(format) sets this stride, and the results of operators inherit it.
  bool is_channels_last() const;
  /// True if the elements fill a block of memory exactly once, in any order of axes.
  bool is_dense() const;
  /// True if two indices may address the same element (an expanded array).
  bool may_overlap() const;

  uint32_t version() const { return storage_.version(); }
  /// Counts a write, by which autograd notices that a saved tensor was changed. Every operation that writes elements
  /// must call it.
  void bump_version() const { storage_.bump_version(); }

  // Views share the storage and copy nothing. Errors name the shape and the requested change.
  Array as_strided(const Shape& shape, const Strides& strides, int64_t offset) const;
  Array transpose(int64_t a, int64_t b) const;
  Array permute(const Dims& order) const;
  Array expand(const Shape& shape) const;
  Array slice(int64_t axis, int64_t start, int64_t end, int64_t step = 1) const;
  Array select(int64_t axis, int64_t index) const;
  Array unsqueeze(int64_t axis) const;
  Array squeeze(int64_t axis) const;
  /// Finds strides under which this array's elements appear as `shape` without a copy; returns false if there are none.
  bool view_strides(const Shape& shape, Strides* strides) const;
  /// The same elements with this shape. Throws a ShapeError if they would have to be copied; ops::reshape copies them.
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
