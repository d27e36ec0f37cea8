// Convolution with few channels, on planes (nchw.h): an output plane is a weighted sum of shifted input planes
// (direct_kernel.h). An output costs its C R S multiply-adds and little else, even with a single channel per group.
//   y, dx   terms of the sum are the taps in a column of the filter, for each channel. A stride splits x into phases;
//           for dx, pixels with equal coordinates mod stride have the same taps and are computed in one pass
//   dw      dot products of dy with the planes that the forward pass reads, in vector lanes; db sums dy
// The unit of work is a band of rows of one group of one image. Everything that needs its planes is computed while they
// are in the cache, so the backward pass reads dy, y and x from memory once.
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
        const T* w = o.w.data + k / o.filters() * o.group_stride() + k % o.filters() * o.filter_stride();
        for (int64_t place : passes.back().terms.weights) *weights++ = w[place];
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

}  // namespace

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

template void run(const DirectTiles&, const ConvOperands<float>&);
template void run(const DirectTiles&, const ConvOperands<double>&);

}  // namespace gradus::openmp_detail
