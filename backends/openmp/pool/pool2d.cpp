// y[n, c, p, q] = max over r, s of x[n, c, h, w] with h = p stride - padding + r dilation and w = q stride - padding +
// s dilation, and the index of the maximum in the plane. Gradient: dx[n, c, index] += dy[n, c, p, q]. Vector kernels
// (pool_kernel.h) process the columns of dense planes or the channels of channels-last pixels, for float and double.
// Other layouts and half types are copied first.
#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/operand.h>
#include <gradus/backends/openmp/simd/windows.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// Neighbouring outputs of a row whose windows have the same taps, with the kernel's arguments for the first image.
template <class T>
struct WindowRun {
  PoolArgs<T> args;
  std::vector<int64_t> offsets;
  std::vector<int32_t> places;
};

// Computes y. If `channels` is true, the lanes of a vector are the channels of a pixel; otherwise they are neighbouring
// pixels of a plane.
template <class T>
void max_pool(const View& x, const MutableView& y, const MutableView& indices, const Pool2dGeometry& g, bool channels) {
  const auto axis = [&](int i) {
    return forward_axis(y.shape[2 + i], x.shape[2 + i], g.kernel[i], g.stride[i], g.padding[i], g.dilation[i]);
  };
  const WindowAxis rows = axis(0), columns = axis(1);
  const int64_t N = y.shape[0], K = y.shape[1], step = g.stride[1];
  const std::vector<Span> spans = spans_of(columns);
  std::vector<WindowRun<T>> runs;
  for (int64_t p = 0; p < y.shape[2]; ++p)
    for (const Span& span : spans) {
      WindowRun<T>& run = runs.emplace_back();
      for (int64_t r = 0; r < g.kernel[0]; ++r)
        for (int64_t s = span.first_tap, h = rows.at(p, r); h >= 0 && h < rows.source && s < span.last_tap; ++s) {
          const int64_t w = columns.at(span.begin, s);
          run.offsets.push_back(h * x.strides[2] + w * x.strides[3]);
          run.places.push_back(static_cast<int32_t>(h * x.shape[3] + w));
        }
      run.args = {.rows = channels ? span.end - span.begin : K,
                  .lanes = channels ? K : span.end - span.begin,
                  .x = x.as<T>(),
                  .x_row = channels ? step * x.strides[3] : x.strides[1],
                  .x_lane = channels ? 1 : step,
                  .taps = static_cast<int64_t>(run.offsets.size()),
                  .offsets = run.offsets.data(),
                  .places = run.places.data(),
                  .place_row = channels ? step : 0,
                  .place_lane = channels ? 0 : step,
                  .y = y.as<T>() + p * y.strides[2] + span.begin * y.strides[3],
                  .indices = indices.as<int32_t>() + p * indices.strides[2] + span.begin * indices.strides[3],
                  .y_row = y.strides[channels ? 3 : 1],
                  .index_row = indices.strides[channels ? 3 : 1]};
    }
  const auto count = static_cast<int64_t>(runs.size());
  parallel_each(N * count, ceil_div(kGrain * count, y.numel() / N * g.kernel[0] * g.kernel[1] + 1), [&](int64_t i) {
    PoolArgs<T> args = runs[static_cast<size_t>(i % count)].args;
    const int64_t n = i / count;
    args.x += n * x.strides[0], args.y += n * y.strides[0], args.indices += n * indices.strides[0];
    kernels_of<T>(kernel_table()).max_pool(args);
  });
}

// Computes dx, one plane at a time or, if `channels` is true (channels innermost), one image at a time.
template <class T>
void max_pool_backward(const View& dy, const View& indices, const MutableView& dx, bool channels, bool two_by_two) {
  const int64_t H = dx.shape[2], W = dx.shape[3], P = dy.shape[2], Q = dy.shape[3];
  const int64_t lanes = channels ? dx.shape[1] : 1, planes = dx.shape[1] / lanes;
  parallel_each(dx.shape[0] * planes, ceil_div(kGrain, lanes * (H * W + P * Q) + 1), [&](int64_t i) {
    const int64_t n = i / planes, c = i % planes;
    const T* gradient = dy.as<T>() + n * dy.strides[0] + c * dy.strides[1];
    const int32_t* index = indices.as<int32_t>() + n * indices.strides[0] + c * indices.strides[1];
    T* plane = dx.as<T>() + n * dx.strides[0] + c * dx.strides[1];
    if (two_by_two && !channels) {
      if (H % 2 || W % 2) std::fill_n(plane, H * W, T(0));  // the kernel does not write an odd last row or column
      return kernels_of<T>(kernel_table()).max_pool_backward_2x2(gradient, index, P, Q, plane, W);
    }
    std::fill_n(plane, H * W * lanes, T(0));
    const int64_t neighbours = channels ? lanes : P * Q;
    for (int64_t q = 0; q < P * Q * lanes; q += neighbours, gradient += neighbours, index += neighbours)
      for (int64_t k = 0; k < neighbours; ++k)
        if (index[k] >= 0)  // -1: the window is outside the image
          plane[channels ? index[k] * lanes + k : index[k]] += gradient[k];
  });
}

// Returns true for images without gaps whose channels are innermost.
bool has_dense_pixels(const StridedLayout& x) {
  return has_channels_last(x) && x.strides[3] == x.shape[1] && x.strides[2] == x.shape[3] * x.shape[1];
}

// The type and layout in which the kernels compute. Operands of other types and layouts are copied to such images.
struct PoolLayout {
  DType dtype;
  MemoryFormat format;
  bool channels, copies;

  PoolLayout(const StridedLayout& x, const StridedLayout& y, const StridedLayout& indices)
      : dtype(x.dtype == DType::f64 ? DType::f64 : DType::f32),
        format(has_channels_last(x) ? MemoryFormat::channels_last : MemoryFormat::contiguous),
        channels(format == MemoryFormat::channels_last), copies(x.dtype != dtype) {
    for (const StridedLayout* images : {&x, &y, &indices})
      copies = copies || !(channels ? has_dense_pixels(*images) : has_dense_planes(*images));
  }
};

}  // namespace

void OpenmpBackend::max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                               const Pool2dGeometry& geometry) {
  const PoolLayout layout(x, y, indices);
  const auto& [dtype, format, channels, copies] = layout;
  const Input in(*this, x, copies, dtype, format);
  const Output out(*this, y, copies, dtype, format), places(*this, indices, copies, DType::i32, format);
  {
    EventScope event("max_pool2d", "openmp", kernel_table().vectors, {&x, &y, &indices},
                     y.numel() * geometry.kernel[0] * geometry.kernel[1]);
    if (y.numel() == 0) return;
    visit_wide(dtype, [&]<class T> { max_pool<T>(in.view(), out.view(), places.view(), geometry, layout.channels); });
  }
  out.finish(), places.finish();
}

void OpenmpBackend::max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                        const Pool2dGeometry& geometry) {
  const PoolLayout layout(dx, dy, indices);
  const auto& [dtype, format, channels, copies] = layout;
  const Input gradient(*this, dy, copies, dtype, format), places(*this, indices, copies, DType::i32, format);
  const Output out(*this, dx, copies, dtype, format);
  // True for 2 x 2 windows with stride 2, without padding and dilation.
  bool two_by_two = dy.shape[2] == dx.shape[2] / 2 && dy.shape[3] == dx.shape[3] / 2;
  for (int i : {0, 1})
    two_by_two = two_by_two && geometry.kernel[i] == 2 && geometry.stride[i] == 2 && geometry.dilation[i] == 1 &&
                 geometry.padding[i] == 0;
  {
    EventScope event("max_pool2d_backward", "openmp", two_by_two && !channels ? kernel_table().vectors : "loops",
                     {&dy, &indices, &dx}, dy.numel());
    if (dx.numel() == 0) return;
    visit_wide(dtype, [&]<class T> {
      max_pool_backward<T>(gradient.view(), places.view(), out.view(), layout.channels, two_by_two);
    });
  }
  out.finish();
}

}  // namespace gradus
