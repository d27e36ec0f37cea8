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

std::vector<Pass> forward_passes(const NchwTiles& t, const Conv2dGeometry& geometry, const int64_t (&kernel)[2]) {
  Pass pass;
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t stride = geometry.stride[axis], dilation = geometry.dilation[axis];
    pass.size[axis] = t.size[axis];
    for (int64_t r = 0; r < kernel[axis]; ++r)
      pass.taps[axis].push_back({r, r * dilation % stride, r * dilation / stride});
  }
  return {std::move(pass)};
}

std::vector<Pass> backward_passes(const NchwTiles& t, const Conv2dGeometry& geometry, const int64_t (&kernel)[2],
                                  const int64_t (&out)[2]) {
  std::vector<Pass> passes, along[2];  // along: one for each residue of the coordinate
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t stride = geometry.stride[axis], dilation = geometry.dilation[axis];
    for (int64_t residue = 0; residue < std::min(stride, out[axis]); ++residue) {
      Pass pass;
      pass.begin[axis] = residue;
      pass.size[axis] = divide_up(out[axis] - residue, stride);
      for (int64_t r = 0; r < kernel[axis]; ++r)
        if (const int64_t distance = residue + geometry.padding[axis] - r * dilation; distance % stride == 0)
          pass.taps[axis].push_back({r, 0, distance / stride + t.planes.shift[axis]});
      along[axis].push_back(std::move(pass));
    }
  }
  for (const Pass& rows : along[0])
    for (const Pass& columns : along[1]) {
      Pass pass = rows;
      pass.taps[1] = columns.taps[1], pass.begin[1] = columns.begin[1], pass.size[1] = columns.size[1];
      passes.push_back(std::move(pass));
    }
  return passes;
}

// Finds Pass::rows for images of height H.
void skip_padding(const PlaneLayout& planes, std::vector<Pass>& passes, int64_t H) {
  for (Pass& pass : passes)
    for (int64_t i = 0; i < pass.size[0]; ++i) {
      DepthRange range{0, 0};
      for (size_t k = 0; k < pass.taps[0].size(); ++k) {
        const int64_t h = (i + pass.taps[0][k].at) * planes.split[0] + pass.taps[0][k].phase - planes.shift[0];
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

  // `matrix` holds the weights of a group before they are packed.
  PackedPass(const Kernels<T>& kernels, const PlaneLayout& planes, const Pass& pass, const T* w, int64_t kernel_columns,
             const WeightStrides& strides, int64_t groups, int64_t filters, int64_t channels, T* matrix)
      : offsets(channels * static_cast<int64_t>(pass.taps[0].size() * pass.taps[1].size())),
        row_depth(channels * static_cast<int64_t>(pass.taps[1].size())),
        depth(row_depth * static_cast<int64_t>(pass.taps[0].size())) {
    int64_t at = 0;
    for (const Tap& r : pass.taps[0])
      for (int64_t c = 0; c < channels; ++c)
        for (const Tap& s : pass.taps[1]) offsets[at++] = planes.offset(c, r.phase, s.phase, r.at, s.at);
    for (int64_t g = 0; g < groups; ++g) {
      parallel_for(filters, divide_up(kGatherGrain, depth + 1), [&](int64_t begin, int64_t end) {
        T* to = matrix + begin * depth;
        for (int64_t m = begin; m < end; ++m)
          for (const Tap& r : pass.taps[0])
            for (int64_t c = 0; c < channels; ++c) {
              const T* row = w + g * strides.g + m * strides.m + c * strides.c + r.index * kernel_columns;
              for (const Tap& s : pass.taps[1]) *to++ = row[s.index];
            }
      });
      weights.emplace_back(filters * depth);
      kernels.pack_a(matrix, depth, 1, filters, depth, weights.back().get());
    }
  }
};

// One pass over one band: rows [first, first + rows) of the pass.
template <class T>
struct BandOutput {
  const Kernels<T>& kernels;
  const NchwTiles& t;
  int64_t groups;
  const Images<T>& y;
  int64_t filters;  // output channels in a group
  const T* bias;
  bool relu;

  void run(const Pass& pass, const PackedPass<T>& packed, const T* planes, T* sums, int64_t n, int64_t first) const {
    const int64_t rows = std::min(t.band, pass.size[0] - first), columns = pass.size[1], pitch = t.planes.pitch;
    if (rows <= 0 || columns <= 0) return;
    // The rows as one long one that goes straight to its place, row by row likewise, or by way of `sums`.
    const bool contiguous = y.w_stride == 1 && t.step[1] == 1;
    const bool in_place = contiguous && (rows == 1 || (columns == pitch && y.h_stride * t.step[0] == pitch));
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
    if (by_rows) block.segments = rows, block.b_segment_step = pitch, block.c_segment_step = y.h_stride * t.step[0];
    block.columns = in_place || by_rows ? positions : round_up(positions, kernels.vector_size);
    for (int64_t g = 0; g < groups; ++g) {
      T* out = y.data + n * y.n_stride + g * filters * y.c_stride + (pass.begin[0] + first * t.step[0]) * y.h_stride +
               pass.begin[1] * y.w_stride;
      block.a = packed.weights[static_cast<size_t>(g)].get();
      block.b = planes + g * (t.planes.channels / groups) * t.planes.channel_stride();
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
    return depth * padded <= depth * t.planes.pitch + kScatterCost * columns;
  }

  // For every tile of the matrix kernel, the part of the depth that does more than multiply padding.
  std::vector<DepthRange> depth_ranges(const Pass& pass, const PackedPass<T>& packed, int64_t first, int64_t rows,
                                       bool by_rows, int64_t positions) const {
    std::vector<DepthRange> ranges;
    for (int64_t segment = 0; segment < (by_rows ? rows : 1); ++segment)
      for (int64_t column = 0; column < positions; column += kernels.tile_columns) {
        const int64_t last_column = std::min(column + kernels.tile_columns, positions) - 1;
        const int64_t begin = by_rows ? segment : column / t.planes.pitch;
        const int64_t end = by_rows ? segment + 1 : std::min(rows, last_column / t.planes.pitch + 1);
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
    const int64_t w_step = y.w_stride * t.step[1], h_step = y.h_stride * t.step[0], pitch = t.planes.pitch;
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
void correlate(const Kernels<T>& kernels, const NchwTiles& t, std::vector<Pass> passes, int64_t groups,
               const Images<const T>& x, const T* mask, const T* w, int64_t kernel_columns,
               const WeightStrides& strides, const T* bias, bool relu, const Images<T>& y) {
  const int64_t filters = y.C / groups, channels = x.C / groups;
  skip_padding(t.planes, passes, x.H);
  std::vector<PackedPass<T>> packed;
  {
    const Scratch<T> matrix(t.matrix_size);
    for (const Pass& pass : passes)
      packed.emplace_back(kernels, t.planes, pass, w, kernel_columns, strides, groups, filters, channels, matrix.get());
  }

  const BandOutput<T> output{kernels, t, groups, y, filters, bias, relu};
  const int64_t held = x.C * t.planes.channel_stride();
  parallel_for(x.N * t.bands, 1, [&](int64_t begin, int64_t end) {
    const Scratch<T> planes(t.planes_size), sums(t.sums_size), masked(t.masked_size);
    std::fill(planes.get() + held, planes.get() + t.planes_size, T(0));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / t.bands, first = i % t.bands * t.band;
      fill_planes(kernels, t.planes, x, n, first, mask, planes.get(), masked.get());
      for (size_t pass = 0; pass < packed.size(); ++pass)
        output.run(passes[pass], packed[pass], planes.get(), sums.get(), n, first);
    }
  });
}

}  // namespace

template <class T>
void convolve(const Kernels<T>& kernels, const NchwTiles& tiles, const Images<const T>& x, const Images<const T>& w,
              const T* bias, bool relu, const Images<T>& y, const Conv2dGeometry& geometry) {
  const int64_t size = w.H * w.W, groups = geometry.groups;
  const WeightStrides strides{w.C * size, size, w.N / groups * w.C * size};
  correlate(kernels, tiles, forward_passes(tiles, geometry, {w.H, w.W}), groups, x, static_cast<const T*>(nullptr),
            w.data, w.W, strides, bias, relu, y);
}

template <class T>
void convolve_backward_data(const Kernels<T>& kernels, const NchwTiles& tiles, const Images<const T>& dy, const T* mask,
                            const Images<const T>& w, const Images<T>& dx, const Conv2dGeometry& geometry) {
  const int64_t size = w.H * w.W, groups = geometry.groups;
  const WeightStrides strides{size, w.C * size, w.N / groups * w.C * size};
  correlate(kernels, tiles, backward_passes(tiles, geometry, {w.H, w.W}, {dx.H, dx.W}), groups, dy, mask, w.data, w.W,
            strides, static_cast<const T*>(nullptr), false, dx);
}

template void convolve(const Kernels<float>&, const NchwTiles&, const Images<const float>&, const Images<const float>&,
                       const float*, bool, const Images<float>&, const Conv2dGeometry&);
template void convolve(const Kernels<double>&, const NchwTiles&, const Images<const double>&,
                       const Images<const double>&, const double*, bool, const Images<double>&, const Conv2dGeometry&);
template void convolve_backward_data(const Kernels<float>&, const NchwTiles&, const Images<const float>&, const float*,
                                     const Images<const float>&, const Images<float>&, const Conv2dGeometry&);
template void convolve_backward_data(const Kernels<double>&, const NchwTiles&, const Images<const double>&,
                                     const double*, const Images<const double>&, const Images<double>&,
                                     const Conv2dGeometry&);

}  // namespace gradus::openmp
