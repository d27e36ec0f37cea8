// Convolution and its gradient with respect to the image, as one kind of sum over planes (nchw.h):
//   out[m, position] = sum over channels and taps of weight[m, channel, tap] plane[offset(channel, tap) + position]
// which is the matrix product of gemm_kernel.h with rows of B that overlap in memory.
//   forward        planes of x, split by stride; tap (r, s) reads phase r dilation mod stride, shifted by the quotient
//   backward_data  planes of dy; the pixels of dx whose coordinates are equal mod stride form one pass, whose taps are
//                  those with h + padding - r dilation divisible by the stride; shifted by the quotient
// The threads share out bands of output rows; a band's planes fit the second-level cache.
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

constexpr int64_t kGatherGrain = 16384;  // weights that are worth a chunk of parallel work
constexpr int64_t kScatterCost = 12;     // of moving a vector of sums, in multiply-adds

// Output pixels that share their taps.
struct Pass {
  const WindowAxis &rows, &columns;
  std::vector<PlaneTap> taps[2];
  std::vector<DepthRange> inside = {};  // for every row, the taps along the height that read rows of the image

  Pass(const PlaneLayout& planes, const WindowAxis& rows, const WindowAxis& columns)
      : rows(rows), columns(columns), taps{plane_taps(planes, 0, rows), plane_taps(planes, 1, columns)} {
    // Sums are in the order of the kernel.
    for (auto& along : taps)
      std::sort(along.begin(), along.end(), [](const PlaneTap& a, const PlaneTap& b) { return a.index < b.index; });
    for (int64_t i = 0; i < rows.size; ++i) {
      DepthRange range{0, 0};
      for (size_t k = 0; k < taps[0].size(); ++k) {
        const int64_t h = (i + taps[0][k].at) * planes.split[0] + taps[0][k].phase - planes.shift[0];
        if (h < 0 || h >= rows.source) continue;
        if (range.end == 0) range.begin = static_cast<int64_t>(k);
        range.end = static_cast<int64_t>(k) + 1;
      }
      inside.push_back(range);
    }
  }
};

// The weights of one pass and the offsets that go with them, for the matrix kernel. The depth runs over the rows of the
// kernel, then channels, then columns: so the taps of neighbouring kernel rows are neighbours.
template <class T>
struct PackedPass {
  std::vector<Scratch<T>> weights;  // one for each group
  Scratch<int64_t> offsets;
  int64_t row_depth, depth;  // of one row of the kernel; of all

  // `matrix` holds the weights of a group before they are packed.
  PackedPass(const NchwTiles& t, const ConvOperands<T>& o, const Pass& pass, T* matrix)
      : offsets(o.channels() * static_cast<int64_t>(pass.taps[0].size() * pass.taps[1].size())),
        row_depth(o.channels() * static_cast<int64_t>(pass.taps[1].size())),
        depth(row_depth * static_cast<int64_t>(pass.taps[0].size())) {
    const int64_t channels = o.channels(), filters = o.filters();
    int64_t at = 0;
    for (const PlaneTap& r : pass.taps[0])
      for (int64_t c = 0; c < channels; ++c)
        for (const PlaneTap& s : pass.taps[1]) offsets[at++] = t.planes.offset(c, r.phase, s.phase, r.at, s.at);
    for (int64_t g = 0; g < o.geometry.groups; ++g) {
      parallel_for(filters, ceil_div(kGatherGrain, depth + 1), [&](int64_t begin, int64_t end) {
        T* to = matrix + begin * depth;
        for (int64_t m = begin; m < end; ++m)
          for (const PlaneTap& r : pass.taps[0])
            for (int64_t c = 0; c < channels; ++c) {
              const T* row =
                  o.w.data + g * o.group_stride() + m * o.filter_stride() + c * o.channel_stride() + r.index * o.w.W;
              for (const PlaneTap& s : pass.taps[1]) *to++ = row[s.index];
            }
      });
      weights.emplace_back(filters * depth);
      o.kernels().pack_a(matrix, depth, 1, filters, depth, weights.back().get());
    }
  }
};

// One pass over one band: rows [first, first + rows) of the pass.
template <class T>
struct BandOutput {
  const NchwTiles& t;
  const ConvOperands<T>& o;
  const Kernels<T>& kernels = o.kernels();
  const Images<T>& y = o.y;
  const int64_t filters = o.filters();

  void run(const Pass& pass, const PackedPass<T>& packed, const T* planes, T* sums, int64_t n, int64_t first) const {
    const int64_t rows = std::min(t.band, pass.rows.size - first), columns = pass.columns.size, pitch = t.planes.pitch;
    const int64_t row_step = y.h_stride * pass.rows.out_step, step = y.w_stride * pass.columns.out_step;
    if (rows <= 0 || columns <= 0) return;
    // The rows as one long one that goes straight to its place, row by row likewise, or by way of `sums`.
    const bool contiguous = step == 1;
    const bool in_place = contiguous && (rows == 1 || (columns == pitch && row_step == pitch));
    const bool by_rows = contiguous && !in_place && rows_are_cheaper(columns, packed.depth);
    const int64_t positions = by_rows ? columns : (rows - 1) * pitch + columns;
    const std::vector<DepthRange> ranges = depth_ranges(pass, packed, first, rows, by_rows, positions);
    BlockArgs<T> block;
    block.rows = filters;
    block.depth = packed.depth;
    block.offsets = packed.offsets.get();
    block.b_tile_step = kernels.tile_columns;
    block.ranges = ranges.data();
    block.relu = o.relu;
    if (by_rows) block.segments = rows, block.b_segment_step = pitch, block.c_segment_step = row_step;
    block.columns = in_place || by_rows ? positions : round_up(positions, kernels.vector_size);
    for (int64_t g = 0; g < o.geometry.groups; ++g) {
      T* out = y.data + n * y.n_stride + g * filters * y.c_stride + pass.rows.out_begin * y.h_stride +
               first * row_step + pass.columns.out_begin * y.w_stride;
      block.a = packed.weights[static_cast<size_t>(g)].get();
      block.b = planes + g * o.channels() * t.planes.channel_stride();
      block.c = in_place || by_rows ? out : sums;
      block.c_row_stride = in_place || by_rows ? y.c_stride : block.columns;
      block.row_bias = o.bias ? o.bias + g * filters : nullptr;
      kernels.block(block);
      if (!in_place && !by_rows) scatter(sums, block.columns, out, row_step, step, rows, columns);
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
          const DepthRange& row = pass.inside[static_cast<size_t>(first + i)];
          if (row.end == row.begin) continue;
          hull = hull.end == 0 ? row : DepthRange{std::min(hull.begin, row.begin), std::max(hull.end, row.end)};
        }
        ranges.push_back({hull.begin * packed.row_depth, hull.end * packed.row_depth});
      }
    return ranges;
  }

  // Moves the sums of one group to their place, leaving out what lies between the rows.
  void scatter(const T* sums, int64_t sum_stride, T* out, int64_t h_step, int64_t w_step, int64_t rows,
               int64_t columns) const {
    const int64_t pitch = t.planes.pitch;
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

}  // namespace

template <class T>
void run(const NchwTiles& t, const ConvOperands<T>& o) {
  const std::vector<WindowAxis> row_axes = o.axes(0), column_axes = o.axes(1);
  std::vector<Pass> passes;
  std::vector<PackedPass<T>> packed;
  {
    const Scratch<T> matrix(t.matrix_size);
    for (const WindowAxis& rows : row_axes)
      for (const WindowAxis& columns : column_axes)
        packed.emplace_back(t, o, passes.emplace_back(t.planes, rows, columns), matrix.get());
  }
  const BandOutput<T> output{t, o};
  const int64_t held = o.x.C * t.planes.channel_stride();
  parallel_for(o.x.N * t.bands, 1, [&](int64_t begin, int64_t end) {
    const Scratch<T> planes(t.planes_size), sums(t.sums_size);
    std::fill(planes.get() + held, planes.get() + t.planes_size, T(0));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / t.bands, first = i % t.bands * t.band;
      fill_planes(o.kernels(), t.planes, o.x, n, first, o.mask, planes.get());
      for (size_t pass = 0; pass < packed.size(); ++pass)
        output.run(passes[pass], packed[pass], planes.get(), sums.get(), n, first);
    }
  });
}
template void run(const NchwTiles&, const ConvOperands<float>&);
template void run(const NchwTiles&, const ConvOperands<double>&);

}  // namespace gradus::openmp
