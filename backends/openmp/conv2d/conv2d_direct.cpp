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
bool has_few_channels(const Shape& w, const Conv2dGeometry& geometry) {
  // A tile of the matrix product (gemm_kernel.h) has the group's output channels for rows, which is what it lacks here;
  // from four on it is filled well enough, and from three times three channels on both are as fast.
  const int64_t channels = w[1], filters = w[0] / geometry.groups;
  return filters <= 4 && channels * filters <= 9;
}

namespace {

constexpr int64_t kForwardBytes = int64_t{32} << 10;    // of a band's planes, which every filter reads anew
constexpr int64_t kBackwardBytes = int64_t{256} << 10;  // of a band's planes of x and dy
constexpr int64_t kChunkWork = int64_t{1} << 17;        // multiply-adds that are worth a chunk of parallel work
constexpr int64_t kChunksWanted = 32;
constexpr int64_t kParts = 16;  // pieces of a batch whose dw are summed apart

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

// How many rows of `total` are worked on together: `fit` at most, in bands of nearly equal height.
int64_t band_of(int64_t total, int64_t fit) {
  const int64_t most = std::max<int64_t>(1, std::min(total, fit));
  return std::max<int64_t>(1, divide_up(total, std::max<int64_t>(1, divide_up(total, most))));
}

// Pieces in a chunk of parallel work, by shape.
int64_t grain_of(int64_t pieces, int64_t work) {
  return std::max(divide_up(pieces, kChunksWanted), divide_up(kChunkWork, work + 1));
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

// What the gradients of one convolution are computed with.
template <class T>
struct BackwardPlan {
  PlaneLayout dy, x;  // of one group
  int64_t rows = 0;   // of dy, or of the largest pass over dx
  int64_t band = 0;
  std::vector<Pass<T>> passes;  // over dx: `column_passes` for each coordinate of the rows mod stride
  int64_t column_passes = 0;
  Terms taps;  // of dw

  BackwardPlan(const Images<const T>& dy_images, const Images<const T>& x_images, const Images<const T>& w,
               const ConvolutionGradients<T>& gradients, const Conv2dGeometry& geometry, int64_t lanes) {
    const bool wants_dx = gradients.dx.data, wants_dw = gradients.dw.data;
    const int64_t kernel[2] = {w.H, w.W}, in[2] = {x_images.H, x_images.W}, out[2] = {dy_images.H, dy_images.W};
    const int64_t groups = geometry.groups, filters = dy_images.C / groups;
    int64_t positions[2] = {0, 0};  // of a pass or of dy
    int64_t dy_reach[2] = {0, 0}, x_reach[2];
    std::vector<Taps> along[2];  // for each residue of dx's coordinate
    for (int axis = 0; axis < 2; ++axis) {
      const int64_t stride = geometry.stride[axis], dilation = geometry.dilation[axis],
                    padding = geometry.padding[axis];
      x.split[axis] = stride, x.shift[axis] = padding;
      x_reach[axis] = (kernel[axis] - 1) * dilation / stride;
      if (wants_dw) positions[axis] = out[axis];
      if (!wants_dx) continue;
      positions[axis] = std::max(positions[axis], divide_up(in[axis], stride));
      int64_t margin = 0;
      for (int64_t residue = 0; residue < std::min(stride, in[axis]); ++residue) {
        along[axis].push_back(backward_taps(residue, kernel[axis], stride, dilation, padding));
        for (const Tap& tap : along[axis].back())
          margin = std::max(margin, -tap.at), dy_reach[axis] = std::max(dy_reach[axis], tap.at);
      }
      for (Taps& taps : along[axis])
        for (Tap& tap : taps) tap.at += margin;
      dy.shift[axis] = margin;
    }
    dy.channels = filters, x.channels = w.C;
    dy.pitch = dy.shift[1] + round_up(positions[1], lanes) + dy_reach[1];
    x.pitch = round_up(out[1], lanes) + x_reach[1];
    rows = positions[0];
    const int64_t row_bytes =
        (dy.channels * dy.pitch + x.channels * x.split[0] * x.split[1] * x.pitch) * static_cast<int64_t>(sizeof(T));
    band = band_of(rows, kBackwardBytes / std::max<int64_t>(row_bytes, 1));
    dy.rows = dy.shift[0] + band + dy_reach[0];
    x.rows = band + x_reach[0];
    column_passes = static_cast<int64_t>(along[1].size());
    if (wants_dx)
      for (size_t a = 0; a < along[0].size(); ++a)
        for (size_t b = 0; b < along[1].size(); ++b) {
          const int64_t size = kernel[0] * kernel[1];
          passes.emplace_back(static_cast<int64_t>(a), static_cast<int64_t>(b), geometry.stride, gradients.dx,
                              Terms(dy, along[0][a], along[1][b], kernel[1]));
          gather_weights(passes.back(), w.data, {size, w.C * size, filters * w.C * size}, groups, w.C);
        }
    if (wants_dw)
      taps = Terms(x, forward_taps(kernel[0], geometry.stride[0], geometry.dilation[0]),
                   forward_taps(kernel[1], geometry.stride[1], geometry.dilation[1]), kernel[1]);
  }
};

}  // namespace

template <class T>
void convolve_directly(const KernelTable& table, const Images<const T>& x, const Images<const T>& w, const T* bias,
                       bool relu, const Images<T>& y, const Conv2dGeometry& geometry) {
  if (y.N * y.C * y.H * y.W == 0) return;
  const Kernels<T>& kernels = kernels_of<T>(table);
  const int64_t groups = geometry.groups, filters = y.C / groups, size = w.H * w.W;
  PlaneLayout layout;
  layout.channels = w.C;
  for (int axis = 0; axis < 2; ++axis)
    layout.split[axis] = geometry.stride[axis], layout.shift[axis] = geometry.padding[axis];
  const int64_t reach[2] = {(w.H - 1) * geometry.dilation[0] / geometry.stride[0],
                            (w.W - 1) * geometry.dilation[1] / geometry.stride[1]};
  layout.pitch = round_up(y.W, kernels.vector_size) + reach[1];
  const int64_t row_bytes =
      layout.channels * layout.split[0] * layout.split[1] * layout.pitch * static_cast<int64_t>(sizeof(T));
  const int64_t band = band_of(y.H, kForwardBytes / std::max<int64_t>(row_bytes, 1) - reach[0]),
                bands = divide_up(y.H, band);
  layout.rows = band + reach[0];
  Pass<T> pass(0, 0, {1, 1}, y,
               Terms(layout, forward_taps(w.H, geometry.stride[0], geometry.dilation[0]),
                     forward_taps(w.W, geometry.stride[1], geometry.dilation[1]), w.W));
  gather_weights(pass, w.data, {w.C * size, size, filters * w.C * size}, groups, filters);

  const int64_t pieces = y.N * groups * bands, work = filters * pass.terms.weights() * band * y.W;
  const int64_t sums_size = y.w_stride == 1 ? 0 : filters * band * round_up(y.W, kernels.vector_size);
  parallel_for(pieces, grain_of(pieces, work), [&](int64_t begin, int64_t end) {
    const SmallScratch<T> planes(layout.channels * layout.channel_stride()), sums(sums_size);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / bands / groups, g = i / bands % groups, first = i % bands * band;
      fill_planes(kernels, layout, group_of(x, g * w.C), n, first, static_cast<const T*>(nullptr), planes.get());
      Images<T> target = group_of(y, g * filters);
      target.data += n * y.n_stride;
      const Band<T> piece{kernels, planes.get(), layout.pitch, first, band, filters, bias, relu};
      piece.run(&pass, 1, g, target, sums.get());
    }
  });
}

template <class T>
void convolve_directly_backward(const KernelTable& table, const Images<const T>& dy, const T* mask,
                                const Images<const T>& x, const Images<const T>& w,
                                const ConvolutionGradients<T>& gradients, const Conv2dGeometry& geometry) {
  const Kernels<T>& kernels = kernels_of<T>(table);
  const Images<T>&dx = gradients.dx, &dw = gradients.dw;
  const int64_t groups = geometry.groups, filters = dy.C / groups, lanes = kernels.vector_size;
  const BackwardPlan<T> plan(dy, x, w, gradients, geometry, lanes);
  const int64_t band = plan.band, bands = divide_up(plan.rows, band), items = dy.N * bands;
  const int64_t taps = plan.taps.weights(), dy_plane = plan.dy.channel_stride();

  // Sums are made apart for each group and part of the items; a part's dw is followed by its db.
  const int64_t work = filters * w.C * w.H * w.W * band * (dy.W + dx.W);
  const int64_t parts_wanted = std::min(divide_up(kParts, groups), divide_up(items * groups * work, kChunkWork));
  const int64_t items_in_part = std::max<int64_t>(1, divide_up(items, std::max<int64_t>(parts_wanted, 1)));
  const int64_t parts = std::max<int64_t>(1, divide_up(items, items_in_part));
  const int64_t weights = dw.data ? dy.C * taps : 0, part_size = weights + dy.C;
  const SmallScratch<T> partial(dw.data ? parts * part_size : 0);
  const int64_t sums_size =
      dx.data && dx.w_stride * geometry.stride[1] != 1
          ? std::max<int64_t>(2, w.C) * band * round_up(divide_up(dx.W, geometry.stride[1]), lanes)
          : 0;
  const int64_t pieces = parts * groups;
  parallel_for(pieces, grain_of(pieces, items_in_part * work), [&](int64_t begin, int64_t end) {
    const SmallScratch<T> dy_planes(filters * dy_plane),
        x_planes(dw.data ? plan.x.channels * plan.x.channel_stride() : 0);
    const SmallScratch<T> sums(sums_size), vectors(filters * taps * lanes);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t part = unit / groups, g = unit % groups;
      const Images<const T> gradient = group_of(dy, g * filters);
      const T* group_mask = mask ? mask + g * filters * dy.c_stride : nullptr;
      T* dbias = dw.data ? partial.get() + part * part_size + weights + g * filters : nullptr;
      std::fill_n(vectors.get(), filters * taps * lanes, T(0));
      if (dw.data) std::fill_n(dbias, filters, T(0));
      for (int64_t item = part * items_in_part; item < std::min(items, (part + 1) * items_in_part); ++item) {
        const int64_t n = item / bands, first = item % bands * band;
        fill_planes(kernels, plan.dy, gradient, n, first, group_mask, dy_planes.get());
        if (dx.data) {
          Images<T> target = group_of(dx, g * w.C);
          target.data += n * dx.n_stride;
          const Band<T> piece{kernels, dy_planes.get(), plan.dy.pitch, first, band, w.C, nullptr, false};
          for (size_t i = 0; i < plan.passes.size(); i += static_cast<size_t>(plan.column_passes))
            piece.run(&plan.passes[i], plan.column_passes, g, target, sums.get());
        }
        const int64_t height = std::min(band, dy.H - first);
        if (!dw.data || height <= 0) continue;
        fill_planes(kernels, plan.x, group_of(x, g * w.C), n, first, static_cast<const T*>(nullptr), x_planes.get());
        for (int64_t k = 0; k < filters; ++k) {
          const T* rows = dy_planes.get() + k * dy_plane + plan.dy.shift[0] * plan.dy.pitch;
          if (gradients.dbias) dbias[k] += kernels.sum(rows, height * plan.dy.pitch);
          kernels.stencil_sums({.rows = height,
                                .columns = dy.W,
                                .g = rows + plan.dy.shift[1],
                                .g_pitch = plan.dy.pitch,
                                .planes = x_planes.get(),
                                .pitch = plan.x.pitch,
                                .terms = plan.taps.data(),
                                .term_count = plan.taps.count(),
                                .sums = vectors.get() + k * taps * lanes});
        }
      }
      if (dw.data)
        kernels.sum_lanes(vectors.get(), filters * taps, partial.get() + part * part_size + g * filters * taps);
    }
  });
  if (!dw.data) return;
  for (int64_t part = 1; part < parts; ++part)
    for (int64_t i = 0; i < part_size; ++i) partial[i] += partial[part * part_size + i];
  for (int64_t k = 0; k < dy.C; ++k) {
    for (int64_t i = 0; i < taps; ++i) dw.data[k * taps + plan.taps.place(i, w.H * w.W)] = partial[k * taps + i];
    if (gradients.dbias) gradients.dbias[k] = partial[weights + k];
  }
}

template void convolve_directly(const KernelTable&, const Images<const float>&, const Images<const float>&,
                                const float*, bool, const Images<float>&, const Conv2dGeometry&);
template void convolve_directly(const KernelTable&, const Images<const double>&, const Images<const double>&,
                                const double*, bool, const Images<double>&, const Conv2dGeometry&);
template void convolve_directly_backward(const KernelTable&, const Images<const float>&, const float*,
                                         const Images<const float>&, const Images<const float>&,
                                         const ConvolutionGradients<float>&, const Conv2dGeometry&);
template void convolve_directly_backward(const KernelTable&, const Images<const double>&, const double*,
                                         const Images<const double>&, const Images<const double>&,
                                         const ConvolutionGradients<double>&, const Conv2dGeometry&);

}  // namespace gradus::openmp
