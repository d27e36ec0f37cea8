#include <gradus/core/array/array.h>

#include <algorithm>

namespace gradus {

Array Array::empty(const Shape& shape, DType dtype, Device device, MemoryFormat format) {
  const size_t bytes = checked_bytes(shape, dtype);
  const Strides strides =
      format == MemoryFormat::channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
  return Array(Storage::allocate(bytes, device), 0, shape, strides, dtype);
}

Array Array::empty_strided(const Shape& shape, const Strides& strides, DType dtype, Device device) {
  Array out(Storage::allocate(checked_bytes(shape, dtype), device), 0, shape, strides, dtype);
  GRADUS_CHECK(strides.size() == shape.size() && out.is_dense(), ShapeError, "empty_strided needs dense strides, got ",
               strides, " for shape ", shape);
  return out;
}

Array Array::empty_like(const Array& x, DType dtype, Device device) {
  const bool row_major = x.is_contiguous() && !x.is_channels_last();
  if (row_major || !x.is_dense()) return empty(x.shape(), dtype, device);
  return Array(Storage::allocate(checked_bytes(x.shape(), dtype), device), 0, x.shape(), x.strides(), dtype);
}

bool Array::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::channels_last && ndim() != 4) return false;
  if (numel_ == 0) return true;
  static constexpr int nhwc[4] = {0, 2, 3, 1};
  int64_t expected = 1;
  for (int i = ndim() - 1; i >= 0; --i) {
    const int axis = format == MemoryFormat::channels_last ? nhwc[i] : i;
    if (shape_[axis] != 1 && strides_[axis] != expected) return false;
    expected *= shape_[axis];
  }
  return true;
}

bool Array::is_channels_last() const {
  if (ndim() != 4) return false;
  const int64_t channels = shape_[1], step = strides_[1];
  for (int axis : {3, 2})
    if (shape_[axis] > 1) return channels == 1 ? step == 1 : channels > 1 && step < strides_[axis];
  return false;
}

bool Array::is_dense() const {
  if (numel_ == 0) return true;
  const Dims axes = axes_by_stride(strides_);
  int64_t expected = 1;
  for (int i = axes.size() - 1; i >= 0; --i) {
    const int64_t axis = axes[i];
    if (shape_[axis] == 1) continue;
    if (strides_[axis] != expected) return false;
    expected *= shape_[axis];
  }
  return true;
}

bool Array::may_overlap() const {
  if (numel_ == 0) return false;
  const Dims axes = axes_by_stride(strides_);
  int64_t reach = 0;  // largest offset that the narrower axes address
  for (int i = axes.size() - 1; i >= 0; --i) {
    const int64_t axis = axes[i];
    if (shape_[axis] == 1) continue;
    if (strides_[axis] <= reach) return true;
    reach += strides_[axis] * (shape_[axis] - 1);
  }
  return false;
}

Array Array::as_strided(const Shape& shape, const Strides& strides, int64_t offset) const {
  GRADUS_CHECK(shape.size() == strides.size(), ShapeError, "as_strided got ", shape.size(), " sizes but ",
               strides.size(), " strides");
  const int64_t capacity = static_cast<int64_t>(storage_.bytes() / size_of(dtype_));
  int64_t last = offset;
  bool fits = offset >= 0, overflow = false;
  for (int i = 0; i < shape.size(); ++i) {
    fits = fits && strides[i] >= 0;
    int64_t reach = 0;
    overflow |= __builtin_mul_overflow(strides[i], std::max<int64_t>(shape[i] - 1, 0), &reach);
    overflow |= __builtin_add_overflow(last, reach, &last);
  }
  const bool nothing = numel_of(shape) == 0;
  GRADUS_CHECK(fits && !overflow && (nothing ? offset <= capacity : last < capacity), ShapeError, "as_strided shape ",
               shape, " strides ", strides, " offset ", offset, " reaches outside a storage of ", capacity,
               " elements");
  return Array(storage_, offset, shape, strides, dtype_);
}

Array Array::transpose(int64_t a, int64_t b) const {
  Array out = *this;
  const int i = normalize_axis(a, ndim()), j = normalize_axis(b, ndim());
  std::swap(out.shape_[i], out.shape_[j]);
  std::swap(out.strides_[i], out.strides_[j]);
  return out;
}

Array Array::permute(const Dims& order) const {
  GRADUS_CHECK(order.size() == ndim(), ShapeError, "permute ", order, " does not list the ", ndim(),
               " dimensions of shape ", shape_);
  axis_mask(order, ndim());  // checks that each axis appears once
  Array out = *this;
  for (int i = 0; i < order.size(); ++i) {
    const int axis = normalize_axis(order[i], ndim());
    out.shape_[i] = shape_[axis];
    out.strides_[i] = strides_[axis];
  }
  return out;
}

Array Array::expand(const Shape& shape) const {
  GRADUS_CHECK(shape.size() >= ndim(), ShapeError, "cannot expand shape ", shape_, " to fewer dimensions ", shape);
  const int lead = shape.size() - ndim();
  Shape sizes = shape;
  Strides strides = Dims::filled(shape.size(), 0);
  for (int i = 0; i < shape.size(); ++i) {
    const int64_t have = i < lead ? 1 : shape_[i - lead];
    if (sizes[i] == -1 && i >= lead) sizes[i] = have;
    GRADUS_CHECK(sizes[i] == have || (have == 1 && sizes[i] >= 0), ShapeError, "cannot expand shape ", shape_, " to ",
                 shape, ": size ", have, " at dimension ", i, " is neither 1 nor ", shape[i]);
    if (i >= lead && have == sizes[i]) strides[i] = strides_[i - lead];
  }
  return Array(storage_, offset_, sizes, strides, dtype_);
}

Array Array::slice(int64_t axis, int64_t start, int64_t end, int64_t step) const {
  GRADUS_CHECK(ndim() > 0, IndexError, "cannot slice a scalar");
  GRADUS_CHECK(step > 0, ValueError, "slice step must be positive, got ", step);
  const int at = normalize_axis(axis, ndim());
  const int64_t size = shape_[at];
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, size);
  end = std::clamp<int64_t>(end, start, size);
  Array out = *this;
  out.shape_[at] = (end - start) / step + ((end - start) % step != 0);
  if (out.shape_[at] > 1) out.strides_[at] = strides_[at] * step;
  if (out.shape_[at] == 0) start = 0;
  out.offset_ = offset_ + start * strides_[at];
  out.numel_ = numel_of(out.shape_);
  return out;
}

Array Array::select(int64_t axis, int64_t index) const {
  GRADUS_CHECK(ndim() > 0, IndexError, "cannot index a scalar");
  const int at = normalize_axis(axis, ndim());
  const int64_t size = shape_[at];
  GRADUS_CHECK(index >= -size && index < size, IndexError, "index ", index, " is out of range for dimension ", at,
               " of size ", size, " in shape ", shape_);
  Array out = *this;
  out.offset_ = offset_ + (index < 0 ? index + size : index) * strides_[at];
  out.shape_.erase(at);
  out.strides_.erase(at);
  out.numel_ = numel_of(out.shape_);
  return out;
}

Array Array::unsqueeze(int64_t axis) const {
  const int at = normalize_axis(axis, ndim() + 1);
  Array out = *this;
  const int64_t stride = at < ndim() ? strides_[at] * std::max<int64_t>(shape_[at], 1) : 1;
  out.shape_.insert(at, 1);
  out.strides_.insert(at, stride);
  return out;
}

Array Array::squeeze(int64_t axis) const {
  const int at = normalize_axis(axis, ndim());
  Array out = *this;
  if (ndim() == 0 || shape_[at] != 1) return out;
  out.shape_.erase(at);
  out.strides_.erase(at);
  return out;
}

bool Array::view_strides(const Shape& shape, Strides* strides) const {
  if (numel_ == 0) {
    *strides = contiguous_strides(shape);
    return true;
  }
  // Walk both shapes from the right. Neighbouring axes of this array that have no gaps between them form a block, and a
  // block may be split into other sizes.
  *strides = Dims::filled(shape.size(), 1);
  int to = shape.size() - 1;
  int64_t block = 1, base = ndim() ? strides_[ndim() - 1] : 1;
  for (int from = ndim() - 1; from >= 0; --from) {
    block *= shape_[from];
    const bool block_ends = from == 0 || (shape_[from - 1] != 1 && strides_[from - 1] != block * base);
    if (!block_ends) continue;
    int64_t filled = 1;
    while (to >= 0 && (filled < block || shape[to] == 1)) {
      (*strides)[to] = filled * base;
      filled *= shape[to--];
    }
    if (filled != block) return false;
    if (from > 0) block = 1, base = strides_[from - 1];
  }
  for (; to >= 0; --to)
    if (shape[to] != 1) return false;
  return true;
}

Array Array::view(const Shape& wanted) const {
  const Shape shape = infer_shape(wanted, numel_, shape_);
  Strides strides;
  GRADUS_CHECK(view_strides(shape, &strides), ShapeError, "shape ", shape_, " with strides ", strides_,
               " cannot be viewed as ", wanted, " without a copy: use reshape");
  return Array(storage_, offset_, shape, strides, dtype_);
}

}  // namespace gradus
