// Convolution by stencils (stencil_kernel.h) over planes (planes.h): an output plane is a sum of shifted input planes,
// each times a number. An output costs its C R S multiply-adds and little else, down to a single channel in a group.
//   y, dx   terms of a stencil are the taps in a column of the kernel, for each channel. A stride splits x into phases;
//           of dx, the pixels whose coordinates are equal mod stride share their taps and are computed in one pass
//   dw      dot products of dy with the planes that the forward pass reads, lane by lane; db sums dy
// A piece of work is a band of rows of one group of one image: all that needs its planes is computed while they are in
// the cache, so the backward pass reads dy, y and x from memory once.
#include <gradus/backends/openmp/conv2d/conv2d_direct.h>

#include <vector>

#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

// A tap along one axis: `index` in the kernel reads phase `phase`, `at` rows (columns) further than the output.
struct Tap {
  int64_t index, phase, at;
};
using Taps = std::vector<Tap>;

Taps forward_taps(int64_t kernel, int64_t stride, int64_t dilation) {
  Taps taps;
  for (int64_t r = 0; r < kernel; ++r) taps.push_back({r, r * dilation % stride, r * dilation / stride});
  return taps;
}

// The taps that reach dx's coordinates residue + i stride, from row i + at of dy; `at` ascends.
Taps backward_taps(int64_t residue, int64_t kernel, int64_t stride, int64_t dilation, int64_t padding) {
  Taps taps;
  for (int64_t r = kernel - 1; r >= 0; --r)
    if (const int64_t distance = residue + padding - r * dilation; distance % stride == 0)
      taps.push_back({r, 0, distance / stride});
  return taps;
}

// A sum over planes: the terms for the kernel, and the weights that they take.
class Terms {
 public:
  Terms() = default;
  Terms(const PlaneLayout& layout, const Taps& rows, const Taps& columns, int64_t kernel_columns) {
    std::vector<Taps> runs;  // taps that read neighbouring rows of a phase make one term
    for (int64_t phase = 0; phase < layout.split[0]; ++phase) {
      const Tap* last = nullptr;
      for (const Tap& tap : rows) {
        if (tap.phase != phase) continue;
        if (!last || tap.at != last->at + 1 || runs.back().size() == kStencilReach) runs.emplace_back();
        runs.back().push_back(tap);
        last = &tap;
      }
    }
    for (int64_t c = 0; c < layout.channels; ++c)
      for (const Taps& run : runs)
        for (const Tap& column : columns) {
          terms_.push_back(
              {layout.offset(c, run[0].phase, column.phase, run[0].at, column.at), static_cast<int64_t>(run.size())});
          for (const Tap& row : run) weights_.push_back({c, row.index * kernel_columns + column.index});
        }
  }

  const StencilTerm* data() const { return terms_.data(); }
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
  std::vector<StencilTerm> terms_;
  std::vector<Weight> weights_;
};

// Output pixels begin + i step (each axis) for i < size, which share their terms, and the terms' weights for each
// output channel.
template <class T>
struct Pass {
  int64_t begin[2], step[2], size[2];
  Terms terms;
  std::vector<T> weights;

  Pass(int64_t row, int64_t column, const int64_t (&step)[2], const Images<T>& out, Terms sums)
      : begin{row, column}, step{step[0], step[1]}, size{divide_up(out.H - row, step[0]),
                                                         divide_up(out.W - column, step[1])},
        terms(std::move(sums)), weights(static_cast<size_t>(out.C * terms.weights())) {}
};

// Rows [first, first + band) of a pass, for the `count` output channels of one group.
template <class T>
struct Band {
  const Kernels<T>& kernels;
  const T* planes;
  int64_t pitch, first, band, count;
  const T* bias;
  bool relu;

  /// `y` starts at the group's first channel of the image. Passes from `pass` on share their rows; their columns go to
  /// their places one by one, or, where those are not neighbours, by way of `sums`.
  void run(const Pass<T>* pass, int64_t column_passes, int64_t group, const Images<T>& y, T* sums) const {
    const int64_t height = rows(*pass), h_step = y.h_stride * pass->step[0];
    if (height <= 0) return;
    T* out = y.data + (pass->begin[0] + first * pass->step[0]) * y.h_stride;
    if (column_passes == 2 && y.w_stride == 1) {  // stride 2: what lies between the columns of one pass are the other's
      const int64_t sum_pitch = round_up(pass->size[1], kernels.vector_size), size = height * sum_pitch;
      for (int64_t k = 0; k < count; ++k) {
        for (int64_t b = 0; b < 2; ++b) compute(pass[b], group * count + k, sums + b * size, sum_pitch);
        for (int64_t i = 0; i < height; ++i)
          kernels.interleave(sums + i * sum_pitch, sums + size + i * sum_pitch, out + k * y.c_stride + i * h_step, y.W);
      }
      return;
    }
    for (const Pass<T>* last = pass + column_passes; pass < last; ++pass) {
      const int64_t width = pass->size[1], w_step = y.w_stride * pass->step[1];
      T* columns = out + pass->begin[1] * y.w_stride;
      if (w_step == 1 || width == 1) {
        for (int64_t k = 0; k < count; ++k) compute(*pass, group * count + k, columns + k * y.c_stride, h_step);
        continue;
      }
      const int64_t sum_pitch = round_up(width, kernels.vector_size), size = height * sum_pitch;
      for (int64_t k = 0; k < count; ++k) compute(*pass, group * count + k, sums + k * size, sum_pitch);
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
  void compute(const Pass<T>& pass, int64_t channel, T* out, int64_t out_pitch) const {
    kernels.stencil({.rows = rows(pass),
                     .columns = pass.size[1],
                     .planes = planes,
                     .pitch = pitch,
                     .terms = pass.terms.data(),
                     .term_count = pass.terms.count(),
                     .weights = pass.weights.data() + channel * pass.terms.weights(),
                     .bias = bias ? bias[channel] : T(0),
                     .relu = relu,
                     .out = out,
                     .out_pitch = out_pitch});
  }
  int64_t rows(const Pass<T>& pass) const { return std::min(band, pass.size[0] - first); }
};

// Images that start at the first channel of a group.
template <class T>
Images<T> group_of(Images<T> images, int64_t channel) {
  if (images.data) images.data += channel * images.c_stride;  // gradients that are not wanted have no data
  return images;
}

// The weights that a pass takes for each output channel: those of output channel m and channel c are at
// m * m_stride + c * c_stride, both counted in their group, groups being g_stride apart.
struct WeightStrides {
  int64_t m, c, g;
};
template <class T>
void gather_weights(Pass<T>& pass, const T* w, const WeightStrides& strides, int64_t groups, int64_t count) {
  T* to = pass.weights.data();
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t m = 0; m < count; ++m)
      for (int64_t i = 0; i < pass.terms.weights(); ++i)
        *to++ = w[g * strides.g + m * strides.m + pass.terms.place(i, strides.c)];
}

// The passes over dx: as many for each coordinate of the rows mod stride as there are coordinates of the columns.
template <class T>
std::vector<Pass<T>> backward_passes(const PlaneLayout& dy, const Images<const T>& w, const Images<T>& dx,
                                     const Conv2dGeometry& geometry) {
  const int64_t kernel[2] = {w.H, w.W}, size[2] = {dx.H, dx.W};
  std::vector<Taps> along[2];  // for each residue of dx's coordinate
  for (int axis = 0; axis < 2; ++axis)
    for (int64_t residue = 0; residue < std::min(geometry.stride[axis], size[axis]); ++residue) {
      along[axis].push_back(
          backward_taps(residue, kernel[axis], geometry.stride[axis], geometry.dilation[axis], geometry.padding[axis]));
      for (Tap& tap : along[axis].back()) tap.at += dy.shift[axis];
    }
  const int64_t taps = w.H * w.W;
  std::vector<Pass<T>> passes;
  for (size_t a = 0; a < along[0].size(); ++a)
    for (size_t b = 0; b < along[1].size(); ++b) {
      passes.emplace_back(static_cast<int64_t>(a), static_cast<int64_t>(b), geometry.stride, dx,
                          Terms(dy, along[0][a], along[1][b], w.W));
      gather_weights(passes.back(), w.data, {taps, w.C * taps, dy.channels * w.C * taps}, geometry.groups, w.C);
    }
  return passes;
}

// The terms of a sum over planes of x.
Terms forward_terms(const PlaneLayout& planes, const ImageLayout& w, const Conv2dGeometry& geometry) {
  return Terms(planes, forward_taps(w.H, geometry.stride[0], geometry.dilation[0]),
               forward_taps(w.W, geometry.stride[1], geometry.dilation[1]), w.W);
}

}  // namespace

template <class T>
void convolve_directly(const Kernels<T>& kernels, const DirectTiles& t, const Images<const T>& x,
                       const Images<const T>& w, const T* bias, bool relu, const Images<T>& y,
                       const Conv2dGeometry& geometry) {
  const int64_t groups = geometry.groups, filters = y.C / groups, size = w.H * w.W;
  Pass<T> pass(0, 0, {1, 1}, y, forward_terms(t.planes, w, geometry));
  gather_weights(pass, w.data, {w.C * size, size, filters * w.C * size}, groups, filters);
  parallel_for(y.N * groups * t.bands, t.grain, [&](int64_t begin, int64_t end) {
    const SmallScratch<T> planes(t.planes_size), sums(t.sums_size);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / t.bands / groups, g = i / t.bands % groups, first = i % t.bands * t.band;
      fill_planes(kernels, t.planes, group_of(x, g * w.C), n, first, static_cast<const T*>(nullptr), planes.get());
      Images<T> target = group_of(y, g * filters);
      target.data += n * y.n_stride;
      const Band<T> piece{kernels, planes.get(), t.planes.pitch, first, t.band, filters, bias, relu};
      piece.run(&pass, 1, g, target, sums.get());
    }
  });
}

template <class T>
void convolve_directly_backward(const Kernels<T>& kernels, const DirectBackwardTiles& t, const Images<const T>& dy,
                                const T* mask, const Images<const T>& x, const Images<const T>& w,
                                const ConvolutionGradients<T>& gradients, const Conv2dGeometry& geometry) {
  const Images<T>&dx = gradients.dx, &dw = gradients.dw;
  const int64_t groups = geometry.groups, filters = dy.C / groups, lanes = kernels.vector_size;
  const std::vector<Pass<T>> passes = dx.data ? backward_passes(t.dy, w, dx, geometry) : std::vector<Pass<T>>();
  const int64_t column_passes = std::min(geometry.stride[1], dx.W);
  const Terms terms = dw.data ? forward_terms(t.x, w, geometry) : Terms();
  const int64_t taps = terms.weights(), dy_plane = t.dy.channel_stride();

  // Sums are made apart for each group and part of the items; a part's dw is followed by its db.
  const int64_t weights = dw.data ? dy.C * taps : 0, part_size = weights + dy.C;
  const SmallScratch<T> partial(t.partial_size);
  parallel_for(t.parts * groups, t.grain, [&](int64_t begin, int64_t end) {
    const SmallScratch<T> dy_planes(t.dy_size), x_planes(t.x_size), sums(t.sums_size), vectors(t.vectors_size);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t part = unit / groups, g = unit % groups;
      const Images<const T> gradient = group_of(dy, g * filters);
      const T* group_mask = mask ? mask + g * filters * dy.c_stride : nullptr;
      T* dbias = dw.data ? partial.get() + part * part_size + weights + g * filters : nullptr;
      std::fill_n(vectors.get(), t.vectors_size, T(0));
      if (dw.data) std::fill_n(dbias, filters, T(0));
      for (int64_t item = part * t.items_in_part; item < std::min(t.items, (part + 1) * t.items_in_part); ++item) {
        const int64_t n = item / t.bands, first = item % t.bands * t.band;
        fill_planes(kernels, t.dy, gradient, n, first, group_mask, dy_planes.get());
        if (dx.data) {
          Images<T> target = group_of(dx, g * w.C);
          target.data += n * dx.n_stride;
          const Band<T> piece{kernels, dy_planes.get(), t.dy.pitch, first, t.band, w.C, nullptr, false};
          for (size_t i = 0; i < passes.size(); i += static_cast<size_t>(column_passes))
            piece.run(&passes[i], column_passes, g, target, sums.get());
        }
        const int64_t height = std::min(t.band, dy.H - first);
        if (!dw.data || height <= 0) continue;
        fill_planes(kernels, t.x, group_of(x, g * w.C), n, first, static_cast<const T*>(nullptr), x_planes.get());
        for (int64_t k = 0; k < filters; ++k) {
          const T* rows = dy_planes.get() + k * dy_plane + t.dy.shift[0] * t.dy.pitch;
          if (gradients.dbias) dbias[k] += kernels.sum(rows, height * t.dy.pitch);
          kernels.stencil_sums({.rows = height,
                                .columns = dy.W,
                                .g = rows + t.dy.shift[1],
                                .g_pitch = t.dy.pitch,
                                .planes = x_planes.get(),
                                .pitch = t.x.pitch,
                                .terms = terms.data(),
                                .term_count = terms.count(),
                                .sums = vectors.get() + k * taps * lanes});
        }
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
    if (gradients.dbias) gradients.dbias[k] = partial[weights + k];
  }
}

template void convolve_directly(const Kernels<float>&, const DirectTiles&, const Images<const float>&,
                                const Images<const float>&, const float*, bool, const Images<float>&,
                                const Conv2dGeometry&);
template void convolve_directly(const Kernels<double>&, const DirectTiles&, const Images<const double>&,
                                const Images<const double>&, const double*, bool, const Images<double>&,
                                const Conv2dGeometry&);
template void convolve_directly_backward(const Kernels<float>&, const DirectBackwardTiles&, const Images<const float>&,
                                         const float*, const Images<const float>&, const Images<const float>&,
                                         const ConvolutionGradients<float>&, const Conv2dGeometry&);
template void convolve_directly_backward(const Kernels<double>&, const DirectBackwardTiles&,
                                         const Images<const double>&, const double*, const Images<const double>&,
                                         const Images<const double>&, const ConvolutionGradients<double>&,
                                         const Conv2dGeometry&);

}  // namespace gradus::openmp
