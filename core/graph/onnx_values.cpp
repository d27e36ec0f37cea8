#include <gradus/core/graph/onnx_values.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace gradus::graph::onnx {
namespace {

int64_t end_of(const Region& region) { return region.offset + extent_of(region.layout).end; }
Region region_of(const Operand& operand, const std::string& value = {}) {
  return {static_cast<int64_t>(operand.offset), operand.layout, value};
}

bool same_place(const Region& a, const Region& b) {
  return a.offset == b.offset && a.layout.shape == b.layout.shape && a.layout.strides == b.layout.strides &&
         a.layout.dtype == b.layout.dtype;
}

/// Axes with more than one element, from the widest stride to the narrowest.
Dims long_axes(const StridedLayout& layout) {
  Dims axes;
  for (int64_t axis : axes_by_stride(layout.strides))
    if (layout.shape[static_cast<int>(axis)] > 1) axes.push_back(axis);
  return axes;
}

/// Where element `distance` of memory is, in steps of the layout's axes; false where it is on none of them.
bool index_at(int64_t distance, const StridedLayout& layout, Dims& index) {
  index = Dims::filled(layout.ndim(), 0);
  for (int64_t axis : long_axes(layout)) {
    const int64_t stride = layout.strides[static_cast<int>(axis)];
    if (stride > 0) index[static_cast<int>(axis)] = distance / stride, distance %= stride;
  }
  return distance == 0;
}

bool overlap(const Region& a, const Region& b) {
  if (b.offset < a.offset) return overlap(b, a);
  if (b.offset >= end_of(a)) return false;
  if (!(a.layout.strides == b.layout.strides)) return true;
  // Slices of one array, side by side?
  Dims index;
  if (!index_at((b.offset - a.offset) / static_cast<int64_t>(size_of(a.layout.dtype)), a.layout, index)) return true;
  for (int i = 0; i < a.layout.ndim(); ++i)
    if (index[i] >= a.layout.shape[i]) return false;
  return true;
}

/// Views of a value, each node made only where it changes something.
class ViewChain {
 public:
  ViewChain(Model& model, const Call* call, std::string value, Dims shape)
      : model_(model), call_(call), value_(std::move(value)), shape_(shape), made_(shape) {}

  const std::string& value() { return make(), value_; }
  void transpose(const Dims& order) {
    Dims shape = order;
    bool moves = false;
    for (int i = 0, last = -1; i < order.size(); ++i) {
      shape[i] = shape_[static_cast<int>(order[i])];
      if (shape[i] == 1) continue;
      moves |= order[i] < last;
      last = static_cast<int>(order[i]);
    }
    if (moves) add("Transpose", {}, {{"perm", order.vec()}}, shape);
    else reshape(shape);
  }
  void reshape(const Dims& shape) { shape_ = shape; }
  /// Of each axis shape[i] elements, starts[i], starts[i] + steps[i], …
  void slice(const Dims& starts, const Dims& shape, const Dims& steps) {
    Dims axes, from, to, by;
    for (int i = 0; i < shape.size(); ++i) {
      if (shape[i] == shape_[i]) continue;
      axes.push_back(i), from.push_back(starts[i]), by.push_back(steps[i]);
      to.push_back(starts[i] + (shape[i] - 1) * steps[i] + 1);
    }
    if (!axes.empty()) add("Slice", {from, to, axes, by}, {}, shape);
  }
  void expand(const Dims& shape) {
    if (!(shape == shape_)) add("Expand", {shape}, {}, shape);
  }

 private:
  void make() {  // the last reshape
    if (!(shape_ == made_)) value_ = model_.add(call_, "Reshape", {value_, model_.add_sizes(shape_)});
    made_ = shape_;
  }
  void add(const std::string& op, const std::vector<Dims>& sizes, Attributes attributes, const Dims& shape) {
    make();
    Names inputs = {value_};
    for (const Dims& numbers : sizes) inputs.push_back(model_.add_sizes(numbers));
    value_ = model_.add(call_, op, std::move(inputs), std::move(attributes));
    shape_ = made_ = shape;
  }
  Model& model_;
  const Call* const call_;
  std::string value_;
  Dims shape_, made_;  // of the view, and of the value so far
};

[[noreturn]] void fail(const Call* call, const Operand& operand, const std::string& why) {
  GRADUS_FAIL(ValueError, "to_onnx: ", description_of(call), " reads ", operand.layout.shape, " with strides ",
              operand.layout.strides, " of memory ", why);
}

}  // namespace

void Values::write(const Call* call, const Operand& operand, const std::string& value) {
  if (operand.buffer < 0) return;
  std::vector<Region>& regions = regions_[static_cast<size_t>(operand.buffer)];
  const Region written = region_of(operand, value);
  const int64_t bytes = operand.layout.numel() * static_cast<int64_t>(size_of(operand.layout.dtype));
  const bool is_dense = bytes == extent_of(operand.layout).end;
  std::erase_if(regions, [&](const Region& region) {
    if (!overlap(region, written)) return false;
    const bool is_inside = region.offset >= written.offset && end_of(region) <= end_of(written);
    GRADUS_CHECK(same_place(region, written) || (is_inside && is_dense), ValueError, "to_onnx: ", description_of(call),
                 " writes into a part of an array, ", region.layout.shape, ", for which there is no operator");
    return true;
  });
  regions.push_back(written);
}

void Values::replace(const Operand& whole, const Operand& part, const std::string& value) {
  std::vector<Region>& regions = regions_[static_cast<size_t>(whole.buffer)];
  std::erase_if(regions, [&](const Region& region) { return same_place(region, region_of(whole)); });
  regions.push_back(region_of(part, value));
}

void Values::define(const Array& array, const std::string& value) {
  const auto address = static_cast<const char*>(array.data());
  for (size_t i = 0; i < regions_.size(); ++i) {
    const Buffer& buffer = graph_.buffers()[i];
    const Region region = {address - buffer.data, StridedLayout(array), value};
    if (!buffer.external || buffer.constant || region.offset >= static_cast<int64_t>(buffer.bytes) ||
        end_of(region) <= 0)
      continue;
    const bool is_known = std::any_of(regions_[i].begin(), regions_[i].end(),
                                      [&](const Region& known) { return overlap(known, region); });
    if (!is_known) regions_[i].push_back(region);
  }
}

Operand Values::operand_of(const Array& array) const {
  Operand operand;
  operand.layout = StridedLayout(array);
  const Buffer* const buffer = array.numel() > 0 ? graph_.buffer_of(array.data()) : nullptr;
  if (!buffer) return operand;
  operand.buffer = static_cast<int>(buffer - graph_.buffers().data());
  operand.offset = static_cast<size_t>(static_cast<const char*>(array.data()) - buffer->data);
  return operand;
}

// What was written is seen as one row of elements, which is cut into axes so that each stride of the operand is one
// step along one of them: slices and permutations of those axes are what it reads.
std::string Values::read(const Call* call, const Operand& operand, uint32_t may_be_1) {
  const StridedLayout& wanted = operand.layout;
  if (operand.buffer < 0) fail(call, operand, "without elements");
  if (extent_of(wanted).begin < 0) return read_reversed(call, operand);
  const Region region = find(call, operand);  // a copy: nodes may be added
  if (region.value.empty()) fail(call, operand, "that has no counterpart in the model");
  if (region.layout.dtype != wanted.dtype) fail(call, operand, "that holds another type");
  if (same_place(region, region_of(operand))) return region.value;

  Dims unrepeated = wanted.shape, axes;
  for (int i = 0; i < wanted.ndim(); ++i)
    if (wanted.strides[i] == 0) unrepeated[i] = 1;
  for (int64_t axis : long_axes(wanted))
    if (wanted.strides[static_cast<int>(axis)] > 0) axes.push_back(axis);

  ViewChain view(model_, call, region.value, region.layout.shape);
  view.transpose(axes_by_stride(region.layout.strides));
  const int64_t distance =
      (static_cast<int64_t>(operand.offset) - region.offset) / static_cast<int64_t>(size_of(wanted.dtype));
  Dims row, starts, sizes, steps;  // the axes that the row of elements is cut into, and what is read of each
  // Cuts off an axis of steps of `stride` elements, or of a part of that where only a part divides `outer`.
  int64_t outer = region.layout.numel();
  const auto cut = [&](int64_t stride, int64_t size) {
    const int64_t unit = std::gcd(outer, stride), extent = outer / unit, start = distance / unit % extent;
    const int64_t step = stride / unit;
    outer = unit;
    if (start + (size - 1) * step >= extent) fail(call, operand, "across the axes that it was written with");
    if (extent == 1) return false;
    GRADUS_CHECK(row.size() < kMaxDims, ValueError, "to_onnx: ", description_of(call), ": too many axes");
    row.push_back(extent), starts.push_back(start), sizes.push_back(size), steps.push_back(step);
    return true;
  };
  Dims place = Dims::filled(wanted.ndim(), -1);  // in `row`, of each axis that is read
  for (int64_t axis : axes)
    if (const int at = static_cast<int>(axis); cut(wanted.strides[at], wanted.shape[at])) place[at] = row.size() - 1;
  cut(1, 1);
  view.reshape(row);
  view.slice(starts, sizes, steps);
  Dims order;
  for (int i = 0; i < place.size(); ++i)
    if (place[i] >= 0) order.push_back(place[i]);
  for (int i = 0; i < row.size(); ++i)
    if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
  view.transpose(order);
  view.reshape(unrepeated);
  Dims repeated = wanted.shape;
  for (int i = 0; i < wanted.ndim(); ++i)
    if (may_be_1 >> i & 1) repeated[i] = unrepeated[i];
  view.expand(repeated);
  return view.value();
}

/// Axes with negative strides: read forwards, then turned around.
std::string Values::read_reversed(const Call* call, Operand operand) {
  Dims axes, last, before_first, steps;
  operand.offset += static_cast<size_t>(extent_of(operand.layout).begin);  // of the element that is first in memory
  for (int i = 0; i < operand.layout.ndim(); ++i) {
    if (operand.layout.strides[i] >= 0) continue;
    operand.layout.strides[i] = -operand.layout.strides[i];
    axes.push_back(i), last.push_back(-1), before_first.push_back(std::numeric_limits<int64_t>::min()),
        steps.push_back(-1);
  }
  const std::string forwards = read(call, operand);
  return model_.add(call, "Slice",
                    {forwards, model_.add_sizes(last), model_.add_sizes(before_first), model_.add_sizes(axes),
                     model_.add_sizes(steps)});
}

Region& Values::find(const Call* call, const Operand& operand) {
  std::vector<Region>& regions = regions_[static_cast<size_t>(operand.buffer)];
  const Region wanted = region_of(operand);
  std::vector<size_t> parts;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (same_place(regions[i], wanted)) return regions[i];
    if (overlap(regions[i], wanted)) parts.push_back(i);
  }
  if (parts.empty()) return external(call, operand);
  Region& region = parts.size() == 1 ? regions[parts[0]] : concatenated(call, operand, std::move(parts));
  const int64_t bytes = region.layout.numel() * static_cast<int64_t>(size_of(region.layout.dtype));
  if (bytes != extent_of(region.layout).end) fail(call, operand, "of which only a part was written");
  if (wanted.offset < region.offset || end_of(wanted) > end_of(region))
    fail(call, operand, "that was not written before");
  return region;
}

/// Slices of one array, one behind the other along an axis, become one value.
Region& Values::concatenated(const Call* call, const Operand& operand, std::vector<size_t> parts) {
  std::vector<Region>& regions = regions_[static_cast<size_t>(operand.buffer)];
  std::sort(parts.begin(), parts.end(), [&](size_t a, size_t b) { return regions[a].offset < regions[b].offset; });
  Region whole = regions[parts[0]];
  int axis = -1;
  Names values = {whole.value};
  for (size_t i = 1; i < parts.size(); ++i) {
    const Region& part = regions[parts[i]];
    const auto distance = (part.offset - whole.offset) / static_cast<int64_t>(size_of(whole.layout.dtype));
    const bool fits = part.layout.ndim() == whole.layout.ndim() && part.layout.dtype == whole.layout.dtype;
    int found = -1;
    for (int a = 0; fits && a < whole.layout.ndim() && found < 0; ++a) {
      bool others_agree = distance == whole.layout.shape[a] * whole.layout.strides[a];
      for (int other = 0; other < whole.layout.ndim(); ++other) {
        if (other == a) continue;
        others_agree &= part.layout.shape[other] == whole.layout.shape[other];
        if (whole.layout.shape[other] > 1) others_agree &= part.layout.strides[other] == whole.layout.strides[other];
      }
      if (others_agree) found = a;
    }
    if (found < 0 || (axis >= 0 && found != axis)) fail(call, operand, "of which calls wrote several parts");
    axis = found;
    whole.layout.shape[axis] += part.layout.shape[axis];
    values.push_back(part.value);
  }
  whole.value = model_.add(call, "Concat", values, {{"axis", int64_t{axis}}});
  std::sort(parts.begin(), parts.end());
  for (size_t i = parts.size(); i-- > 0;) regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(parts[i]));
  return regions.emplace_back(std::move(whole));
}

/// An array from before the pass that nobody has named: a row of numbers of the model's own.
Region& Values::external(const Call* call, const Operand& operand) {
  const auto at = static_cast<size_t>(operand.buffer);
  const Buffer& buffer = graph_.buffers()[at];
  if (!buffer.external || !regions_[at].empty()) fail(call, operand, "that no call has written");
  const auto count = static_cast<int64_t>(buffer.bytes / size_of(operand.layout.dtype));
  const Storage storage = Storage::adopt(buffer.memory, buffer.bytes, Device(), nullptr);
  const Array row(storage, 0, {count}, {1}, operand.layout.dtype);
  Array copy = Array::empty({count}, operand.layout.dtype);
  std::copy_n(buffer.memory, copy.nbytes(), static_cast<char*>(copy.data()));
  return regions_[at].emplace_back(Region{0, StridedLayout(row), model_.add_constant(copy)});
}

}  // namespace gradus::graph::onnx
