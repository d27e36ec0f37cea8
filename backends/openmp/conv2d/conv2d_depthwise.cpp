// Depthwise convolution (one input and one output channel in each group) of channels-last images, and of others by way
// of a transposed copy, which pays where planes are small. An output row is cut where windows begin to be wholly
// inside the image; what each piece reads is a list of taps for depthwise_kernel.h, so that padding costs nothing.
//   y, dx   sums over pixels times vectors of weights; dx by passes over its pixels, equal mod stride
//           (conv2d_direct.cpp)
//   dw, db  sums over rows of dy, made apart for pieces of the batch and added in order; db is dw for an image of ones
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
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
    parallel_for(given_.N, ceil_div(kCopyGrain, given_.C * plane() + 1), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) f(n);
    });
  }

  Images<T> given_, images_;
  bool copied_;
  Scratch<Element> memory_;
};

// Row h of the result is given by axis h mod axes(0).size() of the rows, its pixels by all axes of the columns.
template <class T>
void convolve_channels(const DepthwiseTiles& t, const ConvOperands<T>& o, const Images<const T>& x) {
  const Kernels<T>& kernels = o.kernels();
  const Scratch<T> weights(t.weights_size);  // with the channels last
  kernels.transpose(o.w.data, o.w.H * o.w.W, o.w.N, o.w.H * o.w.W, weights.get(), o.w.N);
  const ChannelsLast<T> out(o.y);
  const Images<T>& y = out.images();
  if (y.N * y.H * y.W == 0) return;
  const std::vector<WindowAxis> row_axes = o.axes(0), column_axes = o.axes(1);
  const auto row_classes = static_cast<int64_t>(row_axes.size());
  parallel_for(y.N * y.H, t.grain, [&](int64_t begin, int64_t end) {
    std::vector<WindowTap> window;
    TapList taps;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / y.H, h = i % y.H;
      T* row = y.data + n * y.n_stride + h * y.h_stride;
      for (const WindowAxis& columns : column_axes)
        for_each_piece(row_axes[static_cast<size_t>(h % row_classes)], columns, h / row_classes, window,
                       [&](int64_t first, int64_t count, const std::vector<WindowTap>&) {
                         taps.set(window, x, o.w.W);
                         kernels.depthwise({.pixels = count,
                                            .channels = y.C,
                                            .x = x.data + n * x.n_stride,
                                            .x_step = columns.step * x.w_stride,
                                            .taps = taps.count(),
                                            .offsets = taps.offsets.data(),
                                            .weights = weights.get(),
                                            .weight_offsets = taps.weights.data(),
                                            .bias = o.bias,
                                            .relu = o.relu,
                                            .out = row + (columns.out_begin + first * columns.out_step) * y.w_stride,
                                            .out_step = columns.out_step * y.w_stride});
                       });
    }
  });
  out.store(kernels);
}

template <class T>
void sum_weight_gradient(const DepthwiseTiles& t, const ConvGradientOperands<T>& o, const Images<const T>& dy,
                         const Images<const T>& x) {
  const Kernels<T>& kernels = o.kernels();
  const Images<T>& dw = o.dw;
  const int64_t C = x.C, taps_count = dw.H * dw.W, items = dy.N * dy.H;
  const auto along = [&](int axis) {
    return conv_axes(false, o.geometry, axis, dy.size(axis), x.size(axis), dw.size(axis))[0];
  };
  const WindowAxis rows = along(0), columns = along(1);
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
          kernels.depthwise_sums({.pixels = count,
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
        if (!o.dbias) continue;
        const int64_t offset = 0;
        kernels.depthwise_sums({.pixels = dy.W,
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
  if (o.dbias) std::copy_n(partial.get() + weights, C, o.dbias);
}

}  // namespace

template <class T>
void run(const DepthwiseTiles& t, const ConvOperands<T>& o) {
  const ChannelsLast<const T> in(o.x);
  in.load(o.kernels());
  convolve_channels(t, o, in.images());
}

template <class T>
void run(const DepthwiseTiles& t, const ConvGradientOperands<T>& o) {
  const ChannelsLast<const T> gradient(o.dy);
  gradient.load(o.kernels());
  if (o.dx.data)
    convolve_channels(t, {o.table, o.geometry, true, o.dy, nullptr, o.w, nullptr, false, o.dx}, gradient.images());
  if (!o.dw.data) return;
  const ChannelsLast<const T> in(o.x);
  in.load(o.kernels());
  sum_weight_gradient(t, o, gradient.images(), in.images());
}

template void run(const DepthwiseTiles&, const ConvOperands<float>&);
template void run(const DepthwiseTiles&, const ConvOperands<double>&);
template void run(const DepthwiseTiles&, const ConvGradientOperands<float>&);
template void run(const DepthwiseTiles&, const ConvGradientOperands<double>&);

}  // namespace gradus::openmp_detail
