// Depthwise convolution (one input and one output channel in each group) of channels-last images, and of others by way
// of a transposed copy, which pays where planes are small. An output row is cut where windows begin to lie wholly
// inside the image; what each piece reads is a list of taps for depthwise_kernel.h, so that padding costs nothing.
//   y, dx   sums over pixels times vectors of weights; dx by passes over its pixels, equal mod stride
//           (conv2d_direct.cpp)
//   dw, db  sums over rows of dy, made apart for pieces of the batch and added in order; db is dw for an image of ones
#include <gradus/backends/openmp/conv2d/conv2d_direct.h>
#include <gradus/backends/openmp/simd/windows.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

constexpr int64_t kCopyGrain = 8192;  // elements that are worth a chunk of copying

// What a tap reads and the weights it takes, as the kernels want them.
class TapList {
 public:
  /// `kernel_columns` weights of a row of the kernel are `channels` apart each.
  template <class T>
  void set(const std::vector<WindowTap>& taps, const Images<const T>& x, int64_t kernel_columns) {
    offsets.clear(), weights.clear();
    for (const WindowTap& tap : taps) {
      offsets.push_back(tap.h * x.h_stride + tap.w * x.w_stride);
      weights.push_back((tap.r * kernel_columns + tap.s) * x.C);
    }
  }
  int64_t count() const { return static_cast<int64_t>(offsets.size()); }
  std::vector<int64_t> offsets, weights;
};

// Images whose channels are neighbours in memory: the given ones, or a copy of dense planes.
template <class T>
class ChannelsLast {
 public:
  using Element = std::remove_const_t<T>;
  explicit ChannelsLast(const Images<T>& given)
      : given_(given), images_(given), copied_(given.c_stride != 1),
        memory_(copied_ ? given.N * given.C * given.H * given.W : 0) {
    if (!copied_) return;
    images_.data = memory_.get();
    images_.c_stride = 1, images_.w_stride = given.C;
    images_.h_stride = given.C * given.W, images_.n_stride = given.C * plane();
  }
  const Images<T>& images() const { return images_; }
  /// Fills the copy.
  void load(const Kernels<Element>& kernels) const {
    for_each_image([&](int64_t n) {
      kernels.transpose(given_.data + n * given_.n_stride, given_.c_stride, given_.C, plane(),
                        memory_.get() + n * images_.n_stride, given_.C);
    });
  }
  /// Writes it back.
  void store(const Kernels<Element>& kernels) const {
    for_each_image([&](int64_t n) {
      kernels.transpose(memory_.get() + n * images_.n_stride, given_.C, plane(), given_.C,
                        given_.data + n * given_.n_stride, given_.c_stride);
    });
  }

 private:
  int64_t plane() const { return given_.H * given_.W; }
  template <class F>
  void for_each_image(F&& f) const {
    if (!copied_) return;
    parallel_for(given_.N, divide_up(kCopyGrain, given_.C * plane() + 1), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) f(n);
    });
  }

  Images<T> given_, images_;
  bool copied_;
  Scratch<Element> memory_;
};

// w (C, 1, R, S) with the channels last.
template <class T>
Scratch<T> channels_last(const Kernels<T>& kernels, const Images<const T>& w) {
  Scratch<T> weights(w.N * w.H * w.W);
  kernels.transpose(w.data, w.H * w.W, w.N, w.H * w.W, weights.get(), w.N);
  return weights;
}

// y from x, or dx from dy: row h of the result is given by rows[h mod rows.size()], its pixels by all of `columns`.
template <class T>
void convolve_channels(const Kernels<T>& kernels, const Images<const T>& x, const T* weights, int64_t kernel_columns,
                       const T* bias, bool relu, const Images<T>& y, int64_t grain,
                       const std::vector<WindowAxis>& row_axes, const std::vector<WindowAxis>& column_axes) {
  if (y.N * y.H * y.W == 0) return;
  const auto row_classes = static_cast<int64_t>(row_axes.size());
  parallel_for(y.N * y.H, grain, [&](int64_t begin, int64_t end) {
    std::vector<WindowTap> window;
    TapList taps;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / y.H, h = i % y.H;
      T* row = y.data + n * y.n_stride + h * y.h_stride;
      for (const WindowAxis& columns : column_axes)
        for_each_piece(
            row_axes[static_cast<size_t>(h % row_classes)], columns, h / row_classes, window,
            [&](int64_t first, int64_t count, const std::vector<WindowTap>&) {
              taps.set(window, x, kernel_columns);
              kernels.channel_stencil({.pixels = count,
                                       .channels = y.C,
                                       .x = x.data + n * x.n_stride,
                                       .x_step = columns.step * x.w_stride,
                                       .taps = taps.count(),
                                       .offsets = taps.offsets.data(),
                                       .weights = weights,
                                       .weight_offsets = taps.weights.data(),
                                       .bias = bias,
                                       .relu = relu,
                                       .out = row + (columns.out_begin + first * columns.out_step) * y.w_stride,
                                       .out_step = columns.out_step * y.w_stride});
            });
    }
  });
}

template <class T>
void depthwise_backward_weight(const Kernels<T>& kernels, const DepthwiseTiles& t, const Images<const T>& dy,
                               const Images<const T>& x, const ConvolutionGradients<T>& gradients,
                               const Conv2dGeometry& g) {
  const Images<T>& dw = gradients.dw;
  const int64_t C = x.C, taps_count = dw.H * dw.W, items = dy.N * dy.H;
  const WindowAxis rows = forward_axis(dy.H, x.H, dw.H, g.stride[0], g.padding[0], g.dilation[0]);
  const WindowAxis columns = forward_axis(dy.W, x.W, dw.W, g.stride[1], g.padding[1], g.dilation[1]);
  const int64_t weights = taps_count * C, part_size = weights + C;  // dw, channels last, then db
  const Scratch<T> partial(t.partial_size), ones(C);
  std::fill_n(ones.get(), C, T(1));
  parallel_for(t.parts, 1, [&](int64_t begin, int64_t end) {
    std::vector<WindowTap> window;
    TapList taps;
    for (int64_t part = begin; part < end; ++part) {
      T* sums = partial.get() + part * part_size;
      std::fill_n(sums, part_size, T(0));
      for (int64_t item = part * t.items_in_part; item < std::min(items, (part + 1) * t.items_in_part); ++item) {
        const int64_t n = item / dy.H, i = item % dy.H;
        const T* row = dy.data + n * dy.n_stride + i * dy.h_stride;
        for_each_piece(rows, columns, i, window, [&](int64_t first, int64_t count, const std::vector<WindowTap>&) {
          taps.set(window, x, dw.W);
          kernels.channel_stencil_sums({.pixels = count,
                                        .channels = C,
                                        .g = row + first * dy.w_stride,
                                        .g_step = dy.w_stride,
                                        .x = x.data + n * x.n_stride,
                                        .x_step = columns.step * x.w_stride,
                                        .taps = taps.count(),
                                        .offsets = taps.offsets.data(),
                                        .sums = sums,
                                        .sum_offsets = taps.weights.data()});
        });
        if (!gradients.dbias) continue;
        const int64_t offset = 0;
        kernels.channel_stencil_sums({.pixels = dy.W,
                                      .channels = C,
                                      .g = row,
                                      .g_step = dy.w_stride,
                                      .x = ones.get(),
                                      .x_step = 0,
                                      .taps = 1,
                                      .offsets = &offset,
                                      .sums = sums,
                                      .sum_offsets = &weights});
      }
    }
  });
  for (int64_t part = 1; part < t.parts; ++part)
    for (int64_t i = 0; i < part_size; ++i) partial[i] += partial[part * part_size + i];
  kernels.transpose(partial.get(), C, taps_count, C, dw.data, taps_count);
  if (gradients.dbias) std::copy_n(partial.get() + weights, C, gradients.dbias);
}

}  // namespace

template <class T>
void convolve_depthwise(const Kernels<T>& kernels, const DepthwiseTiles& tiles, const Images<const T>& x,
                        const Images<const T>& w, const T* bias, bool relu, const Images<T>& y,
                        const Conv2dGeometry& g) {
  const Scratch<T> weights = channels_last(kernels, w);
  const ChannelsLast<const T> in(x);
  const ChannelsLast<T> out(y);
  in.load(kernels);
  convolve_channels(kernels, in.images(), weights.get(), w.W, bias, relu, out.images(), tiles.grain,
                    {forward_axis(y.H, x.H, w.H, g.stride[0], g.padding[0], g.dilation[0])},
                    {forward_axis(y.W, x.W, w.W, g.stride[1], g.padding[1], g.dilation[1])});
  out.store(kernels);
}

template <class T>
void convolve_depthwise_backward(const Kernels<T>& kernels, const DepthwiseTiles& tiles, const Images<const T>& dy,
                                 const Images<const T>& x, const Images<const T>& w,
                                 const ConvolutionGradients<T>& gradients, const Conv2dGeometry& g) {
  const ChannelsLast<const T> gradient(dy);
  gradient.load(kernels);
  if (gradients.dx.data) {
    const Scratch<T> weights = channels_last(kernels, w);
    const ChannelsLast<T> out(gradients.dx);
    convolve_channels(kernels, gradient.images(), weights.get(), w.W, static_cast<const T*>(nullptr), false,
                      out.images(), tiles.grain,
                      backward_axes(x.H, dy.H, w.H, g.stride[0], g.padding[0], g.dilation[0]),
                      backward_axes(x.W, dy.W, w.W, g.stride[1], g.padding[1], g.dilation[1]));
    out.store(kernels);
  }
  if (gradients.dw.data) {
    const ChannelsLast<const T> in(x);
    in.load(kernels);
    depthwise_backward_weight(kernels, tiles, gradient.images(), in.images(), gradients, g);
  }
}

template void convolve_depthwise(const Kernels<float>&, const DepthwiseTiles&, const Images<const float>&,
                                 const Images<const float>&, const float*, bool, const Images<float>&,
                                 const Conv2dGeometry&);
template void convolve_depthwise(const Kernels<double>&, const DepthwiseTiles&, const Images<const double>&,
                                 const Images<const double>&, const double*, bool, const Images<double>&,
                                 const Conv2dGeometry&);
template void convolve_depthwise_backward(const Kernels<float>&, const DepthwiseTiles&, const Images<const float>&,
                                          const Images<const float>&, const Images<const float>&,
                                          const ConvolutionGradients<float>&, const Conv2dGeometry&);
template void convolve_depthwise_backward(const Kernels<double>&, const DepthwiseTiles&, const Images<const double>&,
                                          const Images<const double>&, const Images<const double>&,
                                          const ConvolutionGradients<double>&, const Conv2dGeometry&);

}  // namespace gradus::openmp
