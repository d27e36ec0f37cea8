// Which kernels normalise, forward and backward, and compute softmax; how their sums are cut.
#include <gradus/backends/cuda/norm/select.h>

#include <algorithm>
#include <bit>
#include <optional>

namespace gradus::cuda_detail {
namespace {

DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

bool has_strides(const StridedLayout& view, const Strides& expected) {
  for (int i = 0; i < view.ndim(); ++i)
    if (view.shape[i] != 1 && view.strides[i] != expected[i]) return false;
  return true;
}
bool is_aligned(const void* data, size_t bytes) { return reinterpret_cast<uintptr_t>(data) % bytes == 0; }

/// Statistics, and the sums for weight and bias, are dense arrays of the type that is computed in.
bool is_dense_wide(const StridedLayout& view, DType of) { return view.dtype == wide_type(of) && is_contiguous(view); }

// ---- Rows ----
/// x as contiguous rows of the last axes, of which one has the shape `row`; nothing where it is none.
std::optional<RowTiling> rows_of(const View& x, uint32_t axes, const Shape& row) {
  const uint32_t others = ~axes & ((1u << x.ndim()) - 1);
  if (axes == 0 || (others & (others + 1)) != 0 || !is_contiguous(x)) return {};  // the others are not the first ones
  const int64_t size = numel_of(row);
  return RowTiling{.rows = static_cast<uint32_t>(x.numel() / size), .size = static_cast<uint32_t>(size)};
}

/// True when a parameter that is broadcast to x's shape is one row, the same for all, or none.
bool is_one_row(const View& parameter, const Shape& row) {
  Strides expected = contiguous_strides(row);
  for (int i = 0; i < row.size(); ++i)
    if (row[i] == 1) expected[i] = 0;
  return !parameter || has_strides(parameter, expected);
}

/// A team keeps a row in at most `vectors` vectors of 16 bytes or `singles` elements of each thread. False where it is
/// too long.
bool cut_rows(RowTiling& tiling, DType dtype, std::initializer_list<const void*> arrays, int64_t vectors,
              int64_t singles) {
  const int64_t width = 16 / static_cast<int64_t>(size_of(dtype));
  tiling.vectorized = tiling.size % width == 0;
  for (const void* array : arrays) tiling.vectorized = tiling.vectorized && is_aligned(array, 16);
  const int64_t threads = ceil_div(tiling.size, tiling.vectorized ? vectors * width : singles);
  if (threads > 512) return false;
  tiling.threads = std::max(std::bit_ceil(static_cast<uint32_t>(threads)), 32u);
  tiling.teams = tiling.threads == 32 ? kThreads / 32 : 1;
  tiling.blocks = static_cast<uint32_t>(ceil_div(tiling.rows, tiling.teams));
  return true;
}

// ---- Channels ----
enum class ChannelOrder : uint8_t { other, nchw, nhwc };

/// The order of a dense array, where channels (axis 1) are walked in vectors of four elements, of one channel or four.
ChannelOrder channel_order(const View& view) {
  const int n = view.ndim();
  if (n < 2 || !is_aligned(view.data, 4 * size_of(view.dtype))) return ChannelOrder::other;
  int64_t plane = 1;
  for (int i = 2; i < n; ++i) plane *= view.shape[i];
  const bool contiguous = is_contiguous(view);
  if (contiguous && plane % 4 == 0) return ChannelOrder::nchw;
  const bool nhwc = n == 4 ? has_strides(view, channels_last_strides(view.shape)) : contiguous && plane == 1;
  return nhwc && view.shape[1] % 4 == 0 ? ChannelOrder::nhwc : ChannelOrder::other;
}

/// True when the axes are all but that of the channels, and the parameter (null: none) is broadcast along them.
bool is_by_channel(const View& x, uint32_t axes, const View& parameter) {
  bool result = x.ndim() >= 2 && axes == (((1u << x.ndim()) - 1) & ~2u);
  for (int i = 0; parameter && i < x.ndim(); ++i)
    result = result && (i == 1 || x.shape[i] == 1 || parameter.strides[i] == 0);
  return result;
}

/// NHWC: the fewer channels a group of blocks has, the fewer parts each of them joins; but 32 of them are 64 bytes or
/// more at a place, and where pixels are few wider groups keep all threads busy.
ChannelTiling cut_channels(const View& x, bool nhwc, bool takes_sums, const DeviceProperties& device) {
  constexpr uint32_t threads = kChannelThreads, most_of_cluster = 8;  // that every device with clusters has
  ChannelTiling tiling;
  tiling.nhwc = nhwc, tiling.channels = static_cast<uint32_t>(x.shape[1]);
  int64_t plane = 1;
  for (int i = 2; i < x.ndim(); ++i) plane *= x.shape[i];
  tiling.vectors = Divisor((nhwc ? x.shape[1] : plane) / 4);
  tiling.count = static_cast<uint32_t>(x.shape[0] * (nhwc ? plane : plane / 4));
  const uint32_t count = tiling.count, vectors = tiling.vectors.divisor;
  uint32_t outputs = nhwc ? std::min(std::bit_ceil(vectors), count <= threads ? 4u : 8u) : 1;
  while (nhwc && outputs < 32 && outputs < vectors && threads / outputs > count) outputs *= 2;
  tiling.outputs_log2 = std::countr_zero(outputs), tiling.lanes_log2 = std::countr_zero(threads / outputs);
  const uint32_t cluster =
      std::bit_ceil(static_cast<uint32_t>(ceil_div(tiling.of_thread(count), ChannelTiling::kResident)));
  tiling.resident = cluster <= (nhwc && device.clusters ? most_of_cluster : 1);
  const int64_t blocks = (x.dtype == DType::f64 ? 1 : 2) * device.multiprocessors;  // by their registers
  const int64_t wanted =
      tiling.resident ? cluster
                      : std::clamp<int64_t>(blocks / tiling.groups(), 1, std::max(count >> tiling.lanes_log2, 1u));
  tiling.per_split = static_cast<uint32_t>(ceil_div(count, wanted));
  tiling.splits = static_cast<uint32_t>(ceil_div(count, tiling.per_split));
  tiling.resident = tiling.resident && takes_sums;
  return tiling;
}

/// The cut of images of one layout (null data: not there); nothing where there is none.
std::optional<ChannelTiling> channels_of(const View& x, std::initializer_list<View> others, bool takes_sums,
                                         const DeviceProperties& device) {
  const ChannelOrder order = channel_order(x);
  bool alike = order != ChannelOrder::other;
  for (const View& other : others) alike = alike && (!other.data || channel_order(other) == order);
  if (!alike) return {};
  return cut_channels(x, order == ChannelOrder::nhwc, takes_sums, device);
}

// ---- Strided ----
/// True when the first `dense` views of the loop, of aligned data, are walked in vectors of four.
bool has_vectors(const StridedLoop<5>& loop, int dense, std::initializer_list<View> views) {
  const int last = loop.ndim - 1;
  bool result = last >= 0 && loop.shape[last] % 4 == 0;
  for (const View& view : views) result = result && is_aligned(view.data, 4 * size_of(view.dtype));
  for (int k = 0; result && k < dense; ++k)
    for (int axis = 0; axis <= last; ++axis)
      result = result && (axis < last ? loop.strides[k][axis] % 4 == 0 : loop.strides[k][axis] == 1);
  return result;
}

/// Sums of x over `axes`, a split's result taking `bytes` of the workspace.
ReducePlan cut_sums(const View& x, uint32_t axes, size_t bytes, const DeviceProperties& device, size_t& workspace) {
  const StridedLoop<1> outer(with_ones(x.shape, axes), {&x.strides});
  const StridedLoop<1> inner(with_ones(x.shape, axes, true), {&x.strides});
  const ReducePlan plan(outer, inner, device.multiprocessors);
  if (plan.splits > 1) workspace = std::max(workspace, bytes * plan.splits * static_cast<size_t>(outer.numel));
  return plan;
}

}  // namespace

bool is_contiguous(const StridedLayout& view) { return has_strides(view, contiguous_strides(view.shape)); }

bool is_kept_dense(const RunningStatistics& running, DType dtype) {
  const auto serves = [&](const MutableView& view) { return !view.data || is_dense_wide(view, dtype); };
  return serves(running.mean) && serves(running.variance);
}

const char* NormPlan::name() const {
  switch (algorithm) {
    case NormAlgorithm::composite: return "composite";
    case NormAlgorithm::rows: return "rows";
    case NormAlgorithm::channels: return channels.resident ? "channels_resident" : "channels_split";
    default: return "strided";
  }
}

Strides broadcast_strides(const StridedLayout& view) {
  Strides strides = view.strides;
  for (int i = 0; i < view.ndim(); ++i)
    if (view.shape[i] == 1) strides[i] = 0;
  return strides;
}

Shape with_ones(Shape shape, uint32_t axes, bool at_the_others) {
  for (int i = 0; i < shape.size(); ++i)
    if ((axes >> i & 1) != static_cast<uint32_t>(at_the_others)) shape[i] = 1;
  return shape;
}

uint32_t axes_of_size_one(const Shape& shape) {
  uint32_t axes = 0;
  for (int i = 0; i < shape.size(); ++i) axes |= static_cast<uint32_t>(shape[i] == 1) << i;
  return axes;
}

StridedLoop<5> elements_of(const NormalizeArgs& p) {
  const Strides statistics = broadcast_strides(p.mean), zero = Dims::filled(p.x.ndim(), 0);
  return StridedLoop<5>(p.x.shape, {&p.y.strides, &p.x.strides, &statistics, p.weight ? &p.weight.strides : &zero,
                                    p.bias ? &p.bias.strides : &zero});
}
StridedLoop<5> elements_of(const NormalizeBackwardArgs& p) {
  const Strides statistics = broadcast_strides(p.mean), zero = Dims::filled(p.x.ndim(), 0);
  return StridedLoop<5>(p.x.shape, {p.dx ? &p.dx.strides : &p.x.strides, &p.dy.strides, &p.x.strides, &statistics,
                                    p.weight ? &p.weight.strides : &zero});
}

NormPlan select(const NormalizeArgs& p, const DeviceProperties& device) {
  const View &x = p.x, y = p.y;
  NormPlan plan;
  if (x.numel() == 0 || x.numel() > kMaxChunk || !is_dense_wide(p.mean, x.dtype) || !is_dense_wide(p.variance, x.dtype))
    return plan;
  const size_t wide = size_of(wide_type(x.dtype));
  const bool alone = !p.relu && !p.running;
  const Shape row = with_ones(x.shape, p.axes, true);
  if (auto rows = rows_of(x, p.axes, row);
      rows && alone && !p.fixed_statistics && is_contiguous(y) && is_one_row(p.weight, row) &&
      is_one_row(p.bias, row) && cut_rows(*rows, x.dtype, {x.data, y.data, p.weight.data, p.bias.data}, 4, 8)) {
    plan.algorithm = NormAlgorithm::rows, plan.rows = *rows;
    return plan;
  }
  if (is_by_channel(x, p.axes, p.weight) && is_by_channel(x, p.axes, p.bias) && is_kept_dense(p.running, x.dtype))
    if (const auto channels = channels_of(x, {y, p.residual}, !p.fixed_statistics, device)) {
      plan.algorithm = NormAlgorithm::channels, plan.channels = *channels;
      plan.workspace_bytes = !p.fixed_statistics && !channels->resident ? 2 * wide * channels->sums() : 0;
      return plan;
    }
  if (!alone) return plan;
  plan.algorithm = NormAlgorithm::strided;
  if (!p.fixed_statistics) plan.statistics = cut_sums(x, p.axes, 3 * wide, device, plan.workspace_bytes);
  plan.vectorized = has_vectors(elements_of(p), 2, {x, y});
  return plan;
}

NormPlan select(const NormalizeBackwardArgs& p, const DeviceProperties& device) {
  const View &x = p.x, &dy = p.dy, dx = p.dx;
  const MutableView& parameter = p.dweight ? p.dweight : p.dbias;
  NormPlan plan;
  bool fits = x.numel() > 0 && x.numel() <= kMaxChunk;
  for (const View& dense : std::initializer_list<View>{p.mean, p.variance, p.dweight, p.dbias})
    fits = fits && (!dense.data || is_dense_wide(dense, x.dtype));
  if (!fits || (p.dweight && p.dbias && !(p.dweight.shape == p.dbias.shape))) return plan;
  const size_t pair = 2 * size_of(wide_type(x.dtype));
  const bool needs_sums = dx.data && !p.fixed_statistics;
  const Shape row = with_ones(x.shape, p.axes, true);
  if (auto rows = rows_of(x, p.axes, row); rows && needs_sums && !p.y && is_contiguous(dy) && is_contiguous(dx) &&
                                           is_one_row(p.weight, row) && (!parameter || parameter.shape == row) &&
                                           cut_rows(*rows, x.dtype, {x.data, dy.data, dx.data, p.weight.data},
                                                    static_cast<int64_t>(size_of(x.dtype)) / 2, 4)) {
    // As many teams as are in flight at once, but two rows or more for each block: its columns' sums are to be joined.
    const int64_t in_flight = int64_t{1024} * device.multiprocessors / rows->threads;
    const int64_t wanted = rows->teams > 1 ? rows->rows : rows->rows / 2;
    rows->blocks = static_cast<uint32_t>(ceil_div(std::clamp<int64_t>(wanted, 1, in_flight), rows->teams));
    plan.algorithm = NormAlgorithm::rows, plan.rows = *rows;
    if (parameter) plan.workspace_bytes = pair * rows->blocks * rows->size;
    return plan;
  }
  if (is_by_channel(x, p.axes, p.weight) && (!parameter || parameter.shape == p.mean.shape)) {
    plan.takes_sums = needs_sums || parameter.data || p.dresidual.data;
    if (const auto channels = channels_of(x, {dy, p.y, dx, p.dresidual}, plan.takes_sums, device)) {
      plan.algorithm = NormAlgorithm::channels, plan.channels = *channels;
      plan.workspace_bytes = plan.takes_sums && !channels->resident ? pair * channels->sums() : 0;
      return plan;
    }
  }
  if (p.y) return plan;
  plan.algorithm = NormAlgorithm::strided;
  const uint32_t axes = axes_of_size_one(p.mean.shape);
  const uint32_t parameter_axes = parameter ? axes_of_size_one(parameter.shape) : 0;
  plan.takes_sums = needs_sums;
  plan.shared_sums = parameter.data && needs_sums && parameter_axes == axes;
  size_t parts = 0;
  if (needs_sums) plan.statistics = cut_sums(dy, axes, pair, device, parts);
  if (parameter && !plan.shared_sums) plan.parameters = cut_sums(dy, parameter_axes, pair, device, parts);
  if (needs_sums && !(plan.shared_sums && p.dweight && p.dbias))
    plan.sums_bytes = pair * static_cast<size_t>(p.mean.numel());
  plan.workspace_bytes = plan.sums_bytes + parts;
  plan.vectorized = has_vectors(elements_of(p), 3, {x, dy, dx});
  return plan;
}

SoftmaxPlan select_softmax(std::initializer_list<View> operands, int axis, const DeviceProperties& device) {
  const View& first = *operands.begin();
  const int64_t size = first.ndim() ? first.shape[axis] : 1, rows = first.numel() / std::max<int64_t>(size, 1);
  if (size > kWarpRow)
    return {.threads = row_threads(size),
            .blocks = static_cast<uint32_t>(std::clamp<int64_t>(rows, 1, 32 * device.multiprocessors))};
  SoftmaxPlan plan{.in_registers = true, .lanes = 128, .values = 8, .vectorized = size % 4 == 0 && size > 16};
  if (size <= 16) plan.lanes = 8, plan.values = 2;
  else if (size <= 64) plan.lanes = 16, plan.values = 4;
  else if (size <= 256) plan.lanes = 32;
  for (const View& operand : operands) {
    plan.vectorized = plan.vectorized && is_aligned(operand.data, 4 * size_of(operand.dtype));
    for (int i = 0; i < operand.ndim(); ++i)
      plan.vectorized = plan.vectorized &&
                        (i == axis ? operand.strides[i] == 1 : operand.shape[i] == 1 || operand.strides[i] % 4 == 0);
  }
  plan.threads = plan.lanes > 32 ? plan.lanes : kThreads;
  plan.blocks = static_cast<uint32_t>(ceil_div(rows, plan.threads / plan.lanes));
  return plan;
}

}  // namespace gradus::cuda_detail
