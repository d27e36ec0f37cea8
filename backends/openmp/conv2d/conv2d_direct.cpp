// Convolution with few channels by planes (nchw.h): an output plane is a sum of shifted input planes (direct_kernel.h),
// each times a number. An output costs its C R S multiply-adds and little else, down to a single channel in a group.
//   y, dx   terms of the sum are the taps in a column of the kernel, for each channel. A stride splits x into phases;
//           of dx, the pixels whose coordinates are equal mod stride share their taps and are computed in one pass
//   dw      dot products of dy with the planes that the forward pass reads, lane by lane; db sums dy
// A piece of work is a band of rows of one group of one image: all that needs its planes is computed while they are in
// the cache, so the backward pass reads dy, y and x from memory once.
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/conv2d/nchw.h>

#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
namespace {

using Taps = std::vector<PlaneTap>;

// A sum over planes: the terms for the kernel, and the weights that they take.
class Terms {
 public:
  Terms() = default;
  Terms(const PlaneLayout& layout, const WindowAxis& row_axis, const WindowAxis& column_axis, int64_t kernel_columns) {
    const Taps rows = plane_taps(layout, 0, row_axis), columns = plane_taps(layout, 1, column_axis);
    std::vector<Taps> runs;  // taps that read neighbouring rows of a phase make one term
    for (int64_t phase = 0; phase < layout.split[0]; ++phase) {
      const PlaneTap* last = nullptr;
      for (const PlaneTap& tap : rows) {
        if (tap.phase != phase) continue;
        if (!last || tap.at != last->at + 1 || runs.back().size() == kDirectReach) runs.emplace_back();
        runs.back().push_back(tap);
        last = &tap;
      }
    }
    for (int64_t c = 0; c < layout.channels; ++c)
      for (const Taps& run : runs)
        for (const PlaneTap& column : columns) {
          terms_.push_back({layout.offset(c, run[0].phase, column.phase, run[0].at, column.at),
                            static_cast<int64_t>(run.size()), run[0].at});
          for (const PlaneTap& row : run) weights_.push_back({c, row.index * kernel_columns + column.index});
        }
  }

  const DirectTerm* data() const { return terms_.data(); }
  int64_t count() const { return static_cast<int64_t>(terms_.size()); }
  int64_t weights() const { return static_cast<int64_t>(weights_.size()); }
  /// Where the terms' i-th weight is, when the kernels of neighbouring channels are `channel_stride` apart.
  int64_t place(int64_t i, int64_t channel_stride) const {
    const Weight& weight = weights_[static_cast<size_t>(i)];
    return weight.channel * channel_stride + weight.index;
  }

 private:
  struct Weight {
    int64_t channel, index;
  };
  std::vector<DirectTerm> terms_;
  std::vector<Weight> weights_;
};

// Output pixels that share their terms, and the weights of the terms for every output channel.
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
      const Terms& terms =
          passes.emplace_back(Pass<T>{rows, columns, Terms(layout, rows, columns, o.w.W), weights}).terms;
      for (int64_t k = 0; k < o.y.C; ++k) {
        const T* w = o.w.data + k / o.filters() * o.group_stride() + k % o.filters() * o.filter_stride();
        for (int64_t i = 0; i < terms.weights(); ++i) *weights++ = w[terms.place(i, o.channel_stride())];
      }
    }
  return passes;
}

// Rows [first, first + band) of passes, for the output channels of group g of image n.
template <class T>
struct Band {
  const ConvOperands<T>& o;
  const PlaneLayout& layout;
  const T* planes;
  int64_t first, band, n, g;
  const Kernels<T>& kernels = o.kernels();
  const int64_t count = o.filters();

  /// Passes from `pass` on share their rows; their columns go to their places one by one, or, where those are not
  /// neighbours, by way of `sums`.
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
          kernels.transpose(sums + i * sum_pitch, size, count, width, columns + i * h_step, w_step);
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
    kernels.direct({.filters = count,
                    .rows = rows(pass),
                    .columns = pass.columns.size,
                    .planes = planes,
                    .pitch = layout.pitch,
                    .rows_begin = layout.first_inside() - first,
                    .rows_end = layout.last_inside(o.x.H) + 1 - first,
                    .terms = pass.terms.data(),
                    .term_count = pass.terms.count(),
                    .weights = pass.weights + g * count * pass.terms.weights(),
                    .weight_count = pass.terms.weights(),
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
  const int64_t groups = o.geometry.groups;
  const SmallScratch<T> weights(t.weights_size);
  const std::vector<Pass<T>> passes = passes_of(t.planes, o, weights.get());
  parallel_for(o.y.N * groups * t.bands, t.grain, [&](int64_t begin, int64_t end) {
    const SmallScratch<T> planes(t.planes_size), sums(t.sums_size);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / t.bands / groups, g = i / t.bands % groups, first = i % t.bands * t.band;
      fill_planes<T>(o.kernels(), t.planes, o.x.from_channel(g * o.w.C), n, first, nullptr, planes.get());
      Band<T>{o, t.planes, planes.get(), first, t.band, n, g}.run(passes.data(), 1, sums.get());
    }
  });
}

template <class T>
void run(const DirectBackwardTiles& t, const ConvGradientOperands<T>& o) {
  const Kernels<T>& kernels = o.kernels();
  const Images<const T>&dy = o.dy, &x = o.x, &w = o.w;
  const Images<T>&dx = o.dx, &dw = o.dw;
  const int64_t groups = o.geometry.groups, filters = dy.C / groups;
  const ConvOperands<T> image{o.table, o.geometry, true, dy, o.mask, w, nullptr, false, dx};
  const SmallScratch<T> gathered(t.weights_size);
  const std::vector<Pass<T>> passes = dx.data ? passes_of(t.dy, image, gathered.get()) : std::vector<Pass<T>>();
  const auto column_passes = static_cast<size_t>(std::min(o.geometry.stride[1], dx.W));
  const auto along = [&](int axis) {
    return conv_axes(false, o.geometry, axis, dy.size(axis), x.size(axis), w.size(axis))[0];
  };
  const Terms terms = dw.data ? Terms(t.x, along(0), along(1), w.W) : Terms();
  const int64_t taps = terms.weights(), dy_plane = t.dy.channel_stride();

  // Sums are made apart for each group and part of the items; a part's dw is followed by its db.
  const int64_t weights = dw.data ? dy.C * taps : 0, part_size = weights + dy.C;
  const SmallScratch<T> partial(t.partial_size);
  parallel_for(t.parts * groups, t.grain, [&](int64_t begin, int64_t end) {
    const SmallScratch<T> dy_planes(t.dy_size), x_planes(t.x_size), sums(t.sums_size), vectors(t.vectors_size);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t part = unit / groups, g = unit % groups;
      T* dbias = dw.data ? partial.get() + part * part_size + weights + g * filters : nullptr;
      std::fill_n(vectors.get(), t.vectors_size, T(0));
      if (dw.data) std::fill_n(dbias, filters, T(0));
      for (int64_t item = part * t.items_in_part; item < std::min(t.items, (part + 1) * t.items_in_part); ++item) {
        const int64_t n = item / t.bands, first = item % t.bands * t.band;
        fill_planes(kernels, t.dy, dy.from_channel(g * filters), n, first,
                    o.mask ? o.mask + g * filters * dy.c_stride : nullptr, dy_planes.get());
        if (dx.data) {
          const Band<T> piece{image, t.dy, dy_planes.get(), first, t.band, n, g};
          for (size_t i = 0; i < passes.size(); i += column_passes) piece.run(&passes[i], column_passes, sums.get());
        }
        const int64_t height = std::min(t.band, dy.H - first);
        if (!dw.data || height <= 0) continue;
        fill_planes<T>(kernels, t.x, x.from_channel(g * w.C), n, first, nullptr, x_planes.get());
        const T* rows = dy_planes.get() + t.dy.shift[0] * t.dy.pitch;
        for (int64_t k = 0; o.dbias && k < filters; ++k)
          dbias[k] += kernels.sum(rows + k * dy_plane, height * t.dy.pitch);
        kernels.direct_sums({.filters = filters,
                             .rows = height,
                             .columns = dy.W,
                             .g = rows + t.dy.shift[1],
                             .g_step = dy_plane,
                             .g_pitch = t.dy.pitch,
                             .planes = x_planes.get(),
                             .pitch = t.x.pitch,
                             .terms = terms.data(),
                             .term_count = terms.count(),
                             .sums = vectors.get(),
                             .sums_step = taps});
      }
      if (dw.data)
        kernels.sum_lanes(vectors.get(), filters * taps, partial.get() + part * part_size + g * filters * taps);
    }
  });
  if (!dw.data) return;
  for (int64_t part = 1; part < t.parts; ++part)
    for (int64_t i = 0; i < part_size; ++i) partial[i] += partial[part * part_size + i];
  for (int64_t k = 0; k < dy.C; ++k) {
    for (int64_t i = 0; i < taps; ++i) dw.data[k * taps + terms.place(i, w.H * w.W)] = partial[k * taps + i];
    if (o.dbias) o.dbias[k] = partial[weights + k];
  }
}

template void run(const DirectTiles&, const ConvOperands<float>&);
template void run(const DirectTiles&, const ConvOperands<double>&);
template void run(const DirectBackwardTiles&, const ConvGradientOperands<float>&);
template void run(const DirectBackwardTiles&, const ConvGradientOperands<double>&);

}  // namespace gradus::openmp_detail
