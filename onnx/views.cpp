#include <gradus/onnx/views.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace gradus::graph::onnx {
namespace {

/// Axes with more than one element, from the widest stride to the narrowest.
Dims long_axes(const StridedLayout& layout) {
  Dims axes;
  for (int64_t axis : axes_by_stride(layout.strides))
    if (layout.shape[static_cast<int>(axis)] > 1) axes.push_back(axis);
  return axes;
}

}  // namespace

int64_t end_of(const Region& region) { return region.offset + extent_of(region.layout).end; }

Region region_of(const Operand& operand, const std::string& value) {
  return {static_cast<int64_t>(operand.offset), operand.layout, value, nullptr};
}

bool is_dense(const Region& region) {
  return region.layout.numel() * static_cast<int64_t>(size_of(region.layout.dtype)) == extent_of(region.layout).end;
}

bool same_place(const Region& a, const Region& b) {
  return a.offset == b.offset && a.layout.shape == b.layout.shape && a.layout.strides == b.layout.strides &&
         a.layout.dtype == b.layout.dtype;
}

// Slices of one array have its strides. They are disjoint if they are apart along an axis, or if no sum of steps along
// axes gives their distance.
bool overlap(const Region& a, const Region& b) {
  if (b.offset < a.offset) return overlap(b, a);
  if (b.offset >= end_of(a)) return false;
  if (a.layout.dtype != b.layout.dtype || !(a.layout.strides == b.layout.strides)) return true;
  const auto size = static_cast<int64_t>(size_of(a.layout.dtype));
  int64_t distance = (b.offset - a.offset) / size, unit = 0, outer = std::numeric_limits<int64_t>::max();
  Dims axes;
  for (int64_t axis : axes_by_stride(a.layout.strides)) {
    const int at = static_cast<int>(axis);
    if (a.layout.shape[at] == 1 && b.layout.shape[at] == 1) continue;
    if (a.layout.strides[at] <= 0) return true;
    axes.push_back(axis), unit = std::gcd(unit, a.layout.strides[at]);
  }
  if (unit == 0) return true;
  if (distance % unit != 0) return false;
  bool is_apart = false;
  for (int64_t axis : axes) {
    const int at = static_cast<int>(axis);
    const int64_t stride = a.layout.strides[at], start = distance / stride;
    distance %= stride;
    if (std::max(a.layout.shape[at], start + b.layout.shape[at]) * stride > outer) return true;  // reaches the next row
    is_apart |= start >= a.layout.shape[at];
    outer = stride;
  }
  return !is_apart || distance != 0;
}

Cut::Cut(const Region& region, const Operand& operand) {
  Dims axes;
  for (int64_t axis : long_axes(operand.layout))
    if (operand.layout.strides[static_cast<int>(axis)] > 0) axes.push_back(axis);
  int count = axes.size();
  while (!cut_first(count, axes, region, operand)) --count;
}

// Divides the row for the first `count` axes, from the widest stride to the narrowest. An axis is divided in steps of
// its stride, or of the greatest common divisor with what is left of the row.
bool Cut::cut_first(int count, const Dims& axes, const Region& region, const Operand& operand) {
  const StridedLayout& wanted = operand.layout;
  const int64_t distance =
      (static_cast<int64_t>(operand.offset) - region.offset) / static_cast<int64_t>(size_of(wanted.dtype));
  *this = Cut();
  int64_t outer = region.layout.numel(), last_inner = 0;
  const auto cut = [&](int64_t stride, int64_t size) {
    const int64_t unit = std::gcd(outer, stride), extent = outer / unit, start = distance / unit % extent;
    const int64_t step = stride / unit;
    outer = unit;
    if (extent > 1) row.push_back(extent), starts.push_back(start), sizes.push_back(size), steps.push_back(step);
    return start + (size - 1) * step < extent;
  };
  Dims place = Dims::filled(wanted.ndim(), -1);  // each operand axis's position in `row`
  for (int i = 0; i < axes.size(); ++i) {
    const int at = static_cast<int>(axes[i]);
    if (i >= count) {
      inner.push_back(axes[i]), last_inner += (wanted.shape[at] - 1) * wanted.strides[at];
    } else {
      if (row.size() + 1 >= kMaxDims || !cut(wanted.strides[at], wanted.shape[at])) return false;
      place[at] = row.size() - 1;
    }
  }
  if (inner.empty()) {
    cut(1, 1);
  } else {
    inner_start = distance % outer;
    if (inner_start + last_inner >= outer) return false;
    row.push_back(outer), starts.push_back(0), sizes.push_back(outer), steps.push_back(1);
  }
  const auto is_inner = [&](int64_t axis) { return std::find(inner.begin(), inner.end(), axis) != inner.end(); };
  for (int i = 0, next = row.size() - 1; i < place.size(); ++i)
    if (is_inner(i) || place[i] >= 0) order.push_back(is_inner(i) ? next++ : place[i]);
  for (int i = 0; i < row.size() - (inner.empty() ? 0 : 1); ++i)
    if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
  return true;
}

Array Cut::inner_places(const StridedLayout& wanted) const {
  Dims axes = inner;
  std::sort(axes.begin(), axes.end());
  Shape shape;
  for (int64_t axis : axes) shape.push_back(wanted.shape[static_cast<int>(axis)]);
  const Array places = Array::empty(shape, DType::i64);
  for (int64_t at = 0; at < places.numel(); ++at) {
    int64_t place = inner_start;
    for (int i = 0; i < shape.size(); ++i)
      place += at / places.strides()[i] % shape[i] * wanted.strides[static_cast<int>(axes[i])];
    places.data<int64_t>()[at] = place;
  }
  return places;
}

}  // namespace gradus::graph::onnx
