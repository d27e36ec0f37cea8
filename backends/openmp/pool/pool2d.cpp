// y[n, c, p, q] = max over r, s of x[n, c, p stride - padding + r dilation, q …] and where in the plane it was found;
// dx[n, c, index] += dy[n, c, p, q]. Vector kernels (pool_kernel.h) take the columns of dense planes or the channels of
// channels-last pixels, of float and double; other layouts and half types are loops.
#include <limits>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/windows.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp;

bool has_dense_planes(const View& x) {
  return (x.shape[3] == 1 || x.strides[3] == 1) && (x.shape[2] == 1 || x.strides[2] == x.shape[3]);
}

// True if every window lies inside the image: ceil_mode lets the last ones reach over the edge.
bool windows_fit(const View& x, const View& y, const Pool2dGeometry& g) {
  for (int i = 0; i < 2; ++i) {
    const int64_t last = (y.shape[2 + i] - 1) * g.stride[i] + (g.kernel[i] - 1) * g.dilation[i];
    if (g.padding[i] != 0 || last >= x.shape[2 + i]) return false;
  }
  return true;
}

bool has_channels_last(const View& x) { return x.shape[1] > 1 && x.strides[1] == 1; }

// Whole rows of channels-last images, n * rows + row, by several threads.
template <class Row>
void parallel_image_rows(int64_t images, int64_t rows, int64_t row_work, Row&& row) {
  parallel_for(images * rows, ceil_div(kGrain, row_work + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(i / rows, i % rows);
  });
}

template <class T>
void max_pool_channels(const View& x, const MutableView& y, const MutableView& indices, const Pool2dGeometry& g) {
  const int64_t K = y.shape[1], W = x.shape[3];
  const auto axis = [&](int i) {
    return forward_axis(y.shape[2 + i], x.shape[2 + i], g.kernel[i], g.stride[i], g.padding[i], g.dilation[i]);
  };
  const WindowAxis rows = axis(0), columns = axis(1);
  parallel_image_rows(y.shape[0], y.shape[2], K * y.shape[3] * g.kernel[0] * g.kernel[1], [&](int64_t n, int64_t p) {
    std::vector<WindowTap> window;
    std::vector<int64_t> offsets;
    std::vector<int32_t> places;
    for_each_piece(rows, columns, p, window, [&](int64_t first, int64_t count, const std::vector<WindowTap>&) {
      offsets.clear(), places.clear();
      for (const WindowTap& tap : window) {
        offsets.push_back(tap.h * x.strides[2] + tap.w * x.strides[3]);
        places.push_back(static_cast<int32_t>(tap.h * W + tap.w));
      }
      kernels_of<T>(kernel_table())
          .max_pool_channels({.pixels = count,
                              .channels = K,
                              .x = x.as<T>() + n * x.strides[0],
                              .x_step = g.stride[1] * x.strides[3],
                              .taps = static_cast<int64_t>(window.size()),
                              .offsets = offsets.data(),
                              .places = places.data(),
                              .place_step = g.stride[1],
                              .y = y.as<T>() + n * y.strides[0] + p * y.strides[2] + first * y.strides[3],
                              .indices = indices.as<int32_t>() + n * indices.strides[0] + p * indices.strides[2] +
                                         first * indices.strides[3],
                              .y_step = y.strides[3],
                              .index_step = indices.strides[3]});
    });
  });
}

template <class T>
void max_pool_channels_backward(const View& dy, const View& indices, const MutableView& dx, const Pool2dGeometry& g) {
  const int64_t K = dx.shape[1], H = dx.shape[2], W = dx.shape[3];
  const auto axes = [&](int i) {
    return backward_axes(dx.shape[2 + i], dy.shape[2 + i], g.kernel[i], g.stride[i], g.padding[i], g.dilation[i]);
  };
  const std::vector<WindowAxis> row_axes = axes(0), column_axes = axes(1);
  const auto classes = static_cast<int64_t>(row_axes.size());
  parallel_image_rows(dx.shape[0], H, K * W * g.kernel[0], [&](int64_t n, int64_t h) {
    std::vector<WindowTap> window;
    std::vector<int64_t> offsets, index_offsets;
    for (const WindowAxis& columns : column_axes)
      for_each_piece(row_axes[static_cast<size_t>(h % classes)], columns, h / classes, window,
                     [&](int64_t first, int64_t count, const std::vector<WindowTap>&) {
                       offsets.clear(), index_offsets.clear();
                       for (const WindowTap& tap : window) {
                         offsets.push_back(tap.h * dy.strides[2] + tap.w * dy.strides[3]);
                         index_offsets.push_back(tap.h * indices.strides[2] + tap.w * indices.strides[3]);
                       }
                       const int64_t w = columns.out_begin + first * columns.out_step;
                       kernels_of<T>(kernel_table())
                           .max_pool_channels_backward(
                               {.pixels = count,
                                .channels = K,
                                .dy = dy.as<T>() + n * dy.strides[0],
                                .indices = indices.as<int32_t>() + n * indices.strides[0],
                                .dy_step = dy.strides[3],
                                .index_step = indices.strides[3],
                                .taps = static_cast<int64_t>(window.size()),
                                .offsets = offsets.data(),
                                .index_offsets = index_offsets.data(),
                                .place = h * W + w,
                                .place_step = columns.out_step,
                                .dx = dx.as<T>() + n * dx.strides[0] + h * dx.strides[2] + w * dx.strides[3],
                                .dx_step = columns.out_step * dx.strides[3]});
                     });
  });
}

// Window positions along one axis that lie in an image of `size`.
struct Span {
  int64_t begin, end;
  Span(int64_t start, int64_t kernel, int64_t dilation, int64_t size) {
    begin = start < 0 ? ceil_div(-start, dilation) : 0;
    end = start < size ? std::min(kernel, ceil_div(size - start, dilation)) : 0;
  }
};

// One output row of neighbouring channels, `count` of them: lanes are channels, so channels-last images vectorise.
template <class T>
struct ChannelPool {
  const View& x;
  const MutableView &y, &indices;
  const Pool2dGeometry& g;

  void row(int64_t n, int64_t p, int64_t channel, int64_t count) const {
    using C = compute_t<T>;
    const Span rows(p * g.stride[0] - g.padding[0], g.kernel[0], g.dilation[0], x.shape[2]);
    C best[kBlock];
    int32_t index[kBlock];
    for (int64_t q = 0; q < y.shape[3]; ++q) {
      const Span columns(q * g.stride[1] - g.padding[1], g.kernel[1], g.dilation[1], x.shape[3]);
      std::fill_n(best, count, -std::numeric_limits<C>::infinity());
      std::fill_n(index, count, -1);
      for (int64_t r = rows.begin; r < rows.end; ++r)
        for (int64_t s = columns.begin; s < columns.end; ++s) {
          const int64_t h = p * g.stride[0] - g.padding[0] + r * g.dilation[0];
          const int64_t w = q * g.stride[1] - g.padding[1] + s * g.dilation[1];
          const T* from = x.as<T>() + n * x.strides[0] + channel * x.strides[1] + h * x.strides[2] + w * x.strides[3];
          const int32_t at = static_cast<int32_t>(h * x.shape[3] + w);
          const int64_t step = x.strides[1];
          for (int64_t c = 0; c < count; ++c) {
            const C value = static_cast<C>(from[c * step]);
            const bool wins = (index[c] < 0) | (value > best[c]) | ((value != value) & (best[c] == best[c]));
            best[c] = wins ? value : best[c];
            index[c] = wins ? at : index[c];
          }
        }
      T* to = y.as<T>() + n * y.strides[0] + channel * y.strides[1] + p * y.strides[2] + q * y.strides[3];
      int32_t* place = indices.as<int32_t>() + n * indices.strides[0] + channel * indices.strides[1] +
                       p * indices.strides[2] + q * indices.strides[3];
      for (int64_t c = 0; c < count; ++c)
        to[c * y.strides[1]] = static_cast<T>(best[c]), place[c * indices.strides[1]] = index[c];
    }
  }
};

}  // namespace

void OpenmpBackend::max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                               const Pool2dGeometry& geometry) {
  const int64_t N = y.shape[0], K = y.shape[1], plane = y.shape[2] * y.shape[3];
  const int64_t window = geometry.kernel[0] * geometry.kernel[1];
  const bool wide = x.dtype == DType::f32 || x.dtype == DType::f64;
  const bool channels = wide && has_channels_last(x) && has_channels_last(y) && has_channels_last(indices);
  const bool vectors = wide && !channels && has_dense_planes(x) && has_dense_planes(y) && has_dense_planes(indices);
  EventScope event("max_pool2d", "openmp", vectors || channels ? kernel_table().vectors : "loops", {&x, &y, &indices},
                   y.numel() * window);
  if (y.numel() == 0) return;
  if (channels && x.dtype == DType::f32) return max_pool_channels<float>(x, y, indices, geometry);
  if (channels) return max_pool_channels<double>(x, y, indices, geometry);
  const auto planes = [&]<class T> {
    parallel_for(N * K, ceil_div(kGrain, plane * window), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / K, c = i % K;
        kernels_of<T>(kernel_table())
            .max_pool({.x = x.as<T>() + n * x.strides[0] + c * x.strides[1],
                       .height = x.shape[2],
                       .width = x.shape[3],
                       .y = y.as<T>() + n * y.strides[0] + c * y.strides[1],
                       .indices = indices.as<int32_t>() + n * indices.strides[0] + c * indices.strides[1],
                       .rows = y.shape[2],
                       .columns = y.shape[3],
                       .kernel = {geometry.kernel[0], geometry.kernel[1]},
                       .stride = {geometry.stride[0], geometry.stride[1]},
                       .padding = {geometry.padding[0], geometry.padding[1]},
                       .dilation = {geometry.dilation[0], geometry.dilation[1]}});
      }
    });
  };
  if (vectors && x.dtype == DType::f32) return planes.operator()<float>();
  if (vectors) return planes.operator()<double>();
  visit_floating(x.dtype, [&]<class T> {
    const int64_t together = std::min(K, kBlock), blocks = ceil_div(K, together), rows = y.shape[2];
    const ChannelPool<T> pool{x, y, indices, geometry};
    parallel_for(N * rows * blocks, ceil_div(kGrain, together * y.shape[3] * window), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t channel = i % blocks * together;
        pool.row(i / blocks / rows, i / blocks % rows, channel, std::min(together, K - channel));
      }
    });
  });
}

void OpenmpBackend::max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                        const Pool2dGeometry& geometry) {
  const int64_t K = dx.shape[1], H = dx.shape[2], W = dx.shape[3], P = dy.shape[2], Q = dy.shape[3];
  const bool dense = has_dense_planes(dx);
  const bool two_by_two = geometry.kernel[0] == 2 && geometry.kernel[1] == 2 && geometry.stride[0] == 2 &&
                          geometry.stride[1] == 2 && geometry.dilation[0] == 1 && geometry.dilation[1] == 1 &&
                          P == H / 2 && Q == W / 2 && windows_fit(dx, dy, geometry);
  const bool wide = dx.dtype == DType::f32 || dx.dtype == DType::f64;
  const bool channels = wide && has_channels_last(dx) && has_channels_last(dy) && has_channels_last(indices);
  const bool vectors = wide && !channels && two_by_two && dense && has_dense_planes(dy) && has_dense_planes(indices);
  EventScope event("max_pool2d_backward", "openmp", vectors || channels ? kernel_table().vectors : "loops",
                   {&dy, &indices, &dx}, dy.numel());
  if (dx.numel() == 0) return;
  if (channels && dx.dtype == DType::f32) return max_pool_channels_backward<float>(dy, indices, dx, geometry);
  if (channels) return max_pool_channels_backward<double>(dy, indices, dx, geometry);
  const auto planes = [&]<class T> {
    parallel_for(dx.shape[0] * K, ceil_div(kGrain, H * W + P * Q + 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / K, c = i % K;
        T* plane = dx.as<T>() + n * dx.strides[0] + c * dx.strides[1];
        kernels_of<T>(kernel_table())
            .max_pool_backward_2x2({.dy = dy.as<T>() + n * dy.strides[0] + c * dy.strides[1],
                                    .indices = indices.as<int32_t>() + n * indices.strides[0] + c * indices.strides[1],
                                    .rows = P,
                                    .columns = Q,
                                    .dx = plane,
                                    .width = W});
        if (W % 2)
          for (int64_t h = 0; h < H; ++h) plane[h * W + W - 1] = T(0);
        if (H % 2) std::fill_n(plane + (H - 1) * W, W, T(0));
      }
    });
  };
  if (vectors && dx.dtype == DType::f32) return planes.operator()<float>();
  if (vectors) return planes.operator()<double>();
  visit_floating(dx.dtype, [&]<class T> {
    using C = compute_t<T>;
    parallel_for(dx.shape[0] * K, ceil_div(kGrain, H * W + P * Q + 1), [&](int64_t begin, int64_t end) {
      const bool in_place = dense && std::is_same_v<T, C>;
      const Scratch<C> buffer(in_place ? 0 : H * W);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / K, c = i % K;
        T* target = dx.as<T>() + n * dx.strides[0] + c * dx.strides[1];
        C* plane = buffer.get();
        if constexpr (std::is_same_v<T, C>)
          if (in_place) plane = target;
        std::fill_n(plane, H * W, C(0));
        for (int64_t p = 0; p < P; ++p) {
          const T* gradient = dy.as<T>() + n * dy.strides[0] + c * dy.strides[1] + p * dy.strides[2];
          const int32_t* index =
              indices.as<int32_t>() + n * indices.strides[0] + c * indices.strides[1] + p * indices.strides[2];
          for (int64_t q = 0; q < Q; ++q) {
            const int32_t at = index[q * indices.strides[3]];
            if (at >= 0) plane[at] += static_cast<C>(gradient[q * dy.strides[3]]);  // < 0: a window outside the image
          }
        }
        if (in_place) continue;
        for (int64_t h = 0; h < H; ++h)
          for (int64_t w = 0; w < W; ++w)
            target[h * dx.strides[2] + w * dx.strides[3]] = static_cast<T>(plane[h * W + w]);
      }
    });
  });
}

}  // namespace gradus
