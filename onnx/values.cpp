#include <gradus/onnx/values.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <gradus/core/ops/ops.h>

namespace gradus::graph::onnx {
namespace {

[[noreturn]] void fail(const Call* call, const Operand& operand, const std::string& why) {
  GRADUS_FAIL(ValueError, "to_onnx: ", description_of(call), " uses ", operand.layout.shape, " with strides ",
              operand.layout.strides, " of memory ", why);
}

/// Axes with more than one element, from the widest stride to the narrowest.
Dims long_axes(const StridedLayout& layout) {
  Dims axes;
  for (int64_t axis : axes_by_stride(layout.strides))
    if (layout.shape[static_cast<int>(axis)] > 1) axes.push_back(axis);
  return axes;
}

// ---- Regions, and operands as slices of them ----

/// The offset of the region's end in bytes.
int64_t end_of(const Region& region) { return region.offset + extent_of(region.layout).end; }

/// The region that an operand covers.
Region region_of(const Operand& operand, const std::string& value = {}) {
  return {static_cast<int64_t>(operand.offset), operand.layout, value, nullptr};
}

/// Returns true if a and b consist of the same elements in the same order.
bool same_place(const Region& a, const Region& b) { return a.offset == b.offset && is_same(a.layout, b.layout); }

/// Returns false only if a and b certainly have no element in common.
/// Slices of the same array have the same strides. Two such slices are disjoint if one ends before the other begins
/// along an axis, or if the distance of their first elements is not a sum of steps along the axes.
bool overlap(const Region& a, const Region& b) {
  if (b.offset < a.offset) return overlap(b, a);
  if (b.offset >= end_of(a)) return false;
  const StridedLayout &x = a.layout, &y = b.layout;
  if (x.dtype != y.dtype || x.strides != y.strides) return true;
  const auto size = static_cast<int64_t>(size_of(x.dtype));
  int64_t distance = (b.offset - a.offset) / size, unit = 0, outer = std::numeric_limits<int64_t>::max();
  Dims axes;
  for (int64_t axis : axes_by_stride(x.strides)) {
    const int at = static_cast<int>(axis);
    if (x.shape[at] == 1 && y.shape[at] == 1) continue;
    if (x.strides[at] <= 0) return true;
    axes.push_back(axis);
    unit = std::gcd(unit, x.strides[at]);
  }
  if (unit > 0 && distance % unit != 0) return false;
  bool is_apart = false;
  for (int64_t axis : axes) {
    const int at = static_cast<int>(axis);
    const int64_t stride = x.strides[at], start = distance / stride;
    distance %= stride;
    // If an axis extends beyond one step of the next wider axis, an element has several positions, and the slices are
    // assumed to overlap.
    if (std::max(x.shape[at], start + y.shape[at]) * stride > outer) return true;
    is_apart |= start >= x.shape[at];
    outer = stride;
  }
  return !is_apart || distance != 0;
}

/// Replaces the regions with the indices `parts` by `whole`, and `parts` by the index of `whole`.
void replace_parts(std::vector<Region>& regions, std::vector<size_t>& parts, Region whole) {
  std::ranges::sort(parts);
  for (size_t i = parts.size(); i-- > 0;) regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(parts[i]));
  parts = {regions.size()};
  regions.push_back(std::move(whole));
}

}  // namespace

Cut::Cut(const Region& region, const Operand& operand) {
  Dims axes;
  for (int64_t axis : long_axes(operand.layout))
    if (operand.layout.strides[static_cast<int>(axis)] > 0) axes.push_back(axis);
  int count = axes.size();
  while (!cut_first(count, axes, region, operand)) --count;
}

// Divides the row into axes so that the first `count` of the operand's axes, from the widest stride to the narrowest,
// are slices of these axes. Each of them divides the last axis so far into pieces as long as the operand's stride or,
// if that does not divide the axis, as the greatest common divisor of both lengths. The operand's other axes become
// `inner`. Returns false if such a division does not exist; the constructor then tries a smaller `count`.
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
  Dims place = Dims::filled(wanted.ndim(), -1);  // for each axis of the operand, the axis of `row`, or -1
  for (int i = 0; i < axes.size(); ++i) {
    const int at = static_cast<int>(axes[i]);
    if (i >= count) {
      inner.push_back(axes[i]);
      last_inner += (wanted.shape[at] - 1) * wanted.strides[at];
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
  const auto is_inner = [&](int64_t axis) { return std::ranges::find(inner, axis) != inner.end(); };
  for (int i = 0, next = row.size() - 1; i < place.size(); ++i)
    if (is_inner(i) || place[i] >= 0) order.push_back(is_inner(i) ? next++ : place[i]);
  for (int i = 0; i < row.size(); ++i)
    if (std::ranges::find(order, i) == order.end()) order.push_back(i);
  return true;
}

Array Cut::inner_places(const StridedLayout& wanted) const {
  Dims axes = inner;
  std::ranges::sort(axes);
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

// ---- Values ----

void Values::write(const Call* call, const Operand& operand, const std::string& value, const std::string& filled_with) {
  if (operand.buffer < 0) return;
  std::vector<Region>& regions = regions_[static_cast<size_t>(operand.buffer)];
  Region written = region_of(operand, value);
  written.call = call, written.filled_with = filled_with;
  std::erase_if(regions, [&](const Region& region) {
    const bool is_inside = region.offset >= written.offset && end_of(region) <= end_of(written);
    return same_place(region, written) || (is_inside && is_dense(written.layout));
  });
  if (std::ranges::any_of(regions, [&](const Region& region) { return overlap(region, written); })) {
    Region& region = find(call, operand);
    region = with_part(call, region, operand, value);
  } else {
    regions.push_back(written);
  }
}

// Inserts a part into a region's value. If the part is a block and all other elements are equal, this is one Pad node.
// In the general case, Gather nodes enlarge the part to the region's size along the axes that it covers only partly,
// and a Where node selects with a constant mask between the enlarged part and the earlier value.
Region Values::with_part(const Call* call, Region region, const Operand& operand, const std::string& value) {
  if (region.layout.dtype != operand.layout.dtype) fail(call, operand, "that holds another type");
  const Cut cut(region, operand);
  if (!cut.inner.empty()) fail(call, operand, "across the axes that it was written with");
  Dims ordered, back = cut.order, mask_shape = cut.row, pads = cut.starts;
  bool is_block = true;
  for (int i = 0; i < cut.row.size(); ++i) {
    const int axis = static_cast<int>(cut.order[i]);
    ordered.push_back(cut.sizes[axis]), back[axis] = i;
    if (cut.sizes[i] == cut.row[i]) mask_shape[i] = 1;
    pads.push_back(cut.row[i] - cut.starts[i] - cut.sizes[i]);
    is_block &= cut.steps[i] == 1 || cut.sizes[i] == 1;
  }
  ViewChain part(model_, call, value, operand.layout.shape);
  part.reshape(ordered);
  part.transpose(back);
  std::string whole;  // has no value if the region or the part has none
  if (region.value.empty() || value.empty()) {
    if (value.empty()) region.call = call;
  } else if (is_block && !region.filled_with.empty()) {
    whole = model_.add(call, "Pad", {part.value(), model_.add_sizes(pads), region.filled_with});
  } else {
    ViewChain before(model_, call, region.value, region.layout.shape);
    before.transpose(axes_by_stride(region.layout.strides));
    before.reshape(cut.row);
    const Array mask = Array::empty(mask_shape, DType::boolean);
    std::fill_n(mask.data<bool>(), mask.numel(), true);
    whole = part.value();
    for (int i = 0; i < cut.row.size(); ++i) {
      if (cut.sizes[i] == cut.row[i]) continue;
      const int64_t last = cut.sizes[i] - 1, inner = mask.strides()[i];
      const auto place_of = [&](int64_t k) { return std::clamp<int64_t>((k - cut.starts[i]) / cut.steps[i], 0, last); };
      for (int64_t at = 0; at < mask.numel(); ++at) {
        const int64_t k = at / inner % cut.row[i];
        if (k != cut.starts[i] + place_of(k) * cut.steps[i]) mask.data<bool>()[at] = false;
      }
      const Array source = Array::empty({cut.row[i]}, DType::i64);
      for (int64_t k = 0; k < cut.row[i]; ++k) source.data<int64_t>()[k] = place_of(k);
      whole = model_.add(call, "Gather", {whole, model_.add_constant(source)}, {{"axis", i}});
    }
    whole = model_.add(call, "Where", {model_.add_constant(mask), whole, before.value()});
  }
  region.layout.shape = cut.row, region.layout.strides = contiguous_strides(cut.row);
  region.value = whole, region.filled_with.clear();
  return region;
}

void Values::replace(const Operand& whole, const Operand& part, const std::string& value) {
  std::vector<Region>& regions = regions_[static_cast<size_t>(whole.buffer)];
  std::erase_if(regions, [&](const Region& region) { return same_place(region, region_of(whole)); });
  regions.push_back(region_of(part, value));
}

void Values::define(const Array& array, const std::string& value) {
  if (array.numel() == 0) return;
  const auto address = static_cast<const char*>(array.data());
  bool is_used = false;
  for (size_t i = 0; i < regions_.size(); ++i) {
    const Buffer& buffer = buffers_[i];
    const Region region = {address - buffer.data, StridedLayout(array), value, nullptr};
    if (!buffer.external || region.offset >= static_cast<int64_t>(buffer.bytes) || end_of(region) <= 0) continue;
    is_used = true;
    const bool is_known = std::ranges::any_of(regions_[i], [&](const Region& known) { return overlap(known, region); });
    if (!is_known) regions_[i].push_back(region);
  }
  if (is_used) return;
  buffers_.emplace_back(address, static_cast<size_t>(extent_of(StridedLayout(array)).end)).external = true;
  regions_.push_back({Region{0, StridedLayout(array), value, nullptr}});
}

Operand Values::operand_of(const Array& array) const {
  Operand operand{-1, 0, StridedLayout(array)};
  const auto address = static_cast<const char*>(array.data()), end = address + extent_of(operand.layout).end;
  const auto value_in = [&](auto i) {
    const std::vector<Region>& regions = regions_[static_cast<size_t>(i)];
    return regions.empty() ? "" : regions[0].value;
  };
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const char* const begin = buffers_[i].data;
    if (address >= begin && address < begin + buffers_[i].bytes)
      operand.buffer = static_cast<int>(i), operand.offset = static_cast<size_t>(address - begin);
    // The array continues in another buffer. If a call has changed elements of either, no value has all elements.
    else if (operand.buffer >= 0 && begin > address && begin < end && value_in(i) != value_in(operand.buffer))
      return {-1, 0, operand.layout};
  }
  return operand;
}

std::string Values::read(const Call* call, const Operand& operand, uint32_t may_be_1) {
  const StridedLayout& wanted = operand.layout;
  if (wanted.numel() == 0) return model_.add_constant(Array::empty(wanted.shape, wanted.dtype));
  if (operand.buffer < 0) fail(call, operand, "that no call and no input or weight has");
  if (extent_of(wanted).begin < 0) return read_reversed(call, operand);
  const Region region = find(call, operand);
  GRADUS_CHECK(!region.value.empty(), ValueError, "to_onnx: ", description_of(region.call),
               " has no counterpart in ONNX here; its result is used by ", description_of(call));
  if (region.layout.dtype != wanted.dtype) fail(call, operand, "that holds another type");
  if (same_place(region, region_of(operand))) return region.value;

  const Cut cut(region, operand);
  ViewChain view(model_, call, region.value, region.layout.shape);
  view.transpose(axes_by_stride(region.layout.strides));
  view.reshape(cut.row);
  view.slice(cut.starts, cut.sizes, cut.steps);
  if (!cut.inner.empty()) view.gather(cut.inner_places(wanted));
  view.transpose(cut.order);
  Dims unrepeated = wanted.shape, repeated = wanted.shape;
  for (int i = 0; i < wanted.ndim(); ++i) {
    if (wanted.strides[i] == 0) unrepeated[i] = 1;
    if (may_be_1 >> i & 1) repeated[i] = unrepeated[i];
  }
  view.reshape(unrepeated);
  view.expand(repeated);
  return view.value();
}

/// Reads an operand with negative strides: reads its elements in the order of memory, then reverses these axes.
std::string Values::read_reversed(const Call* call, Operand operand) {
  Dims axes;
  operand.offset += static_cast<size_t>(extent_of(operand.layout).begin);  // the element with the lowest address
  for (int i = 0; i < operand.layout.ndim(); ++i) {
    if (operand.layout.strides[i] >= 0) continue;
    operand.layout.strides[i] = -operand.layout.strides[i];
    axes.push_back(i);
  }
  const std::string forwards = read(call, operand);
  const auto filled = [&](int64_t number) { return model_.add_sizes(Dims::filled(axes.size(), number)); };
  const std::string before_first = filled(std::numeric_limits<int64_t>::min());
  return model_.add(call, "Slice", {forwards, filled(-1), before_first, model_.add_sizes(axes), filled(-1)});
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
  if (parts.size() > 1) concatenate(call, operand, parts);
  if (parts.size() > 1 || !is_dense(regions[parts[0]].layout) || wanted.offset < regions[parts[0]].offset ||
      end_of(wanted) > end_of(regions[parts[0]]))
    join(call, operand, parts);
  return regions[parts[0]];
}

/// If the parts are adjacent slices of an array along one axis, joins them into one value with a Concat node.
void Values::concatenate(const Call* call, const Operand& operand, std::vector<size_t>& parts) {
  std::vector<Region>& regions = regions_[static_cast<size_t>(operand.buffer)];
  std::ranges::sort(parts, {}, [&](size_t part) { return regions[part].offset; });
  Region whole = regions[parts[0]];
  int axis = -1;
  Names values = {whole.value};
  for (size_t i = 1; i < parts.size(); ++i) {
    const Region& part = regions[parts[i]];
    const StridedLayout &x = whole.layout, &y = part.layout;
    const auto distance = (part.offset - whole.offset) / static_cast<int64_t>(size_of(x.dtype));
    const bool fits = x.ndim() == y.ndim() && x.dtype == y.dtype;
    int found = -1;
    for (int a = 0; fits && a < x.ndim() && found < 0; ++a) {
      bool others_agree = distance == x.shape[a] * x.strides[a];
      for (int other = 0; other < x.ndim(); ++other) {
        if (other == a) continue;
        others_agree &= x.shape[other] == y.shape[other];
        if (x.shape[other] > 1) others_agree &= x.strides[other] == y.strides[other];
      }
      if (others_agree) found = a;
    }
    if (found < 0 || (axis >= 0 && found != axis) || part.value.empty() || whole.value.empty()) return;
    axis = found;
    whole.layout.shape[axis] += y.shape[axis];
    values.push_back(part.value);
  }
  whole.value = model_.add(call, "Concat", values, {{"axis", axis}}), whole.filled_with.clear();
  replace_parts(regions, parts, std::move(whole));
}

/// Joins parts of an array that the pass created into one value: inserts each part into a row of zeros. Elements that
/// no call has written are then 0.
void Values::join(const Call* call, const Operand& operand, std::vector<size_t>& parts) {
  const auto buffer = static_cast<size_t>(operand.buffer);
  std::vector<Region>& regions = regions_[buffer];
  if (buffers_[buffer].external) fail(call, operand, "of which only a part is known");
  Region whole = region_of(operand);
  int64_t end = end_of(whole);
  for (size_t part : parts)
    whole.offset = std::min(whole.offset, regions[part].offset), end = std::max(end, end_of(regions[part]));
  const int64_t count = (end - whole.offset) / static_cast<int64_t>(size_of(whole.layout.dtype));
  whole.layout.shape = {count}, whole.layout.strides = {1};
  whole.filled_with = model_.add_constant(ops::zeros({}, whole.layout.dtype));
  whole.value = model_.add(call, "Expand", {whole.filled_with, model_.add_sizes(count)});
  for (size_t part : parts) {
    Operand place = operand;
    place.offset = static_cast<size_t>(regions[part].offset), place.layout = regions[part].layout;
    const Call* const writer = regions[part].call;
    whole = with_part(writer, whole, place, regions[part].value);
  }
  replace_parts(regions, parts, std::move(whole));
}

/// Adds a region for a buffer from before the pass to which define() gave no value. Its value is a constant of the
/// model with the buffer's elements.
Region& Values::external(const Call* call, const Operand& operand) {
  const auto at = static_cast<size_t>(operand.buffer);
  const Buffer& buffer = buffers_[at];
  if (!buffer.external || !regions_[at].empty()) fail(call, operand, "that no call has written");
  const auto count = static_cast<int64_t>(buffer.bytes / size_of(operand.layout.dtype));
  Array copy = Array::empty({count}, operand.layout.dtype);
  std::copy_n(buffer.memory, copy.nbytes(), static_cast<char*>(copy.data()));
  return regions_[at].emplace_back(Region{0, StridedLayout(copy), model_.add_constant(copy), nullptr});
}

}  // namespace gradus::graph::onnx
