// Max pooling and its gradient.
//   y[n, c, p, q] = max over r, s of x[n, c, p stride - padding + r dilation, q …]; indices: its position in the plane.
//   dx[n, c, h, w] = sum of dy over the windows that contain (h, w) and have their maximum there.
// Layout: x (N, C, H, W), y (N, C, P, Q), any strides.
// Grid: x = blocks of a grid-stride loop over vectors of the result.  Block: 256 threads; a thread computes one vector
// a step: channels of a channels-last pixel, otherwise one column of a row.
// pool_kernel and backward_kernel: if 2 x 2 windows tile the image (kTiles), the window's sizes are compile-time
// constants, and a vector may also consist of neighbouring columns: up to 16 bytes of a row of the image, with two
// columns for each column of y.
// backward_2x2_kernel: for other windows up to 3 x 3 at stride 2, a thread computes 2 x 2 pixels, which are in the same
// four windows.
// Deterministic: one thread computes the whole sum of a pixel, in the order of the windows.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

constexpr Pool2dGeometry kTile = {{2, 2}, {2, 2}, {0, 0}, {1, 1}};

struct Pool {
  int H, W, P, Q;
  Pool2dGeometry window;
  Divisor stride_h, stride_w;
  ImageVectors vectors;  // vectors of the result, which is y or, in backward, dx

  Pool(const Shape& image, const Shape& pooled, const Pool2dGeometry& window, const ImageVectors& vectors)
      : H(static_cast<int>(image[2])), W(static_cast<int>(image[3])), P(static_cast<int>(pooled[2])),
        Q(static_cast<int>(pooled[3])), window(window), stride_h(window.stride[0]), stride_w(window.stride[1]),
        vectors(vectors) {}
};

void check_size(int64_t elements) {
  GRADUS_CHECK(elements < int64_t{1} << 31, ShapeError, "cuda pools at most 2^31 elements at once, got ", elements,
               "; split the batch");
}

// kTiles: 2 x 2 windows tile the image and are inside it. Only then may a vector consist of columns.
template <bool kTiles, Along kAlong, int kVec, class T>
__global__ void __launch_bounds__(kThreads)
    pool_kernel(Pool pool, Image<const T> x, Image<T> y, Image<int32_t> indices) {
  using C = compute_t<T>;
  static_assert(kTiles || kAlong == Along::channels || kVec == 1);
  const Pool2dGeometry window = kTiles ? kTile : pool.window;
  for (uint32_t e = thread_index(); e < pool.vectors.count; e += thread_count()) {
    const Place at = pool.vectors.place<kAlong, kVec>(e);
    const T* image = x.plane(at);
    C best[kVec];
    Vec<int32_t, kVec> best_index;
#pragma unroll
    for (int k = 0; k < kVec; ++k) best[k] = -C(INFINITY), best_index.value[k] = -1;
    for (int r = 0; r < window.kernel[0]; ++r) {
      const int h = static_cast<int>(at.row * window.stride[0] - window.padding[0] + r * window.dilation[0]);
      if (!kTiles && (h < 0 || h >= pool.H)) continue;
      for (int s = 0; s < window.kernel[1]; ++s) {
        const int w = static_cast<int>(at.column * window.stride[1] - window.padding[1] + s * window.dilation[1]);
        if (!kTiles && (w < 0 || w >= pool.W)) continue;
        const T* row = image + h * x.strides.h;
        Vec<T, kVec> tap;
        if constexpr (kTiles && kAlong == Along::columns) {  // takes every second element of the row
          const auto over = load<2 * kVec>(row + (w - s));
#pragma unroll
          for (int k = 0; k < kVec; ++k) tap.value[k] = over.value[2 * k + s];
        } else {
          tap = load<kVec>(row + w * x.strides.w);
        }
#pragma unroll
        for (int k = 0; k < kVec; ++k) {
          const C value = static_cast<C>(tap.value[k]);
          if (best_index.value[k] < 0 || value > best[k] || (scalar::is_nan(value) && !scalar::is_nan(best[k])))
            best[k] = value, best_index.value[k] = h * pool.W + w + (kAlong == Along::columns ? 2 * k : 0);
        }
      }
    }
    Vec<T, kVec> maximum;
#pragma unroll
    for (int k = 0; k < kVec; ++k) maximum.value[k] = static_cast<T>(best[k]);
    store(y.element(at), maximum);
    store(indices.element(at), best_index);
  }
}

// The windows along an axis that contain a position: those with the indices `first` to `last`.
struct Windows {
  int first, last;
};
template <bool kTiles>
__device__ Windows windows_over(int at, const Pool2dGeometry& window, int axis, const Divisor& stride, int count) {
  if constexpr (kTiles) return {at / 2, min(at / 2, count - 1)};
  const auto padded = static_cast<int>(at + window.padding[axis]);
  const int reach = padded - static_cast<int>((window.kernel[axis] - 1) * window.dilation[axis]);
  const int first = static_cast<int>(stride.quotient(max(reach, 0) + stride.divisor - 1));
  return {first, min(static_cast<int>(stride.quotient(padded)), count - 1)};
}

// In each step, a thread computes one vector of dx. For every window that contains it, the thread loads kVec neighbours
// of dy.
template <bool kTiles, Along kAlong, int kVec, class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Pool pool, Image<const T> dy, Image<const int32_t> indices, Image<T> dx) {
  using C = compute_t<T>;
  constexpr bool kColumns = kAlong == Along::columns;
  constexpr int kPerWindow = kTiles && kColumns ? 2 : 1;  // neighbours in a vector of dx that share a window
  constexpr int kWide = kPerWindow * kVec;
  static_assert(kTiles || !kColumns || kVec == 1);
  for (uint32_t e = thread_index(); e < pool.vectors.count; e += thread_count()) {
    const Place at = pool.vectors.place<kAlong, kWide>(e);
    const int32_t here = at.row * pool.W + at.column;
    const Windows rows = windows_over<kTiles>(at.row, pool.window, 0, pool.stride_h, pool.P);
    const Windows columns = windows_over<kTiles>(at.column, pool.window, 1, pool.stride_w, pool.Q);
    const T* gradients = dy.plane(at);
    const int32_t* winners = indices.plane(at);
    C sum[kWide] = {};
    for (int p = rows.first; p <= rows.last; ++p) {
      for (int q = columns.first; q <= columns.last; ++q) {
        const auto gradient = load<kVec>(gradients + p * dy.strides.h + q * dy.strides.w);
        const auto winner = load<kVec>(winners + p * indices.strides.h + q * indices.strides.w);
#pragma unroll
        for (int k = 0; k < kWide; ++k)
          if (winner.value[k / kPerWindow] == here + (kColumns ? k : 0))
            sum[k] += static_cast<C>(gradient.value[k / kPerWindow]);
        if (kTiles) break;  // at most one window contains a pixel
      }
      if (kTiles) break;
    }
    Vec<T, kWide> total;
#pragma unroll
    for (int k = 0; k < kWide; ++k) total.value[k] = static_cast<T>(sum[k]);
    store(dx.element(at), total);
  }
}

// The gradient for windows up to 3 x 3 at stride 2. A thread computes 2 x 2 pixels, which only the windows (p, q) to (p
// + 1, q + 1) can contain; `pool.vectors` counts such squares of pixels. `pairs`: two columns can be stored as a
// vector.
template <Along kAlong, int kVec, class T>
__global__ void __launch_bounds__(kThreads)
    backward_2x2_kernel(Pool pool, bool pairs, Image<const T> dy, Image<const int32_t> indices, Image<T> dx) {
  using C = compute_t<T>;
  for (uint32_t e = thread_index(); e < pool.vectors.count; e += thread_count()) {
    Place at = pool.vectors.place<kAlong, kVec>(e);
    const int first_p = at.row - 1 + static_cast<int>(pool.window.padding[0]);
    const int first_q = at.column - 1 + static_cast<int>(pool.window.padding[1]);
    const T* gradients = dy.plane(at);
    const int32_t* winners = indices.plane(at);
    at.row *= 2, at.column *= 2;
    Vec<T, kVec> gradient[4];  // one for each window; all loads are in flight before the first result is used
    Vec<int32_t, kVec> winner[4];
#pragma unroll
    for (int window = 0; window < 4; ++window) {
      const int p = min(max(first_p + window / 2, 0), pool.P - 1), q = min(max(first_q + window % 2, 0), pool.Q - 1);
      gradient[window] = load<kVec>(gradients + p * dy.strides.h + q * dy.strides.w);
      winner[window] = load<kVec>(winners + p * indices.strides.h + q * indices.strides.w);
    }
    C sum[4][kVec] = {};  // (pixel, channel)
#pragma unroll
    for (int window = 0; window < 4; ++window) {
      const int p = first_p + window / 2, q = first_q + window % 2;
      const bool inside = p >= 0 && p < pool.P && q >= 0 && q < pool.Q;
#pragma unroll
      for (int pixel = 0; pixel < 4; ++pixel)
#pragma unroll
        for (int k = 0; k < kVec; ++k)
          if (inside && winner[window].value[k] == (at.row + pixel / 2) * pool.W + at.column + pixel % 2)
            sum[pixel][k] += static_cast<C>(gradient[window].value[k]);
    }
    T* const to = dx.element(at);
#pragma unroll
    for (int pixel = 0; pixel < 4; ++pixel) {
      if (at.row + pixel / 2 >= pool.H || at.column + pixel % 2 >= pool.W) continue;
      T* const here = to + pixel / 2 * dx.strides.h + pixel % 2 * dx.strides.w;
      Vec<T, kVec> total;
#pragma unroll
      for (int k = 0; k < kVec; ++k) total.value[k] = static_cast<T>(sum[pixel][k]);
      if (kAlong == Along::channels || !pairs) store(here, total);
      else if (pixel % 2 == 0) store(here, Vec<T, 2>{total.value[0], static_cast<T>(sum[pixel | 1][0])});
    }
  }
}

// Returns true if the kernels with kTiles can be used. They need an even number of columns, or channels innermost.
bool takes_tiles(const View& image, const Pool2dGeometry& g) {
  for (int i = 0; i < 2; ++i)
    if (g.kernel[i] != 2 || g.stride[i] != 2 || g.padding[i] != 0 || g.dilation[i] != 1) return false;
  return neighbours_of(image) == Along::channels || can_vectorize(image, Along::columns, 2);
}

bool takes_2x2(const Pool2dGeometry& g) {
  for (int i = 0; i < 2; ++i)
    if (g.kernel[i] > 3 || g.stride[i] != 2 || g.padding[i] > 1 || g.dilation[i] != 1) return false;
  return true;
}

// Calls run<kTiles, kAlong, kVec>() with the largest vectors into which `image`, `pooled` and the indices can be
// divided.
template <class T, class Run>
void visit_vectors(bool tiles, const View& image, const View& pooled, const View& indices, const Run& run) {
  constexpr int kFull = 16 / sizeof(T);
  const Along along = neighbours_of(image);
  const auto fits = [&](int vec) {
    return can_vectorize(image, along, along == Along::columns ? 2 * vec : vec) && can_vectorize(pooled, along, vec) &&
           can_vectorize(indices, along, vec);
  };
  if (along == Along::channels && tiles)
    run_largest<kFull>(fits, [&]<int kVec>() { run.template operator()<true, Along::channels, kVec>(); });
  else if (along == Along::channels)
    run_largest<kFull>(fits, [&]<int kVec>() { run.template operator()<false, Along::channels, kVec>(); });
  else if (tiles)
    run_largest<kFull / 2>(fits, [&]<int kVec>() { run.template operator()<true, Along::columns, kVec>(); });
  else run.template operator()<false, Along::columns, 1>();
}

}  // namespace

void CudaBackend::max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                             const Pool2dGeometry& geometry) {
  if (y.numel() == 0) return;
  check_size(y.numel());
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    const bool tiles = takes_tiles(x, geometry) && 2 * y.shape[2] <= x.shape[2] && 2 * y.shape[3] <= x.shape[3];
    EventScope event("max_pool2d", "cuda", tiles ? "tiles" : "direct", {&x},
                     y.numel() * geometry.kernel[0] * geometry.kernel[1]);
    visit_vectors<T>(tiles, x, y, indices, [&]<bool kTiles, Along kAlong, int kVec>() {
      const Pool pool(x.shape, y.shape, geometry, ImageVectors(y.shape, kAlong, kVec));
      launch(pool_kernel<kTiles, kAlong, kVec, T>, launch.blocks(pool.vectors.count, kThreads), kThreads, pool,
             Image<const T>(x), Image<T>(y), Image<int32_t>(indices));
    });
  });
}

void CudaBackend::max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                      const Pool2dGeometry& geometry) {
  if (dx.numel() == 0) return;
  check_size(dx.numel());
  const Launch launch(dx.device);
  visit_floating(dx.dtype, [&]<class T>() {
    const bool tiles = takes_tiles(dx, geometry), is_2x2 = !tiles && dy.numel() > 0 && takes_2x2(geometry);
    const char* const name = tiles ? "tiles" : is_2x2 ? "gather_2x2" : "gather";
    EventScope event("max_pool2d_backward", "cuda", name, {&dy, &indices}, dy.numel());
    visit_vectors<T>(tiles, dx, dy, indices, [&]<bool kTiles, Along kAlong, int kVec>() {
      if constexpr (!kTiles) {
        if (is_2x2) {
          const Shape of_tiles{dx.shape[0], dx.shape[1], ceil_div(dx.shape[2], 2), ceil_div(dx.shape[3], 2)};
          const Pool pool(dx.shape, dy.shape, geometry, ImageVectors(of_tiles, kAlong, kVec));
          const bool pairs = kAlong == Along::columns && can_vectorize(dx, Along::columns, 2);
          return launch(backward_2x2_kernel<kAlong, kVec, T>, launch.blocks(pool.vectors.count, kThreads), kThreads,
                        pool, pairs, Image<const T>(dy), Image<const int32_t>(indices), Image<T>(dx));
        }
      }
      constexpr int kWide = kTiles && kAlong == Along::columns ? 2 * kVec : kVec;
      const Pool pool(dx.shape, dy.shape, geometry, ImageVectors(dx.shape, kAlong, kWide));
      launch(backward_kernel<kTiles, kAlong, kVec, T>, launch.blocks(pool.vectors.count, kThreads), kThreads, pool,
             Image<const T>(dy), Image<const int32_t>(indices), Image<T>(dx));
    });
  });
}

}  // namespace gradus
