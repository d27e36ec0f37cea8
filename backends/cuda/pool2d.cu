// y[n, c, p, q] = max over r, s of x[n, c, p stride - padding + r dilation, q …], and where in the plane it was found.
// Backward gathers: dx[n, c, h, w] sums dy of the windows over (h, w) that found their maximum there, in the order of
// the windows, so that no two threads write one element; where windows do not overlap, each writes its part of dx.
// x (N, C, H, W), y (N, C, P, Q), any strides; threads follow the results' order in memory.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::Divisor;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Strides4;

struct Pool {
  int H, W, P, Q;
  int kernel[2], stride[2], padding[2], dilation[2];
  Divisor channels, height, width;  // of the view that the threads enumerate
  bool channels_last;               // the channels of a pixel lie side by side there
  Divisor stride_h, stride_w;
  uint32_t numel;
};

// For threads that enumerate the elements of shape `enumerated`, to write them or around them with these strides.
Pool make_pool(const Shape& image, const Shape& pooled, const Shape& enumerated, const Strides& strides,
               const Pool2dGeometry& geometry) {
  Pool pool;
  pool.channels_last = strides[1] < strides[3];
  pool.H = static_cast<int>(image[2]), pool.W = static_cast<int>(image[3]);
  pool.P = static_cast<int>(pooled[2]), pool.Q = static_cast<int>(pooled[3]);
  for (int i = 0; i < 2; ++i) {
    pool.kernel[i] = static_cast<int>(geometry.kernel[i]), pool.stride[i] = static_cast<int>(geometry.stride[i]);
    pool.padding[i] = static_cast<int>(geometry.padding[i]), pool.dilation[i] = static_cast<int>(geometry.dilation[i]);
  }
  pool.channels = Divisor(enumerated[1]), pool.height = Divisor(enumerated[2]), pool.width = Divisor(enumerated[3]);
  pool.stride_h = Divisor(geometry.stride[0]), pool.stride_w = Divisor(geometry.stride[1]);
  int64_t numel = 1;
  for (int64_t size : enumerated) numel *= size;
  GRADUS_CHECK(numel < int64_t{1} << 31, ShapeError, "cuda pools at most 2^31 elements at once, got ", numel,
               "; split the batch");
  pool.numel = static_cast<uint32_t>(numel);
  return pool;
}

struct Place {
  uint32_t n, c, h, w;
};
__device__ Place place_of(const Pool& pool, uint32_t e) {
  Place place;
  if (pool.channels_last) {
    place.c = e, place.w = pool.channels.split(place.c);
    place.h = pool.width.split(place.w), place.n = pool.height.split(place.h);
  } else {
    place.w = e, place.h = pool.width.split(place.w);
    place.c = pool.height.split(place.h), place.n = pool.channels.split(place.c);
  }
  return place;
}

__device__ int64_t at(const Strides4& strides, uint32_t n, uint32_t c, int h, int w) {
  return n * strides.n + c * strides.c + h * strides.h + w * strides.w;
}

template <class T>
__global__ void __launch_bounds__(kThreads) pool_kernel(Pool pool, const T* x, Strides4 x_strides, T* y,
                                                        Strides4 y_strides, int32_t* indices, Strides4 index_strides) {
  using C = compute_t<T>;
  for (uint32_t e = cuda_detail::thread_index(); e < pool.numel; e += cuda_detail::thread_count()) {
    const auto [n, c, p, q] = place_of(pool, e);
    C best = -C(INFINITY);
    int32_t best_index = -1;
    for (int r = 0; r < pool.kernel[0]; ++r) {
      const int h = static_cast<int>(p) * pool.stride[0] - pool.padding[0] + r * pool.dilation[0];
      if (h < 0 || h >= pool.H) continue;
      for (int s = 0; s < pool.kernel[1]; ++s) {
        const int w = static_cast<int>(q) * pool.stride[1] - pool.padding[1] + s * pool.dilation[1];
        if (w < 0 || w >= pool.W) continue;
        const C value = static_cast<C>(x[at(x_strides, n, c, h, w)]);
        if (best_index < 0 || value > best || (scalar::is_nan(value) && !scalar::is_nan(best)))
          best = value, best_index = h * pool.W + w;
      }
    }
    y[at(y_strides, n, c, p, q)] = static_cast<T>(best);
    indices[at(index_strides, n, c, p, q)] = best_index;
  }
}

// The windows that cover position `at` of an axis: from `first` to `last`.
struct Windows {
  int first, last;
};
__device__ Windows windows_over(int at, int kernel, const Divisor& stride, int padding, int dilation, int count) {
  const int reach = at + padding - (kernel - 1) * dilation;
  const int first = static_cast<int>(stride.quotient(max(reach, 0) + stride.divisor - 1));
  return {first, min(static_cast<int>(stride.quotient(at + padding)), count - 1)};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_backward_kernel(Pool pool, const T* dy, Strides4 dy_strides, const int32_t* indices, Strides4 index_strides,
                         T* dx, Strides4 dx_strides) {
  using C = compute_t<T>;
  for (uint32_t e = cuda_detail::thread_index(); e < pool.numel; e += cuda_detail::thread_count()) {
    const auto [n, c, h, w] = place_of(pool, e);
    const int32_t here = static_cast<int32_t>(h) * pool.W + static_cast<int32_t>(w);
    const Windows rows = windows_over(h, pool.kernel[0], pool.stride_h, pool.padding[0], pool.dilation[0], pool.P);
    const Windows columns = windows_over(w, pool.kernel[1], pool.stride_w, pool.padding[1], pool.dilation[1], pool.Q);
    const T* gradient = dy + n * dy_strides.n + c * dy_strides.c;
    const int32_t* index = indices + n * index_strides.n + c * index_strides.c;
    C sum = 0;
    for (int p = rows.first; p <= rows.last; ++p)
      for (int q = columns.first; q <= columns.last; ++q) {
        const C value = static_cast<C>(gradient[p * dy_strides.h + q * dy_strides.w]);
        if (index[p * index_strides.h + q * index_strides.w] == here) sum += value;
      }
    dx[at(dx_strides, n, c, h, w)] = static_cast<T>(sum);
  }
}

// The windows cover the image side by side; threads enumerate them.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_backward_tiles_kernel(Pool pool, const T* dy, Strides4 dy_strides, const int32_t* indices,
                               Strides4 index_strides, T* dx, Strides4 dx_strides) {
  for (uint32_t e = cuda_detail::thread_index(); e < pool.numel; e += cuda_detail::thread_count()) {
    const auto [n, c, p, q] = place_of(pool, e);
    const T gradient = dy[at(dy_strides, n, c, p, q)];
    const int32_t index = indices[at(index_strides, n, c, p, q)];
    for (int r = 0; r < pool.kernel[0]; ++r)
      for (int s = 0; s < pool.kernel[1]; ++s) {
        const int h = static_cast<int>(p) * pool.kernel[0] + r, w = static_cast<int>(q) * pool.kernel[1] + s;
        dx[at(dx_strides, n, c, h, w)] = h * pool.W + w == index ? gradient : T(0);
      }
  }
}

bool windows_are_tiles(const Shape& image, const Shape& pooled, const Pool2dGeometry& geometry) {
  for (int i = 0; i < 2; ++i)
    if (geometry.kernel[i] != geometry.stride[i] || geometry.padding[i] != 0 || geometry.dilation[i] != 1 ||
        pooled[2 + i] * geometry.kernel[i] != image[2 + i])
      return false;
  return true;
}

}  // namespace

void CudaBackend::max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                             const Pool2dGeometry& geometry) {
  EventScope event("max_pool2d", "cuda", "direct", {&x}, y.numel() * geometry.kernel[0] * geometry.kernel[1]);
  if (y.numel() == 0) return;
  const Pool pool = make_pool(x.shape, y.shape, y.shape, y.strides, geometry);
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    launch(pool_kernel<T>, launch.blocks(pool.numel, kThreads), kThreads, pool, x.as<T>(), Strides4(x.strides),
           y.as<T>(), Strides4(y.strides), indices.as<int32_t>(), Strides4(indices.strides));
  });
}

void CudaBackend::max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                      const Pool2dGeometry& geometry) {
  const bool tiles = windows_are_tiles(dx.shape, dy.shape, geometry);
  EventScope event("max_pool2d_backward", "cuda", tiles ? "tiles" : "gather", {&dy, &indices}, dy.numel());
  if (dx.numel() == 0) return;
  const Pool pool = make_pool(dx.shape, dy.shape, tiles ? dy.shape : dx.shape, dx.strides, geometry);
  const Launch launch(dx.device);
  visit_floating(dx.dtype, [&]<class T>() {
    launch(tiles ? pool_backward_tiles_kernel<T> : pool_backward_kernel<T>, launch.blocks(pool.numel, kThreads),
           kThreads, pool, dy.as<T>(), Strides4(dy.strides), indices.as<int32_t>(), Strides4(indices.strides),
           dx.as<T>(), Strides4(dx.strides));
  });
}

}  // namespace gradus
