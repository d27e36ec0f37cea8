// Chooses the kernels for normalisation, its gradients and softmax, and plans their sums.
#include <gradus/backends/cuda/norm/select.h>

#include <algorithm>
#include <bit>
#include <numeric>

namespace gradus::cuda_detail {
namespace {

/// The size of a Sums<compute_t<T>> in bytes, where T is the type of x.
size_t pair_bytes(const View& x) { return x.dtype == DType::f64 ? 16 : 8; }

DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

bool is_contiguous(const StridedLayout& view) { return has_strides(view, contiguous_strides(view.shape)); }
int64_t plane_of(const StridedLayout& x) {
  int64_t plane = 1;
  for (int i = 2; i < x.ndim(); ++i) plane *= x.shape[i];
  return plane;
}
uint32_t other_axes(const View& x, uint32_t axes) { return ~axes & ((1u << x.ndim()) - 1); }
bool is_aligned(const void* data, size_t bytes) { return reinterpret_cast<uintptr_t>(data) % bytes == 0; }

/// Returns true if the view is a dense array of the type in which elements of type `of` are computed. Statistics and
/// the gradients of weight and bias must be such arrays.
bool is_dense_wide(const StridedLayout& view, DType of) { return view.dtype == wide_type(of) && is_contiguous(view); }

/// Returns true if the kernels for x of type `dtype` can update these running statistics.
bool is_kept_dense(const RunningStatistics& running, DType dtype) {
  const auto serves = [&](const MutableView& view) { return !view.data || is_dense_wide(view, dtype); };
  return serves(running.mean) && serves(running.variance);
}

/// Plans the kernels for rows. They need reduced axes that are the last ones, `images` whose rows are contiguous, and
/// `parameters` (null: absent) that vary alike, as RowTiling describes. Each thread of a team keeps at most `vectors`
/// vectors of 16 bytes, or `singles` single elements, of a row, or twice as many. Returns false if these conditions are
/// not met, or if a row needs more than 512 threads.
bool plan_rows(NormPlan& plan, uint32_t axes, std::initializer_list<View> images,
               std::initializer_list<View> parameters, int64_t vectors, int64_t singles) {
  const View& x = *images.begin();
  const uint32_t others = other_axes(x, axes);
  if (axes == 0 || (others & (others + 1)) != 0) return false;  // the other axes are not the first ones
  const int first = std::popcount(others);                      // the first axis of a row
  Strides expected = contiguous_strides(reduced_shape(x.shape, others, true));
  int64_t size = 1, plane = 1, groups = 1;
  for (int i = first; i < x.ndim(); ++i) size *= x.shape[i];
  const int64_t width = 16 / static_cast<int64_t>(size_of(x.dtype));
  bool fits = true, vectorized = size % width == 0;
  for (const View& image : images) {
    vectorized &= is_aligned(image.data, 16);
    for (int i = 0; i < x.ndim(); ++i) {
      if (x.shape[i] == 1) continue;
      if (i < first) vectorized &= image.strides[i] % width == 0;
      else fits &= image.strides[i] == expected[i];
    }
  }
  for (const View& parameter : parameters)
    if (parameter && plane * groups == 1) {
      for (int i = x.ndim(); i-- > first && (x.shape[i] == 1 || parameter.strides[i] == 0);) plane *= x.shape[i];
      if (first > 0 && parameter.strides[first - 1] != 0) groups = x.shape[first - 1];
    }
  for (int i = 0; i < x.ndim(); ++i)
    expected[i] = i + 1 == first && groups > 1 ? size / plane : i < first ? 0 : expected[i] / plane;
  for (const View& parameter : parameters)
    fits = fits && (!parameter || has_strides(parameter, expected)), vectorized &= is_aligned(parameter.data, 16);
  vectorized = vectorized && (plane == 1 || plane % width == 0);
  int64_t threads = ceil_div(size, vectorized ? vectors * width : singles);
  const bool twice = threads > 512 && x.dtype != DType::f64;  // a float64 element takes two registers
  if (twice) threads = ceil_div(threads, int64_t{2});
  if (!fits || threads > 512) return false;
  plan.algorithm = NormAlgorithm::rows;
  RowTiling& rows = plan.rows;
  rows.rows = u32(x.numel() / size), rows.size = u32(size), rows.vectorized = vectorized, rows.twice = twice;
  rows.groups = Divisor(groups), rows.plane = Divisor(plane);
  rows.threads = std::max(std::bit_ceil(u32(threads)), 32u);
  rows.teams = rows.threads == 32 ? kThreads / 32 : 1;
  rows.blocks = ceil_div(rows.rows, rows.teams);
  return true;
}

// ---- Channels ----
/// Divides images into channels and splits. For NHWC, the number of channels of a block is a compromise: with fewer
/// channels in a block, fewer splits fill the device, and fewer partial sums have to be added. But a block should read
/// about 32 channels, which are at least 64 adjacent bytes; and if there are few pixels, only blocks with more channels
/// keep all their threads busy.
ChannelTiling cut_channels(const View& x, bool nhwc, uint32_t vec, bool takes_sums, const DeviceProperties& device) {
  constexpr uint32_t threads = kChannelThreads, most_of_cluster = 8;  // blocks; all devices with clusters support 8
  ChannelTiling tiling;
  tiling.nhwc = nhwc, tiling.vec = vec, tiling.channels = u32(x.shape[1]);
  const int64_t plane = plane_of(x);
  tiling.vectors = Divisor((nhwc ? x.shape[1] : plane) / vec);
  tiling.count = u32(x.shape[0] * (nhwc ? plane : plane / vec));
  const uint32_t count = tiling.count, vectors = tiling.vectors.divisor;
  uint32_t outputs = nhwc ? std::min(std::bit_ceil(vectors), count <= threads ? 4u : 8u) : 1;
  while (nhwc && outputs < 32 && outputs < vectors && threads / outputs > count) outputs *= 2;
  tiling.outputs_log2 = std::countr_zero(outputs), tiling.lanes_log2 = std::countr_zero(threads / outputs);
  const uint32_t cluster = std::bit_ceil(u32(ceil_div(tiling.of_thread(count), ChannelTiling::kResident)));
  tiling.resident = cluster <= (nhwc && device.has_clusters() ? most_of_cluster : 1);
  const int64_t blocks = (x.dtype == DType::f64 ? 1 : 2) * device.multiprocessors;  // resident at once
  const int64_t wanted =
      tiling.resident ? cluster
                      : std::clamp<int64_t>(blocks / tiling.groups(), 1, std::max(count >> tiling.lanes_log2, 1u));
  tiling.per_split = u32(ceil_div(count, wanted));
  tiling.splits = u32(ceil_div(count, tiling.per_split));
  tiling.resident = tiling.resident && takes_sums;
  return tiling;
}

/// The number of elements from pixel to pixel if x is a slice of the channels of NHWC images, otherwise 0.
uint32_t slice_pitch(const View& x) {
  if (x.ndim() != 4) return 0;
  const int64_t width = x.shape[3], plane = plane_of(x);
  const int64_t pitch = width > 1 ? x.strides[3] : plane > 1 ? x.strides[2] : x.strides[0];
  const bool fits = pitch > x.shape[1] && pitch <= kMaxChunk / (x.shape[0] * plane);
  return fits && has_strides(x, {plane * pitch, 1, width * pitch, pitch}) ? u32(pitch) : 0;
}

/// Plans the kernels for batch norm. They need statistics over all axes except that of the channels, images of one
/// layout (null data: absent), and parameters that depend only on the channel (null: absent). Returns false if these
/// conditions are not met.
bool plan_channels(NormPlan& plan, uint32_t axes, std::initializer_list<View> images,
                   std::initializer_list<View> parameters, bool takes_sums, const DeviceProperties& device) {
  const View& x = *images.begin();
  if (x.ndim() < 2 || other_axes(x, axes) != 2) return false;
  const int64_t plane = plane_of(x);
  const uint32_t pitch = slice_pitch(x);
  bool nchw = !pitch, nhwc = x.shape[1] % 4 == 0, aligned = true;
  for (const View& image : images) {
    if (!image.data || (pitch && &image == &x)) continue;
    nchw = nchw && is_contiguous(image);
    nhwc = nhwc && (x.ndim() == 4 ? has_strides(image, channels_last_strides(x.shape)) : plane == 1 && nchw);
    aligned = aligned && is_aligned(image.data, 4 * size_of(image.dtype));
  }
  const bool vectorized = nchw && plane % 4 == 0 && aligned;
  nhwc = nhwc && aligned && !vectorized;
  bool fits = nchw || nhwc;
  for (const View& parameter : parameters)
    for (int i = 0; parameter && i < x.ndim(); ++i)
      fits = fits && (i == 1 || x.shape[i] == 1 || parameter.strides[i] == 0);
  if (!fits) return false;
  plan.algorithm = NormAlgorithm::channels;
  plan.channels = cut_channels(x, nhwc, nhwc || vectorized ? 4 : 1, takes_sums, device);
  plan.channels.pitch = pitch;
  if (takes_sums && !plan.channels.resident) plan.workspace_bytes = pair_bytes(x) * plan.channels.sums();
  return true;
}

}  // namespace

bool has_strides(const StridedLayout& view, const Strides& expected) {
  for (int i = 0; i < view.ndim(); ++i)
    if (view.shape[i] != 1 && view.strides[i] != expected[i]) return false;
  return true;
}

const char* NormPlan::name() const {
  switch (algorithm) {
    case NormAlgorithm::composite: return "composite";
    case NormAlgorithm::rows: return "rows";
    default: return channels.resident ? "channels_resident" : "channels_split";
  }
}

NormPlan select(const NormalizeArgs& p, const DeviceProperties& device) {
  const View &x = p.x, y = p.y;
  NormPlan plan;
  if (x.numel() == 0 || x.numel() > kMaxChunk || !is_dense_wide(p.mean, x.dtype) || !is_dense_wide(p.variance, x.dtype))
    return plan;
  const bool alone = !p.relu && !p.running, takes_sums = !p.fixed_statistics;
  if (alone && takes_sums && plan_rows(plan, p.axes, {x, y}, {p.weight, p.bias}, 4, 8)) return plan;
  if (is_kept_dense(p.running, x.dtype))
    plan_channels(plan, p.axes, {x, y, p.residual}, {p.weight, p.bias}, takes_sums, device);
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
  const bool needs_sums = dx.data && !p.fixed_statistics;
  const auto vectors = static_cast<int64_t>(size_of(x.dtype)) / 2;
  View broadcast = parameter;  // to the shape of x
  for (int i = 0; i < broadcast.ndim(); ++i)
    if (parameter.shape[i] == 1) broadcast.strides[i] = 0;
  if (needs_sums && !p.y && plan_rows(plan, p.axes, {x, dy, dx}, {p.weight, broadcast}, vectors, 4)) {
    // A team is the threads that share a row. Launches as many blocks as the device runs at once, assuming 1,024
    // threads per multiprocessor, but gives each block at least two rows: a later kernel adds the column sums of all
    // teams, so fewer teams leave it less work. All rows of a team have the same parameters.
    RowTiling& rows = plan.rows;
    const int64_t in_flight = int64_t{1024} * device.multiprocessors / rows.threads;
    const int64_t wanted = rows.teams > 1 ? rows.rows : rows.rows / 2;
    rows.blocks = u32(ceil_div(std::clamp<int64_t>(wanted, 1, in_flight), rows.teams));
    const uint32_t together = rows.groups.divisor / std::gcd(rows.groups.divisor, rows.teams);
    rows.blocks = ceil_div(rows.blocks, together) * together;
    if (parameter) plan.workspace_bytes = pair_bytes(x) * rows.blocks * rows.teams * rows.size;
    return plan;
  }
  if (!parameter || parameter.shape == p.mean.shape)
    plan_channels(plan, p.axes, {x, dy, p.y, p.addend, dx, p.dresidual}, {p.weight, p.bias},
                  needs_sums || parameter.data || p.dresidual.data, device);
  // Kernels for a gradient in two parts exist only for dense NHWC, and not for float64.
  if (p.addend && (!plan.channels.nhwc || plan.channels.pitch || x.dtype == DType::f64)) return {};
  return plan;
}

// ---- Softmax: rows in the registers of `lanes` threads, or read twice by a block ----

namespace {

constexpr int64_t kLongestSingle = 1024, kLongestVectorized = 8192;  // longest rows that the kernels support

int64_t element(const SoftmaxProblem& p) { return static_cast<int64_t>(size_of(p.dtype)); }
// The number of elements that one load reads.
int64_t width(const SoftmaxProblem& p) { return p.vectorized ? 16 / element(p) : 1; }

SoftmaxPlan plan_lanes(const SoftmaxProblem& p) {
  SoftmaxPlan plan{.algorithm = &kSoftmaxLanes, .vectorized = p.vectorized && p.size > 16, .lanes = 128, .values = 8};
  if (p.size <= 16) plan.lanes = 8, plan.values = 2;
  else if (p.size <= 64) plan.lanes = 16, plan.values = 4;
  else if (p.size <= 256) plan.lanes = 32;
  else if (p.size > 1024) plan.lanes = p.size <= 4096 ? 256 : 512, plan.values = 16;
  plan.threads = plan.lanes > 32 ? plan.lanes : kThreads;
  plan.blocks = u32(ceil_div(p.rows, int64_t{plan.threads / plan.lanes}));
  return plan;
}

SoftmaxPlan plan_block(const SoftmaxProblem& p) {
  return {.algorithm = &kSoftmaxBlock,
          .threads = row_threads(p.size),
          .blocks = u32(std::clamp<int64_t>(p.rows, 1, 32 * p.device.multiprocessors))};
}

// ---- work ----

enum Part : size_t {
  kRowElements,   // elements that threads compute, including those beyond the ends of rows
  kLoads,         // loads of a thread that follow one another, times the waves of blocks
  kRows,          // rows that a block sums with barriers one after the other, times the waves of blocks
  kOperandBytes,  // bytes of all operands; each byte is counted once
  kAgainBytes,    // bytes that are read a second time
  kSingleLoads,   // accesses to single elements that are neighbours in memory
  kStridedLoads,  // accesses to single elements that are not neighbours in memory
  kBlockWaves,
  kCalls,
};
constexpr WorkParts kParts = {{{"elements", WorkLimit::multiply_adds},
                               {"loads", WorkLimit::calls},
                               {"rows", WorkLimit::calls},
                               {"bytes", WorkLimit::bytes},
                               {"again_bytes", WorkLimit::bytes},
                               {"single_loads", WorkLimit::multiply_adds},
                               {"strided_loads", WorkLimit::multiply_adds},
                               {"waves", WorkLimit::calls},
                               {"launches", WorkLimit::calls}}};

// Counts the work if a block computes `rows` rows one after the other, and a thread makes `loads` loads one after the
// other for each row. `has_barriers`: the threads that share a row need barriers.
KernelWork work_of(const SoftmaxProblem& p, const SoftmaxPlan& plan, int64_t rows, int64_t loads, int64_t row_elements,
                   bool has_barriers) {
  constexpr int64_t kResidentThreads = 2048;  // maximum for a multiprocessor
  const int64_t resident = kResidentThreads / plan.threads * p.device.multiprocessors;
  const auto waves = static_cast<double>(ceil_div(int64_t{plan.blocks}, resident));
  const double bytes = static_cast<double>(p.rows * p.size * element(p)) * (p.backward ? 3 : 2);
  KernelWork work = {};
  work[kRowElements] = static_cast<double>(p.rows * row_elements);
  work[kLoads] = waves * static_cast<double>(rows * loads);
  if (has_barriers) work[kRows] = waves * static_cast<double>(rows);
  work[kOperandBytes] = bytes;
  if (!p.vectorized) work[p.strided ? kStridedLoads : kSingleLoads] = bytes / static_cast<double>(element(p));
  work[kBlockWaves] = waves;
  work[kCalls] = 1;
  return work;
}

KernelWork lanes_work(const SoftmaxProblem& p) {
  const SoftmaxPlan plan = plan_lanes(p);
  return scaled_to(p.device, kParts, work_of(p, plan, 1, 1, plan.lanes * plan.values, plan.lanes > 32));
}

KernelWork block_work(const SoftmaxProblem& p) {
  const SoftmaxPlan plan = plan_block(p);
  const int64_t loads = ceil_div(p.size, plan.threads * width(p));
  KernelWork work = work_of(p, plan, ceil_div(p.rows, int64_t{plan.blocks}), 2 * loads, 2 * p.size, true);
  work[kAgainBytes] = static_cast<double>(p.rows * p.size * element(p)) * (p.backward ? 2 : 1);
  return scaled_to(p.device, kParts, work);
}

}  // namespace

constinit const SoftmaxAlgorithm kSoftmaxLanes = {
    .name = "lanes",
    .reason = "rows fit in registers",
    .parts = kParts,
    .can_run = [](const SoftmaxProblem& p) { return p.size <= (p.vectorized ? kLongestVectorized : kLongestSingle); },
    .work = lanes_work,
    .plan = plan_lanes,
    .launch = {}};

constinit const SoftmaxAlgorithm kSoftmaxBlock = {.name = "block",
                                                  .reason = "long rows",
                                                  .parts = kParts,
                                                  .can_run = [](const SoftmaxProblem&) { return true; },
                                                  .work = block_work,
                                                  .plan = plan_block,
                                                  .launch = {}};

const KernelFamily<SoftmaxAlgorithm>& softmax_family() {
  static const KernelFamily<SoftmaxAlgorithm> family("cuda_softmax",
                                                     {"forward", "backward", "forward_float64", "backward_float64"},
                                                     {&kSoftmaxLanes, &kSoftmaxBlock}, tuned_devices(), tuning_table());
  return family;
}

SoftmaxPlan select(const SoftmaxProblem& problem) {
  thread_local RecentPlans<SoftmaxProblem, SoftmaxPlan> recent;
  return recent.get(problem, hash_of({problem.rows, problem.size, problem.backward}),
                    [&] { return softmax_family().select(problem).algorithm->plan(problem); });
}

}  // namespace gradus::cuda_detail
