// Convolution with few channels, on planes (nchw.h): an output plane is a weighted sum of shifted input planes
// (direct_kernel.h). An output costs its C R S multiply-adds and little else, even with a single channel per group.
//   y, dx   terms of the sum are the taps in a column of the filter, for each channel. A stride splits x into phases;
//           for dx, pixels with equal coordinates mod stride have the same taps and are computed in one pass
//   dw      dot products of dy with the planes that the forward pass reads, in vector lanes; db sums dy
// The unit of work is a band of rows of one group of one image. Everything that needs its planes is computed while they
// are in the cache, so the backward pass reads dy, y and x from memory once.
#include <cmath>
#include <utility>
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/conv2d/nchw.h>

#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {
namespace {

// A sum over planes: the kernel's terms, and the offsets of their weights.
struct Terms {
  std::vector<DirectTerm> terms;
  std::vector<int64_t> weights;
};

// Filters have `kernel_columns` columns; the filters of neighbouring channels are `channel_stride` apart.
Terms terms_of(const PlaneLayout& layout, const WindowAxis& rows, const WindowAxis& columns, int64_t kernel_columns,
               int64_t channel_stride) {
  const auto phase_of = [&](int axis, const WindowAxis::Tap& tap) {  // and the row (column) within the phase
    const int64_t at = tap.at + layout.shift[axis];
    return std::pair(at % layout.split[axis], at / layout.split[axis]);
  };
  std::vector<std::vector<WindowAxis::Tap>> runs;  // taps that read consecutive rows of a phase form one term
  for (int64_t phase = 0; phase < layout.split[0]; ++phase) {
    int64_t next = -1;
    for (const WindowAxis::Tap& tap : rows.taps) {
      const auto [its_phase, row] = phase_of(0, tap);
      if (its_phase != phase) continue;
      if (row != next || runs.back().size() == kDirectReach) runs.emplace_back();
      runs.back().push_back(tap);
      next = row + 1;
    }
  }
  Terms result;
  for (int64_t c = 0; c < layout.channels; ++c)
    for (const std::vector<WindowAxis::Tap>& run : runs)
      for (const WindowAxis::Tap& tap : columns.taps) {
        const auto [row_phase, row] = phase_of(0, run[0]);
        const auto [column_phase, column] = phase_of(1, tap);
        result.terms.push_back(
            {layout.offset(c, row_phase, column_phase, row, column), static_cast<int64_t>(run.size()), row});
        for (const WindowAxis::Tap& r : run)
          result.weights.push_back(c * channel_stride + r.index * kernel_columns + tap.index);
      }
  return result;
}

// Output pixels with the same terms, and the weights of the terms for every output channel.
template <class T>
struct Pass {
  WindowAxis rows, columns;
  Terms terms;
  T* weights;
};

template <class T>
std::vector<Pass<T>> passes_of(const PlaneLayout& layout, const ConvOperands<T>& o, T* weights) {
  std::vector<Pass<T>> passes;
  for (const WindowAxis& rows : o.axes(0))
    for (const WindowAxis& columns : o.axes(1)) {
      passes.push_back({rows, columns, terms_of(layout, rows, columns, o.w.W, o.channel_stride()), weights});
      for (int64_t k = 0; k < o.y.C; ++k) {
        const int64_t filter = k / o.filters() * o.group_stride() + k % o.filters() * o.filter_stride();
        for (int64_t place : passes.back().terms.weights) *weights++ = o.w.data[filter + place];
      }
    }
  return passes;
}

// Rows [first, first + band) of the passes, for the output channels of group g of image n.
template <class T>
struct Band {
  const ConvOperands<T>& o;
  const PlaneLayout& layout;
  const T* planes;
  int64_t first, band, n, g;
  const Kernels<T>& kernels = o.kernels();
  const int64_t count = o.filters();

  /// Runs `column_passes` passes, which compute the same rows but different columns. Columns that are not contiguous in
  /// y are computed in `sums` and then copied.
  void run(const Pass<T>* pass, size_t column_passes, T* sums) const {
    const Images<T> y = o.y.from_channel(g * count);
    const int64_t height = rows(*pass), h_step = y.h_stride * pass->rows.out_step;
    if (height <= 0) return;
    T* out = y.data + n * y.n_stride + pass->rows.out_begin * y.h_stride + first * h_step;
    for (const Pass<T>* last = pass + column_passes; pass < last; ++pass) {
      const int64_t width = pass->columns.size, w_step = y.w_stride * pass->columns.out_step;
      T* columns = out + pass->columns.out_begin * y.w_stride;
      if (w_step == 1 || width == 1) {
        compute(*pass, columns, y.c_stride, h_step);
        continue;
      }
      const int64_t sum_pitch = round_up(width, kernels.vector_size), size = height * sum_pitch;
      compute(*pass, sums, size, sum_pitch);
      for (int64_t i = 0; i < height; ++i) {
        if (y.c_stride == 1 && count > 1) {
          kernels.transpose({sums + i * sum_pitch, size, count, width, columns + i * h_step, w_step});
          continue;
        }
        for (int64_t k = 0; k < count; ++k)
          for (int64_t q = 0; q < width; ++q)
            columns[k * y.c_stride + i * h_step + q * w_step] = sums[k * size + i * sum_pitch + q];
      }
    }
  }

 private:
  void compute(const Pass<T>& pass, T* out, int64_t out_step, int64_t out_pitch) const {
    const auto weight_count = static_cast<int64_t>(pass.terms.weights.size());
    kernels.direct({.filters = count,
                    .rows = rows(pass),
                    .columns = pass.columns.size,
                    .planes = planes,
                    .pitch = layout.pitch,
                    .rows_begin = layout.first_inside() - first,
                    .rows_end = layout.last_inside(o.x.H) + 1 - first,
                    .terms = pass.terms.terms.data(),
                    .term_count = static_cast<int64_t>(pass.terms.terms.size()),
                    .weights = pass.weights + g * count * weight_count,
                    .weight_count = weight_count,
                    .bias = o.bias ? o.bias + g * count : nullptr,
                    .relu = o.relu,
                    .out = out,
                    .out_step = out_step,
                    .out_pitch = out_pitch});
  }
  int64_t rows(const Pass<T>& pass) const { return std::min(band, pass.rows.size - first); }
};

// Forward, or all wanted gradients in one pass, which reads dy from memory once.
template <class T>
void run(const DirectTiles& t, const ConvOperands<T>& o) {
  const Kernels<T>& kernels = o.kernels();
  const int64_t groups = o.geometry.groups, channels = o.channels();
  const Scratch<T> gathered(t.weights_size);
  const std::vector<Pass<T>> passes = o.y.data ? passes_of(t.in, o, gathered.get()) : std::vector<Pass<T>>();
  const size_t column_passes = o.axes(1).size();
  const bool has_dw = o.dw.data != nullptr;
  const auto along = [&](int axis) {
    return conv_axes(false, o.geometry, axis, o.x.size(axis), o.y.size(axis), o.w.size(axis))[0];
  };
  const Terms terms = has_dw ? terms_of(t.x, along(0), along(1), o.w.W, o.w.H * o.w.W) : Terms();
  const auto taps = static_cast<int64_t>(terms.weights.size());
  const int64_t plane = t.in.channel_stride();

  // Each group and each part of the items has its own sums; a part's dw is followed by its db.
  const int64_t weights = o.x.C * taps, part_size = weights + o.x.C;
  const Scratch<T> partial(t.partial_size);
  const int64_t size = t.in_size + t.x_size + t.sums_size + t.vectors_size;
  parallel_each<T>(t.parts * groups, t.grain, size, [&](int64_t unit, T* planes) {
    T *const x_planes = planes + t.in_size, *const sums = x_planes + t.x_size, *const vectors = sums + t.sums_size;
    const int64_t part = unit / groups, g = unit % groups;
    T* dbias = has_dw ? partial.get() + part * part_size + weights + g * channels : nullptr;
    std::fill_n(vectors, t.vectors_size, T(0));
    if (has_dw) std::fill_n(dbias, channels, T(0));
    for (int64_t item = part * t.items_in_part; item < std::min(t.items, (part + 1) * t.items_in_part); ++item) {
      const int64_t n = item / t.bands, first = item % t.bands * t.band;
      fill_planes(kernels, t.in, o.x.from_channel(g * channels), n, first,
                  o.mask ? o.mask + g * channels * o.x.c_stride : nullptr, planes);
      const Band<T> unit{o, t.in, planes, first, t.band, n, g};
      for (size_t i = 0; i < passes.size(); i += column_passes) unit.run(&passes[i], column_passes, sums);
      const int64_t height = std::min(t.band, o.x.H - first);
      if (!has_dw || height <= 0) continue;
      fill_planes<T>(kernels, t.x, o.image.from_channel(g * o.w.C), n, first, nullptr, x_planes);
      const T* rows = planes + t.in.shift[0] * t.in.pitch;
      for (int64_t k = 0; o.dbias && k < channels; ++k) dbias[k] += kernels.sum(rows + k * plane, height * t.in.pitch);
      kernels.direct_sums({.filters = channels,
                           .rows = height,
                           .columns = o.x.W,
                           .g = rows + t.in.shift[1],
                           .g_step = plane,
                           .g_pitch = t.in.pitch,
                           .planes = x_planes,
                           .pitch = t.x.pitch,
                           .terms = terms.terms.data(),
                           .term_count = static_cast<int64_t>(terms.terms.size()),
                           .sums = vectors,
                           .sums_step = taps});
    }
    if (has_dw) kernels.sum_lanes(vectors, channels * taps, partial.get() + part * part_size + g * channels * taps);
  });
  if (!has_dw) return;
  for (int64_t part = 1; part < t.parts; ++part)
    for (int64_t i = 0; i < part_size; ++i) partial[i] += partial[part * part_size + i];
  for (int64_t k = 0; k < o.x.C; ++k) {
    T* const dw = o.dw.data + k * taps;
    for (size_t i = 0; i < terms.weights.size(); ++i)
      dw[terms.weights[i]] = partial[k * taps + static_cast<int64_t>(i)];
    if (o.dbias) o.dbias[k] = partial[weights + k];
  }
}

// Number of rows of `total` in a band: at most `fit`, with bands of nearly equal height.
int64_t band_of(int64_t total, int64_t fit) {
  const int64_t most = std::max<int64_t>(1, std::min(total, fit));
  return std::max<int64_t>(1, ceil_div(total, std::max<int64_t>(1, ceil_div(total, most))));
}

ConvPlan plan_direct(const ConvProblem& p) {
  constexpr int64_t kChunkWork = int64_t{1} << 17;  // minimum multiply-adds of a parallel chunk
  constexpr int64_t kChunksWanted = 32;
  // A band has as many rows as fit in these bytes, so that they stay in a cache while each filter reads them again, but
  // at least kLeastRows, the rows of two tiles. Backward reads bands of both x and dy.
  constexpr int64_t kBandBytes = int64_t{32} << 10, kGradientBytes = int64_t{256} << 10;
  constexpr int64_t kLeastRows = 16;
  const int64_t vector = p.tile().vector, groups = p.g.groups;
  const bool wants_dw = p.has_dw() && p.w.numel() > 0;
  const bool wants_out = !p.backward() || (p.has_dx() && p.out.numel() > 0);
  ConvPlan plan;
  if (p.out.numel() == 0 && !p.has_dw()) return plan;
  DirectTiles t = {};
  const int64_t channels = p.in.C / groups, filters = p.out.C / groups;
  int64_t positions[2] = {0, 0}, reach[2] = {0, 0}, x_reach[2] = {0, 0};  // positions: size of a pass or of dy
  t.weights_size = wants_out ? p.w.N * p.w.C : 0;                         // the loop below multiplies this by the taps
  t.in.channels = channels, t.x.channels = p.backward() ? filters : 0;
  // Adds an axis to `planes`. `reach`: number of rows (columns) read beyond an output's position.
  const auto add_axis = [](PlaneLayout& planes, int axis, const std::vector<WindowAxis>& passes, int64_t& reach) {
    const TapRange taps(passes);
    planes.split[axis] = passes[0].step, planes.shift[axis] = std::max<int64_t>(0, -taps.least);
    reach = (std::max<int64_t>(0, taps.most) + planes.shift[axis]) / planes.split[axis];
    return taps.total;
  };
  for (int axis = 0; axis < 2; ++axis) {
    if (wants_dw) positions[axis] = p.in.size(axis);
    if (p.backward())
      add_axis(t.x, axis, conv_axes(false, p.g, axis, p.in.size(axis), p.out.size(axis), p.w.size(axis)),
               x_reach[axis]);
    if (!wants_out) continue;
    const std::vector<WindowAxis> passes = p.axes(axis);
    positions[axis] = std::max(positions[axis], passes[0].size);
    t.weights_size *= add_axis(t.in, axis, passes, reach[axis]);
  }
  t.in.pitch = round_up(positions[1], vector) + reach[1], t.x.pitch = round_up(p.in.W, vector) + x_reach[1];
  const auto row_bytes = [&](const PlaneLayout& planes) {
    return planes.channels * planes.split[0] * planes.split[1] * planes.pitch * p.element();
  };
  const int64_t bytes = std::max<int64_t>(1, row_bytes(t.in) + row_bytes(t.x));
  t.band = band_of(positions[0],
                   p.backward() ? kGradientBytes / bytes : std::max(kLeastRows, kBandBytes / bytes - reach[0]));
  t.bands = ceil_div(positions[0], t.band);
  t.in.rows = t.band + reach[0], t.x.rows = t.band + x_reach[0];
  t.items = p.in.N * t.bands;

  const int64_t taps = p.w.C * p.w.H * p.w.W;
  const int64_t work = p.w.N / groups * taps * t.band * (p.out.W + (p.backward() ? p.in.W : 0));
  const int64_t parts_wanted =
      p.backward() ? std::min(ceil_div(kParts, groups), ceil_div(t.items * groups * work, kChunkWork)) : t.items;
  t.items_in_part = std::max<int64_t>(1, ceil_div(t.items, std::max<int64_t>(parts_wanted, 1)));
  t.parts = std::max<int64_t>(1, ceil_div(t.items, t.items_in_part));
  t.grain = std::max(ceil_div(t.parts * groups, kChunksWanted), ceil_div(kChunkWork, t.items_in_part * work + 1));

  t.partial_size = wants_dw ? t.parts * p.in.C * (taps + 1) : 0;
  t.in_size = slot_size(channels * t.in.channel_stride());
  t.x_size = wants_dw ? slot_size(filters * t.x.channel_stride()) : 0;
  if (wants_out) {
    const WindowAxis columns = p.axes(1)[0];
    t.sums_size =
        p.out.w_stride * columns.out_step == 1 ? 0 : slot_size(filters * t.band * round_up(columns.size, vector));
  }
  t.vectors_size = wants_dw ? slot_size(channels * taps * vector) : 0;
  const int64_t of_thread = t.in_size + t.x_size + t.sums_size + t.vectors_size;
  plan.workspace_bytes =
      (t.partial_size + t.weights_size + p.threads_of(ceil_div(t.parts * groups, t.grain)) * of_thread) * p.element();
  plan.tiles = t;
  return plan;
}

constexpr WorkParts kWorkParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                                   {"weight_multiply_adds", WorkLimit::multiply_adds},
                                   {"plane_bytes", WorkLimit::bytes},
                                   {"strided"},
                                   {"transposed_blocks"},
                                   {"plane_rows"},
                                   {"terms"},
                                   {"weight_terms"},
                                   {"out_vectors"},
                                   {"weights"},
                                   {"units"},
                                   {"loops", WorkLimit::loops},
                                   {"calls", WorkLimit::loops},
                                   {"far_bytes", WorkLimit::bytes},
                                   {"scattered"},
                                   {"reread_bytes", WorkLimit::bytes},
                                   {"near_bytes", WorkLimit::bytes}}};

// Indices in kWorkParts.
enum Part : size_t {
  kMultiplyAdds,
  kWeightMultiplyAdds,
  kPlaneBytes,
  kStrided,
  kTransposed,
  kPlaneRows,
  kTerms,
  kWeightTerms,
  kOutVectors,
  kWeights,
  kUnits,
  kLoops,
  kCalls,
  kFarBytes,
  kScattered,
  kRereadBytes,  // bytes that filters read again, of planes that do not fit in the first-level cache
  kNearBytes
};

// The number of filters, out of `count`, that share each load (direct_kernel.h).
int64_t filters_together(const ConvProblem& p, int64_t count) {
  return p.tile().dot_rows == 4 && p.dtype == DType::f32 && count > 1 ? 2 : 1;
}

// The terms of one channel and one column of the filter consist of at most kDirectReach taps, which read neighbouring
// rows of a phase. Returns the number of taps of each term.
std::vector<int64_t> term_heights(const ConvProblem& p, int64_t phases) {
  std::vector<int64_t> heights;
  const int64_t step = p.g.dilation[0] % phases == 0 ? p.g.dilation[0] / phases : p.g.dilation[0];
  const int64_t runs = p.g.dilation[0] % phases == 0 ? 1 : std::min(phases, p.w.H);
  for (int64_t run = 0; run < runs; ++run) {
    const int64_t taps = ceil_div(p.w.H - run, runs), most = step == 1 ? kDirectReach : 1;
    for (int64_t i = 0; i < taps; i += most) heights.push_back(std::min(most, taps - i));
  }
  return heights;
}

// Adds the work of copying images to planes, for `items` items with one group each.
void add_planes(const ConvProblem& p, const ImageLayout& x, const PlaneLayout& planes, double items, KernelWork& work) {
  const int64_t vector = p.tile().vector, phases = planes.split[0] * planes.split[1];
  const int64_t columns = ceil_div(x.W, planes.split[1]);
  const int64_t rows = std::min(planes.rows, ceil_div(x.H, planes.split[0]));
  const double copied_rows = items * number(planes.channels * phases * rows);  // without the padding
  work[kPlaneBytes] += items * number(planes.channels * planes.channel_stride() * p.element());
  if (x.c_stride == 1 && x.w_stride != 1 && planes.channels > 4) {
    work[kTransposed] += items * number(phases * rows * ceil_div(columns, vector) * ceil_div(planes.channels, vector));
    return;
  }
  work[kPlaneRows] += copied_rows;
  // Every second element is selected from vectors; elements further apart are loaded one by one.
  if (const int64_t step = planes.split[1] * x.w_stride; step > 1)
    work[kStrided] += copied_rows * number(step == 2 ? ceil_div(columns, vector) : columns);
}

// Adds the work of computing y or, pass by pass, dx.
void add_images(const ConvProblem& p, const DirectTiles& t, double items, KernelWork& work) {
  constexpr int64_t kTileRows = 8;
  const int64_t vector = p.tile().vector;
  // A stride divides dx into passes.
  const int64_t stride = p.backward() ? p.g.stride[1] : 1;
  const int64_t stride_rows = p.backward() ? p.g.stride[0] : 1;
  const int64_t columns = ceil_div(p.out.W, stride), vectors = ceil_div(columns, vector);
  const int64_t rows = std::min(t.band, ceil_div(p.out.H, stride_rows)),
                row_tiles = std::max<int64_t>(1, ceil_div(rows, kTileRows));
  const int64_t channels = p.in.C / p.g.groups, filters = p.out.C / p.g.groups, passes = stride * stride_rows;
  const double height = number(rows) / number(row_tiles);
  const double together = number(filters_together(p, filters));
  const double tiles = items * number(passes * row_tiles * vectors * filters);
  // The passes of dx share the taps. Each vector of a plane is loaded once for all rows of a tile to which it
  // contributes. Additions to the same sum wait for each other. Meanwhile the processor begins the next tile, provided
  // that the instructions of this tile fit in its reorder window.
  constexpr double kWindow = 512, kInFlight = 8;
  const std::vector<int64_t> heights = term_heights(p, p.backward() ? 1 : p.g.stride[0]);
  const double terms = number(channels * p.w.W) / number(passes);
  double instructions = 0;
  for (const int64_t taps : heights)
    instructions += terms * (together * (height + 1) * number(taps) + height + number(taps));
  const double wait = kInFlight * std::min(1.0, instructions / kWindow) / together;
  for (const int64_t reach : heights) {
    const double taps = number(reach);
    work[kMultiplyAdds] += tiles * terms * std::max({height * taps, wait * taps, (height + taps) / together + taps});
    work[kTerms] += tiles * terms / together;
  }
  work[kOutVectors] += tiles * height;
  // Each filter reads the rows of all planes again. A vector of a row, shifted by the taps, touches two cache lines.
  constexpr double kLinesOfRow = 2, kLineBytes = 64;
  const double row_step = p.backward() ? 1 : number(p.g.stride[0]);
  const double column_phases = p.backward() ? 1 : number(p.g.stride[1]);
  const double rows_read = number(channels) * column_phases * (height * row_step + number(p.w.H - 1));
  work[kRereadBytes] += tiles / together * beyond_first_level(rows_read * kLinesOfRow * kLineBytes);
  work[kUnits] += items * number(passes);
  if (t.sums_size == 0) return;
  if (p.out.c_stride == 1 && filters > 1)
    work[kTransposed] += items * number(passes * rows * vectors * ceil_div(filters, vector));
  else work[kScattered] += items * number(passes * rows * columns * filters);
}

// Adds the work of computing dw. F filters share loads of x, and T terms of R rows share loads of dy (direct_kernel.h).
void add_weights(const ConvProblem& p, const DirectTiles& t, double items, KernelWork& work) {
  const int64_t vector = p.tile().vector, filters = p.in.C / p.g.groups, channels = p.w.C;
  const int64_t together = filters_together(p, filters);
  const double vectors = number(std::min(t.band, p.in.H) * ceil_div(p.in.W, vector));
  const std::vector<int64_t> heights = term_heights(p, p.g.stride[0]);
  const bool all_equal = heights.front() == heights.back();
  for (const int64_t height : heights) {
    // Terms of the same height that are neighbours are processed several at a time.
    const int64_t most = height <= 2 ? 4 : height == 3 ? 3 : 2;
    const int64_t neighbours =
        all_equal ? std::max<int64_t>(channels, 1) * p.w.W * static_cast<int64_t>(heights.size()) : p.w.W;
    const double groups = number(neighbours / most + neighbours % most) / number(neighbours);
    const double terms = number(channels * p.w.W), F = number(together), R = number(height), T = 1 / groups;
    const double step = std::max({F * T * R, 8.0, F + T * (1 + (R - 1) / 4)});
    work[kWeightMultiplyAdds] += items * vectors * number(filters) / F * terms * groups * step;
    work[kWeightTerms] += items * number(filters) / F * terms * groups * (1 + F * T * R / 8);
  }
  work[kRereadBytes] += items * number(filters) / number(together) * beyond_first_level(number(t.x_size * p.element()));
  work[kUnits] += items;
}

KernelWork work_direct(const ConvProblem& p) {
  const ConvPlan plan = plan_direct(p);
  const auto* t = std::get_if<DirectTiles>(&plan.tiles);
  if (!t) return {};
  const double items = number(t->items * p.g.groups);
  KernelWork work = {};
  if (!p.backward() || p.has_dx()) add_images(p, *t, items, work);
  if (p.has_dw()) add_weights(p, *t, items, work), add_planes(p, p.out, t->x, items, work);
  add_planes(p, p.in, t->in, items, work);
  const double share = share_of(p.threads, t->items * p.g.groups, t->items_in_part * t->grain);
  for (double& part : work) part *= share;
  const double bytes = operand_bytes(p, share, p.pass == ConvPass::gradients ? 2 * share : share);
  work[kFarBytes] = far_bytes(bytes), work[kNearBytes] = beyond_first_level(bytes);
  work[kLoops] = share < 1 ? 1 : 0;
  work[kCalls] = 1;
  // The weights are rearranged, and the parts' sums of dw are added.
  work[kWeights] = p.w_elements() * ((p.pass == ConvPass::wgrad ? 0 : 1) + (p.has_dw() ? number(t->parts) : 0));
  return work;
}

constexpr auto run_direct = []<class T>(const ConvPlan& plan, const ConvOperands<T>& operands) {
  run(std::get<DirectTiles>(plan.tiles), operands);
};

}  // namespace

const ConvAlgorithm kDirect = {.name = "direct",
                               .reason = "few channels, in vectors of neighbouring pixels",
                               .parts = kWorkParts,
                               .can_run = [](const ConvProblem&) { return true; },
                               .work = work_direct,
                               .plan = plan_direct,
                               .launch = {run_direct, run_direct}};

}  // namespace gradus::openmp_detail
