// y[n, c, p, q] = max over r, s of x[n, c, p stride - padding + r dilation, q …] and where in the plane it was found;
// dx[n, c, index] += dy[n, c, p, q]. Vector kernels (pool_kernel.h) take the columns of dense planes or the channels of
// channels-last pixels, of float and double; other layouts and half types go through copies.
#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/windows.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// A tap of a window, at (h, w) of the source.
struct WindowTap {
  int64_t h, w;
};

// Calls f(first, count) for each run of row i of the result, columns [first, first + count) that see the same taps;
// `taps` then has those of the first.
template <class F>
void for_each_window_run(const WindowAxis& rows, const WindowAxis& columns, const std::vector<Span>& column_spans,
                         int64_t i, std::vector<WindowTap>& taps, F&& f) {
  for (const Span& span : column_spans) {
    taps.clear();
    for (int64_t r = 0; r < static_cast<int64_t>(rows.taps.size()); ++r)
      for (int64_t s = span.first_tap, h = rows.at(i, r); h >= 0 && h < rows.source && s < span.last_tap; ++s)
        taps.push_back({h, columns.at(span.begin, s)});
    f(span.begin, span.end - span.begin);
  }
}

// Neighbours in a row of the result that see the same taps: the kernel's arguments for those of the first image.
template <class Args>
struct WindowRun {
  Args args;
  std::vector<int64_t> offsets, index_offsets;
  std::vector<int32_t> places;
};

// Calls f(a run's arguments, image) for all runs of all images, by several threads.
template <class Args, class F>
void for_each_run(const std::vector<WindowRun<Args>>& runs, int64_t images, int64_t image_work, F&& f) {
  const auto count = static_cast<int64_t>(runs.size());
  parallel_each(images * count, ceil_div(kGrain * count, image_work + 1),
                [&](int64_t i) { f(Args(runs[static_cast<size_t>(i % count)].args), i / count); });
}

// Lanes are the channels of a pixel, or neighbouring pixels of a plane, of which all channels are done in turn.
template <class T>
void max_pool(const View& x, const MutableView& y, const MutableView& indices, const Pool2dGeometry& g, bool channels) {
  const auto axis = [&](int i) {
    return forward_axis(y.shape[2 + i], x.shape[2 + i], g.kernel[i], g.stride[i], g.padding[i], g.dilation[i]);
  };
  const WindowAxis rows = axis(0), columns = axis(1);
  const int64_t K = y.shape[1], step = g.stride[1];
  const std::vector<Span> spans = spans_of(columns);
  std::vector<WindowTap> window;
  std::vector<WindowRun<PoolArgs<T>>> runs;
  for (int64_t p = 0; p < y.shape[2]; ++p)
    for_each_window_run(rows, columns, spans, p, window, [&](int64_t first, int64_t count) {
      WindowRun<PoolArgs<T>>& run = runs.emplace_back();
      for (const WindowTap& tap : window) {
        run.offsets.push_back(tap.h * x.strides[2] + tap.w * x.strides[3]);
        run.places.push_back(static_cast<int32_t>(tap.h * x.shape[3] + tap.w));
      }
      run.args = {.rows = channels ? count : K,
                  .lanes = channels ? K : count,
                  .x = x.as<T>(),
                  .x_row = channels ? step * x.strides[3] : x.strides[1],
                  .x_lane = channels ? 1 : step,
                  .taps = static_cast<int64_t>(window.size()),
                  .offsets = run.offsets.data(),
                  .places = run.places.data(),
                  .place_row = channels ? step : 0,
                  .place_lane = channels ? 0 : step,
                  .y = y.as<T>() + p * y.strides[2] + first * y.strides[3],
                  .indices = indices.as<int32_t>() + p * indices.strides[2] + first * indices.strides[3],
                  .y_row = y.strides[channels ? 3 : 1],
                  .index_row = indices.strides[channels ? 3 : 1]};
    });
  for_each_run(runs, y.shape[0], y.numel() / y.shape[0] * g.kernel[0] * g.kernel[1], [&](PoolArgs<T> args, int64_t n) {
    args.x += n * x.strides[0], args.y += n * y.strides[0], args.indices += n * indices.strides[0];
    kernels_of<T>(kernel_table()).max_pool(args);
  });
}

template <class T>
void max_pool_channels_backward(const View& dy, const View& indices, const MutableView& dx, const Pool2dGeometry& g) {
  const auto axes = [&](int i) {
    return backward_axes(dx.shape[2 + i], dy.shape[2 + i], g.kernel[i], g.stride[i], g.padding[i], g.dilation[i]);
  };
  const std::vector<WindowAxis> row_axes = axes(0), column_axes = axes(1);
  const auto classes = static_cast<int64_t>(row_axes.size());
  std::vector<std::vector<Span>> spans;
  for (const WindowAxis& columns : column_axes) spans.push_back(spans_of(columns));
  std::vector<WindowTap> window;
  std::vector<WindowRun<ChannelPoolBackwardArgs<T>>> runs;
  for (int64_t h = 0; h < dx.shape[2]; ++h)
    for (size_t k = 0; k < column_axes.size(); ++k)
      for_each_window_run(row_axes[static_cast<size_t>(h % classes)], column_axes[k], spans[k], h / classes, window,
                          [&](int64_t first, int64_t count) {
                            WindowRun<ChannelPoolBackwardArgs<T>>& run = runs.emplace_back();
                            for (const WindowTap& tap : window) {
                              run.offsets.push_back(tap.h * dy.strides[2] + tap.w * dy.strides[3]);
                              run.index_offsets.push_back(tap.h * indices.strides[2] + tap.w * indices.strides[3]);
                            }
                            const WindowAxis& columns = column_axes[k];
                            const int64_t w = columns.out_begin + first * columns.out_step;
                            run.args = {.pixels = count,
                                        .channels = dx.shape[1],
                                        .dy = dy.as<T>(),
                                        .indices = indices.as<int32_t>(),
                                        .dy_step = dy.strides[3],
                                        .index_step = indices.strides[3],
                                        .taps = static_cast<int64_t>(window.size()),
                                        .offsets = run.offsets.data(),
                                        .index_offsets = run.index_offsets.data(),
                                        .place = h * dx.shape[3] + w,
                                        .place_step = columns.out_step,
                                        .dx = dx.as<T>() + h * dx.strides[2] + w * dx.strides[3],
                                        .dx_step = columns.out_step * dx.strides[3]};
                          });
  for_each_run(runs, dx.shape[0], dx.numel() / dx.shape[0] * g.kernel[0],
               [&](ChannelPoolBackwardArgs<T> args, int64_t n) {
                 args.dy += n * dy.strides[0], args.indices += n * indices.strides[0], args.dx += n * dx.strides[0];
                 kernels_of<T>(kernel_table()).max_pool_channels_backward(args);
               });
}

// Types and layouts that kernels lack go through images of float or double.
struct Copies {
  DType dtype;
  MemoryFormat format;
  explicit Copies(const View& x)
      : dtype(x.dtype == DType::f64 ? DType::f64 : DType::f32),
        format(has_channels_last(x) ? MemoryFormat::channels_last : MemoryFormat::contiguous) {}
  Array make(const StridedLayout& x) const { return Array::empty(x.shape, dtype, {}, format); }
  Array indices(const StridedLayout& x) const { return Array::empty(x.shape, DType::i32, {}, format); }
};

bool is_wide(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

}  // namespace

void OpenmpBackend::max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                               const Pool2dGeometry& geometry) {
  const bool channels = has_channels_last(x) && has_channels_last(y) && has_channels_last(indices);
  const bool planes = has_dense_planes(x) && has_dense_planes(y) && has_dense_planes(indices);
  if (y.numel() > 0 && !(is_wide(x.dtype) && (channels || planes))) {
    const Copies copies(x);
    const Array in = copies.make(x), out = copies.make(y), places = copies.indices(indices);
    copy(x, in);
    max_pool2d(in, out, places, geometry);
    copy(out, y), copy(places, indices);
    return;
  }
  EventScope event("max_pool2d", "openmp", kernel_table().vectors, {&x, &y, &indices},
                   y.numel() * geometry.kernel[0] * geometry.kernel[1]);
  if (y.numel() == 0) return;
  visit_wide(x.dtype, [&]<class T> { max_pool<T>(x, y, indices, geometry, channels); });
}

void OpenmpBackend::max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                        const Pool2dGeometry& geometry) {
  const bool channels = has_channels_last(dx) && has_channels_last(dy) && has_channels_last(indices);
  const bool planes = has_dense_planes(dx) && has_dense_planes(dy) && has_dense_planes(indices);
  if (dx.numel() > 0 && !(is_wide(dx.dtype) && (channels || planes))) {
    const Copies copies(dx);
    const Array gradient = copies.make(dy), places = copies.indices(indices), out = copies.make(dx);
    copy(dy, gradient), copy(indices, places);
    max_pool2d_backward(gradient, places, out, geometry);
    copy(out, dx);
    return;
  }
  const int64_t K = dx.shape[1], H = dx.shape[2], W = dx.shape[3], P = dy.shape[2], Q = dy.shape[3];
  bool two_by_two = P == H / 2 && Q == W / 2;  // by steps of two, and inside the image
  for (int i : {0, 1})
    two_by_two = two_by_two && geometry.kernel[i] == 2 && geometry.stride[i] == 2 && geometry.dilation[i] == 1 &&
                 geometry.padding[i] == 0;
  EventScope event("max_pool2d_backward", "openmp", channels || two_by_two ? kernel_table().vectors : "loops",
                   {&dy, &indices, &dx}, dy.numel());
  if (dx.numel() == 0) return;
  visit_wide(dx.dtype, [&]<class T> {
    if (channels) return max_pool_channels_backward<T>(dy, indices, dx, geometry);
    parallel_each(dx.shape[0] * K, ceil_div(kGrain, H * W + P * Q + 1), [&](int64_t i) {
      const int64_t n = i / K, c = i % K;
      const T* gradient = dy.as<T>() + n * dy.strides[0] + c * dy.strides[1];
      const int32_t* index = indices.as<int32_t>() + n * indices.strides[0] + c * indices.strides[1];
      T* plane = dx.as<T>() + n * dx.strides[0] + c * dx.strides[1];
      if (two_by_two) {
        kernels_of<T>(kernel_table())
            .max_pool_backward_2x2(
                {.dy = gradient, .indices = index, .rows = P, .columns = Q, .dx = plane, .width = W});
        if (W % 2)
          for (int64_t h = 0; h < H; ++h) plane[h * W + W - 1] = T(0);
        if (H % 2) std::fill_n(plane + (H - 1) * W, W, T(0));
        return;
      }
      std::fill_n(plane, H * W, T(0));
      for (int64_t q = 0; q < P * Q; ++q)
        if (index[q] >= 0) plane[index[q]] += gradient[q];  // < 0: a window outside the image
    });
  });
}

}  // namespace gradus
