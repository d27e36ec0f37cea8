#include <gradus/core/array/shape.h>

#include <algorithm>

namespace gradus {

std::string to_string(const std::vector<int64_t>& sizes) {
  std::string text = "(";
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i) text += ", ";
    text += std::to_string(sizes[i]);
  }
  if (sizes.size() == 1) text += ",";
  return text + ")";
}

int64_t numel_of(const Shape& shape) {
  int64_t count = 1;
  bool overflow = false, zero = false;
  for (int64_t size : shape) {
    GRADUS_CHECK(size >= 0, ShapeError, "negative size in shape ", shape);
    zero |= size == 0;
    overflow |= __builtin_mul_overflow(count, size ? size : 1, &count);
  }
  GRADUS_CHECK(!overflow, ShapeError, "shape ", shape, " has more elements than fit in 64 bits");
  return zero ? 0 : count;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i] > 0 ? shape[i] : 1;
  }
  return strides;
}

Dims axes_by_stride(const Strides& strides) {
  Dims axes = strides;
  for (int i = 0; i < axes.size(); ++i) axes[i] = i;
  std::ranges::stable_sort(axes, [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  return axes;
}

Strides channels_last_strides(const Shape& shape) {
  GRADUS_CHECK(shape.size() == 4, ShapeError, "channels-last layout needs 4 dimensions (N, C, H, W), got ", shape);
  auto at_least_one = [](int64_t n) { return n > 0 ? n : 1; };
  const int64_t c = at_least_one(shape[1]), h = at_least_one(shape[2]), w = at_least_one(shape[3]);
  return {h * w * c, 1, w * c, c};
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  Shape out = a.size() >= b.size() ? a : b;
  for (int i = 1; i <= out.size(); ++i) {
    const int64_t da = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t db = i <= b.size() ? b[b.size() - i] : 1;
    GRADUS_CHECK(da == db || da == 1 || db == 1, ShapeError, "shapes ", a, " and ", b, " do not broadcast: sizes ", da,
                 " and ", db, " differ at dimension ", out.size() - i, " and neither is 1");
    out[out.size() - i] = da == 1 ? db : da;
  }
  return out;
}

int normalize_axis(int64_t axis, int ndim) {
  const int64_t range = ndim > 0 ? ndim : 1;
  GRADUS_CHECK(axis >= -range && axis < range, IndexError, "dimension out of range: expected ", -range, " to ",
               range - 1, ", got ", axis);
  return static_cast<int>(axis < 0 ? axis + range : axis);
}

uint32_t axis_mask(const Dims& axes, int ndim) {
  if (axes.empty()) return ndim ? (1u << ndim) - 1 : 0;
  uint32_t mask = 0;
  for (int64_t axis : axes) {
    const int at = normalize_axis(axis, ndim);
    GRADUS_CHECK(!(mask & (1u << at)), ShapeError, "dimension ", axis, " appears twice in ", axes);
    mask |= 1u << at;
  }
  return ndim ? mask : 0;
}

Shape reduced_shape(const Shape& shape, uint32_t mask, bool keepdim) {
  Shape out;
  for (int i = 0; i < shape.size(); ++i) {
    if (!(mask & (1u << i))) out.push_back(shape[i]);
    else if (keepdim) out.push_back(1);
  }
  return out;
}

Shape infer_shape(const Shape& wanted, int64_t numel, const Shape& from) {
  Shape out = wanted;
  int hole = -1;
  int64_t known = 1;
  bool overflow = false;
  for (int i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == -1) {
      GRADUS_CHECK(hole < 0, ShapeError, "only one dimension can be inferred, got ", wanted);
      hole = i;
    } else {
      GRADUS_CHECK(wanted[i] >= 0, ShapeError, "invalid size ", wanted[i], " in ", wanted);
      overflow |= __builtin_mul_overflow(known, wanted[i], &known);
    }
  }
  if (hole >= 0 && known > 0 && numel % known == 0) {
    out[hole] = numel / known;
    known = numel;
  }
  GRADUS_CHECK(!overflow && known == numel && (hole < 0 || out[hole] >= 0), ShapeError, "cannot view ", numel,
               " elements of shape ", from, " as ", wanted);
  numel_of(out);  // throws if the product of the sizes other than 0 overflows
  return out;
}

}  // namespace gradus
