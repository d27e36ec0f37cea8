// Convolution and its gradient with respect to the image, as one kind of sum over planes (planes.h):
//   out[m, position] = sum over channels and taps of weight[m, channel, tap] plane[offset(channel, tap) + position]
// which is the matrix product of gemm_kernel.h with rows of B that overlap in memory.
//   forward        planes of x, split by stride; tap (r, s) reads phase r dilation mod stride, shifted by the quotient
//   backward_data  planes of dy; the pixels of dx whose coordinates are equal mod stride form one pass, whose taps are
//                  those with h + padding - r dilation divisible by the stride; shifted by the quotient
// The threads share out bands of output rows; a band's planes fit the second-level cache.
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d_kernels.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

constexpr int64_t kBandBytes = int64_t{512} << 10;
constexpr int64_t kBandsWanted = 16;
constexpr int64_t kGatherGrain = 16384;  // weights that are worth a chunk of parallel work
constexpr int64_t kScatterCost = 12;     // of moving a vector of sums, in multiply-adds

// A tap along one axis: `index` in the kernel reads phase `phase`, `at` rows (columns) further than the output.
struct Tap {
  int64_t index, phase, at;
};

// Output pixels begin[0] + i step, begin[1] + j step for i < size[0], j < size[1], which share their taps.
struct Pass {
  std::vector<Tap> taps[2];
  int64_t begin[2] = {0, 0}, size[2] = {0, 0};
  std::vector<DepthRange> rows;  // for every i, the taps along the height that read rows of the image, not padding
};

struct Correlation {
  PlaneLayout layout;
  std::vector<Pass> passes;
  int64_t step[2] = {1, 1};   // between output pixels of a pass
  int64_t reach[2] = {0, 0};  // largest Tap::at
  int64_t size[2] = {0, 0};   // largest Pass::size
  int64_t groups = 1;
};

Correlation forward(const Conv2dGeometry& geometry, const int64_t (&kernel)[2], const int64_t (&out)[2]) {
  Correlation plan;
  plan.passes.resize(1);
  Pass& pass = plan.passes[0];
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t stride = geometry.stride[axis], dilation = geometry.dilation[axis];
    plan.layout.split[axis] = stride;
    plan.layout.shift[axis] = geometry.padding[axis];
    pass.size[axis] = plan.size[axis] = out[axis];
    for (int64_t r = 0; r < kernel[axis]; ++r)
      pass.taps[axis].push_back({r, r * dilation % stride, r * dilation / stride});
    plan.reach[axis] = (kernel[axis] - 1) * dilation / stride;
  }
  return plan;
}

Correlation backward(const Conv2dGeometry& geometry, const int64_t (&kernel)[2], const int64_t (&out)[2]) {
  Correlation plan;
  std::vector<Pass> along[2];  // one pass for each residue of the coordinate
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t stride = geometry.stride[axis], dilation = geometry.dilation[axis];
    plan.step[axis] = stride;
    int64_t least = 0, most = 0;
    bool any = false;
    for (int64_t residue = 0; residue < std::min(stride, out[axis]); ++residue) {
      Pass pass;
      pass.begin[axis] = residue;
      pass.size[axis] = divide_up(out[axis] - residue, stride);
      for (int64_t r = 0; r < kernel[axis]; ++r) {
        const int64_t distance = residue + geometry.padding[axis] - r * dilation;
        if (distance % stride != 0) continue;
        const int64_t at = distance / stride;
        least = any ? std::min(least, at) : at, most = any ? std::max(most, at) : at;
        any = true;
        pass.taps[axis].push_back({r, 0, at});
      }
      along[axis].push_back(std::move(pass));
    }
    for (Pass& pass : along[axis])
      for (Tap& tap : pass.taps[axis]) tap.at -= least;
    plan.layout.shift[axis] = -least;
    plan.reach[axis] = most - least;
    plan.size[axis] = divide_up(out[axis], stride);
  }
  for (const Pass& rows : along[0])
    for (const Pass& columns : along[1]) {
      Pass pass = rows;
      pass.taps[1] = columns.taps[1], pass.begin[1] = columns.begin[1], pass.size[1] = columns.size[1];
      plan.passes.push_back(std::move(pass));
    }
  return plan;
}

// Finds Pass::rows for images of height H.
void skip_padding(Correlation& plan, int64_t H) {
  const int64_t split = plan.layout.split[0], shift = plan.layout.shift[0];
  for (Pass& pass : plan.passes)
    for (int64_t i = 0; i < pass.size[0]; ++i) {
      DepthRange range{0, 0};
      for (size_t k = 0; k < pass.taps[0].size(); ++k) {
        const int64_t h = (i + pass.taps[0][k].at) * split + pass.taps[0][k].phase - shift;
        if (h < 0 || h >= H) continue;
        if (range.end == 0) range.begin = static_cast<int64_t>(k);
        range.end = static_cast<int64_t>(k) + 1;
      }
      pass.rows.push_back(range);
    }
}

// Where the weight of output channel m, input channel c (both counted in their group) and group g is.
struct WeightStrides {
  int64_t m, c, g;
};

// The weights of one pass and the offsets that go with them, for the matrix kernel. The depth runs over the rows of the
// kernel, then channels, then columns: so the taps of neighbouring kernel rows are neighbours.
template <class T>
struct PackedPass {
  std::vector<Scratch<T>> weights;  // one for each group
  Scratch<int64_t> offsets;
  int64_t row_depth, depth;  // of one row of the kernel; of all

  PackedPass(const Kernels<T>& kernels, const Correlation& plan, const Pass& pass, const T* w, int64_t kernel_columns,
             const WeightStrides& strides, int64_t filters, int64_t channels)
      : offsets(channels * static_cast<int64_t>(pass.taps[0].size() * pass.taps[1].size())),
        row_depth(channels * static_cast<int64_t>(pass.taps[1].size())),
        depth(row_depth * static_cast<int64_t>(pass.taps[0].size())) {
    int64_t at = 0;
    for (const Tap& r : pass.taps[0])
      for (int64_t c = 0; c < channels; ++c)
        for (const Tap& s : pass.taps[1]) offsets[at++] = plan.layout.offset(c, r.phase, s.phase, r.at, s.at);
    const Scratch<T> matrix(filters * depth);
    for (int64_t g = 0; g < plan.groups; ++g) {
      parallel_for(filters, divide_up(kGatherGrain, depth + 1), [&](int64_t begin, int64_t end) {
        T* to = matrix.get() + begin * depth;
        for (int64_t m = begin; m < end; ++m)
          for (const Tap& r : pass.taps[0])
            for (int64_t c = 0; c < channels; ++c) {
              const T* row = w + g * strides.g + m * strides.m + c * strides.c + r.index * kernel_columns;
              for (const Tap& s : pass.taps[1]) *to++ = row[s.index];
            }
      });
      weights.emplace_back(filters * depth);
      kernels.pack_a(matrix.get(), depth, 1, filters, depth, weights.back().get());
    }
  }
};

// Output rows that are worked on together, by shape: as many as fit the cache, fewer where there are few images.
int64_t rows_in_band(const Correlation& plan, int64_t N, int64_t filters, int64_t element) {
  const int64_t row =
      (plan.layout.channels * plan.layout.split[0] * plan.layout.split[1] + filters) * plan.layout.pitch * element;
  const int64_t fit = std::max<int64_t>(1, kBandBytes / std::max<int64_t>(row, 1) - plan.reach[0]);
  const int64_t wanted = divide_up(plan.size[0], divide_up(kBandsWanted, std::max<int64_t>(N, 1)));
  const int64_t most = std::max<int64_t>(1, std::min(fit, std::max<int64_t>(wanted, 4)));
  return divide_up(plan.size[0], divide_up(plan.size[0], most));
}

// One pass over one band: rows [first, first + rows) of the pass.
template <class T>
struct BandOutput {
  const Kernels<T>& kernels;
  const Correlation& plan;
  const Images<T>& y;
  int64_t filters;  // output channels in a group
  const T* bias;
  bool relu;

  void run(const Pass& pass, const PackedPass<T>& packed, const T* planes, T* sums, int64_t n, int64_t first,
           int64_t band) const {
    const int64_t rows = std::min(band, pass.size[0] - first), columns = pass.size[1], pitch = plan.layout.pitch;
    if (rows <= 0 || columns <= 0) return;
    // The rows as one long one that goes straight to its place, row by row likewise, or by way of `sums`.
    const bool contiguous = y.w_stride == 1 && plan.step[1] == 1;
    const bool in_place = contiguous && (rows == 1 || (columns == pitch && y.h_stride * plan.step[0] == pitch));
    const bool by_rows = contiguous && !in_place && rows_are_cheaper(columns, packed.depth);
    const int64_t positions = by_rows ? columns : (rows - 1) * pitch + columns;
    const std::vector<DepthRange> ranges = depth_ranges(pass, packed, first, rows, by_rows, positions);
    BlockArgs<T> block;
    block.rows = filters;
    block.depth = packed.depth;
    block.offsets = packed.offsets.get();
    block.b_tile_step = kernels.tile_columns;
    block.ranges = ranges.data();
    block.relu = relu;
    if (by_rows) block.segments = rows, block.b_segment_step = pitch, block.c_segment_step = y.h_stride * plan.step[0];
    block.columns = in_place || by_rows ? positions : round_up(positions, kernels.vector_size);
    for (int64_t g = 0; g < plan.groups; ++g) {
      T* out = y.data + n * y.n_stride + g * filters * y.c_stride +
               (pass.begin[0] + first * plan.step[0]) * y.h_stride + pass.begin[1] * y.w_stride;
      block.a = packed.weights[static_cast<size_t>(g)].get();
      block.b = planes + g * (plan.layout.channels / plan.groups) * plan.layout.channel_stride();
      block.c = in_place || by_rows ? out : sums;
      block.c_row_stride = in_place || by_rows ? y.c_stride : block.columns;
      block.row_bias = bias ? bias + g * filters : nullptr;
      kernels.block(block);
      if (!in_place && !by_rows) scatter(sums, block.columns, out, rows, columns);
    }
  }

  // One long row wastes the positions between rows and moves its sums; single rows waste the rest of their last vector.
  bool rows_are_cheaper(int64_t columns, int64_t depth) const {
    const int64_t padded = round_up(columns, kernels.vector_size);
    return depth * padded <= depth * plan.layout.pitch + kScatterCost * columns;
  }

  // For every tile of the matrix kernel, the part of the depth that does more than multiply padding.
  std::vector<DepthRange> depth_ranges(const Pass& pass, const PackedPass<T>& packed, int64_t first, int64_t rows,
                                       bool by_rows, int64_t positions) const {
    std::vector<DepthRange> ranges;
    for (int64_t segment = 0; segment < (by_rows ? rows : 1); ++segment)
      for (int64_t column = 0; column < positions; column += kernels.tile_columns) {
        const int64_t last_column = std::min(column + kernels.tile_columns, positions) - 1;
        const int64_t begin = by_rows ? segment : column / plan.layout.pitch;
        const int64_t end = by_rows ? segment + 1 : std::min(rows, last_column / plan.layout.pitch + 1);
        DepthRange hull{0, 0};
        for (int64_t i = begin; i < end; ++i) {
          const DepthRange& row = pass.rows[static_cast<size_t>(first + i)];
          if (row.end == row.begin) continue;
          hull = hull.end == 0 ? row : DepthRange{std::min(hull.begin, row.begin), std::max(hull.end, row.end)};
        }
        ranges.push_back({hull.begin * packed.row_depth, hull.end * packed.row_depth});
      }
    return ranges;
  }

  // Moves the sums of one group to their place, leaving out what lies between the rows.
  void scatter(const T* sums, int64_t sum_stride, T* out, int64_t rows, int64_t columns) const {
    const int64_t w_step = y.w_stride * plan.step[1], h_step = y.h_stride * plan.step[0], pitch = plan.layout.pitch;
    if (y.c_stride == 1 && w_step != 1) {
      for (int64_t i = 0; i < rows; ++i)
        kernels.transpose(sums + i * pitch, sum_stride, filters, columns, out + i * h_step, w_step);
      return;
    }
    for (int64_t m = 0; m < filters; ++m) {
      const T* from = sums + m * sum_stride;
      T* to = out + m * y.c_stride;
      if (w_step == 1) {
        kernels.copy_rows(
            {.rows = rows, .count = columns, .from = from, .from_stride = pitch, .to = to, .to_stride = h_step});
        continue;
      }
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) to[i * h_step + j * w_step] = from[i * pitch + j];
    }
  }
};

template <class T>
void correlate(const KernelTable& table, Correlation plan, const Images<const T>& x, const T* mask, const T* w,
               const int64_t (&kernel)[2], const WeightStrides& strides, const T* bias, bool relu, const Images<T>& y) {
  if (y.N * y.C * y.H * y.W == 0) return;
  const Kernels<T>& kernels = kernels_of<T>(table);
  plan.layout.channels = x.C;
  plan.layout.set_pitch(x.W, plan.size[1], plan.reach[1]);
  const int64_t filters = y.C / plan.groups, channels = x.C / plan.groups;
  const int64_t band = rows_in_band(plan, x.N, filters, sizeof(T)), bands = divide_up(plan.size[0], band);
  plan.layout.rows = band + plan.reach[0];
  skip_padding(plan, x.H);
  std::vector<PackedPass<T>> packed;
  for (const Pass& pass : plan.passes)
    packed.emplace_back(kernels, plan, pass, w, kernel[1], strides, filters, channels);

  const BandOutput<T> output{kernels, plan, y, filters, bias, relu};
  const int64_t held = x.C * plan.layout.channel_stride();
  const int64_t slack = plan.layout.pitch + plan.reach[1] + 2 * kernels.tile_columns;  // the last tile reads beyond
  const int64_t sums_size = filters * round_up(band * plan.layout.pitch, kernels.vector_size);
  parallel_for(x.N * bands, 1, [&](int64_t begin, int64_t end) {
    const Scratch<T> planes(held + slack), sums(sums_size);
    std::fill_n(planes.get() + held, slack, T(0));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / bands, first = i % bands * band;
      fill_planes(kernels, plan.layout, x, n, first, mask, planes.get());
      for (size_t pass = 0; pass < packed.size(); ++pass)
        output.run(plan.passes[pass], packed[pass], planes.get(), sums.get(), n, first, band);
    }
  });
}

}  // namespace

template <class T>
void convolve(const KernelTable& table, const Images<const T>& x, const Images<const T>& w, const T* bias, bool relu,
              const Images<T>& y, const Conv2dGeometry& geometry) {
  const int64_t kernel[2] = {w.H, w.W}, out[2] = {y.H, y.W}, size = w.H * w.W;
  Correlation plan = forward(geometry, kernel, out);
  plan.groups = geometry.groups;
  const WeightStrides strides{w.C * size, size, w.N / plan.groups * w.C * size};
  correlate(table, std::move(plan), x, static_cast<const T*>(nullptr), w.data, kernel, strides, bias, relu, y);
}

template <class T>
void convolve_backward_data(const KernelTable& table, const Images<const T>& dy, const T* mask,
                            const Images<const T>& w, const Images<T>& dx, const Conv2dGeometry& geometry) {
  const int64_t kernel[2] = {w.H, w.W}, out[2] = {dx.H, dx.W}, size = w.H * w.W;
  Correlation plan = backward(geometry, kernel, out);
  plan.groups = geometry.groups;
  const WeightStrides strides{size, w.C * size, w.N / plan.groups * w.C * size};
  correlate(table, std::move(plan), dy, mask, w.data, kernel, strides, static_cast<const T*>(nullptr), false, dx);
}

template void convolve(const KernelTable&, const Images<const float>&, const Images<const float>&, const float*, bool,
                       const Images<float>&, const Conv2dGeometry&);
template void convolve(const KernelTable&, const Images<const double>&, const Images<const double>&, const double*,
                       bool, const Images<double>&, const Conv2dGeometry&);
template void convolve_backward_data(const KernelTable&, const Images<const float>&, const float*,
                                     const Images<const float>&, const Images<float>&, const Conv2dGeometry&);
template void convolve_backward_data(const KernelTable&, const Images<const double>&, const double*,
                                     const Images<const double>&, const Images<double>&, const Conv2dGeometry&);

}  // namespace gradus::openmp
