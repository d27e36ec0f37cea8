// y[n, c, p, q] = max over r, s of x[n, c, p stride - padding + r dilation, q …], and where in the plane it was found.
// Backward gathers: dx[n, c, h, w] sums dy of the windows over (h, w) that found their maximum there, in the order of
// the windows, so that no two threads write one element. x (N, C, H, W), y (N, C, P, Q), any strides.
//
// Grid: all vectors of the result, 256 threads a block; one thread makes a vector of neighbours in memory: channels of
// a channels-last pixel, else windows of a row. Windows of 2 x 2 that tile the image, those of most nets, have kernels
// of their own: x, y and the indices each pass through a thread once, up to 16 bytes at a time.
// Deterministic: a thread sums alone, in the order of the windows.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/image_vec.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

struct Window {
  int kernel[2], stride[2], padding[2], dilation[2];
};
constexpr Window kTile = {{2, 2}, {2, 2}, {0, 0}, {1, 1}};

struct Pool {
  int H, W, P, Q;
  Window window;
  Divisor stride_h, stride_w;
  // What the threads enumerate, in the order of memory: vectors of channels or of columns.
  Divisor channels, rows, columns;
  uint32_t vectors;
};

// Of `rows` x `columns` of all planes, `vec` neighbours to a thread.
Pool make_pool(const Shape& image, const Shape& pooled, const Pool2dGeometry& geometry, int64_t rows, int64_t columns,
               Along along, int vec) {
  Pool pool;
  pool.H = static_cast<int>(image[2]), pool.W = static_cast<int>(image[3]);
  pool.P = static_cast<int>(pooled[2]), pool.Q = static_cast<int>(pooled[3]);
  for (int i = 0; i < 2; ++i) {
    pool.window.kernel[i] = static_cast<int>(geometry.kernel[i]);
    pool.window.stride[i] = static_cast<int>(geometry.stride[i]);
    pool.window.padding[i] = static_cast<int>(geometry.padding[i]);
    pool.window.dilation[i] = static_cast<int>(geometry.dilation[i]);
  }
  pool.stride_h = Divisor(geometry.stride[0]), pool.stride_w = Divisor(geometry.stride[1]);
  const int64_t channels = image[1] / (along == Along::channels ? vec : 1);
  columns /= along == Along::columns ? vec : 1;
  pool.channels = Divisor(channels), pool.rows = Divisor(rows), pool.columns = Divisor(columns);
  const int64_t vectors = image[0] * channels * rows * columns;
  GRADUS_CHECK(vectors * vec < int64_t{1} << 31, ShapeError, "cuda pools at most 2^31 elements at once, got ",
               vectors * vec, "; split the batch");
  pool.vectors = static_cast<uint32_t>(vectors);
  return pool;
}

// The first element of a vector.
struct Place {
  uint32_t n, c;
  int row, column;
};
template <Along kAlong, int kVec>
__device__ Place place_of(const Pool& pool, uint32_t e) {
  uint32_t n, c, row, column;
  if constexpr (kAlong == Along::channels) {
    c = e, column = pool.channels.split(c), row = pool.columns.split(column), n = pool.rows.split(row);
    c *= kVec;
  } else {
    column = e, row = pool.columns.split(column), c = pool.rows.split(row), n = pool.channels.split(c);
    column *= kVec;
  }
  return {n, c, static_cast<int>(row), static_cast<int>(column)};
}

template <class T>
struct Image {
  T* data;
  Strides4 strides;

  explicit Image(const auto& view) : data(view.template as<std::remove_const_t<T>>()), strides(view.strides) {}
  __device__ T* plane(const Place& at) const { return data + at.n * strides.n + at.c * strides.c; }
  __device__ T* element(const Place& at) const { return plane(at) + at.row * strides.h + at.column * strides.w; }
};

// kTiles: the windows are tiles, all within the image. Others know no vectors of columns.
template <bool kTiles, Along kAlong, int kVec, class T>
__global__ void __launch_bounds__(kThreads)
    pool_kernel(Pool pool, Image<const T> x, Image<T> y, Image<int32_t> indices) {
  using C = compute_t<T>;
  static_assert(kTiles || kAlong == Along::channels || kVec == 1);
  const Window window = kTiles ? kTile : pool.window;
  for (uint32_t e = thread_index(); e < pool.vectors; e += thread_count()) {
    const Place at = place_of<kAlong, kVec>(pool, e);
    const T* image = x.plane(at);
    C best[kVec];
    Vec<int32_t, kVec> best_index;
#pragma unroll
    for (int k = 0; k < kVec; ++k) best[k] = -C(INFINITY), best_index.value[k] = -1;
    for (int r = 0; r < window.kernel[0]; ++r) {
      const int h = at.row * window.stride[0] - window.padding[0] + r * window.dilation[0];
      if (!kTiles && (h < 0 || h >= pool.H)) continue;
      for (int s = 0; s < window.kernel[1]; ++s) {
        const int w = at.column * window.stride[1] - window.padding[1] + s * window.dilation[1];
        if (!kTiles && (w < 0 || w >= pool.W)) continue;
        const T* row = image + h * x.strides.h;
        Vec<T, kVec> tap;
        if constexpr (kTiles && kAlong == Along::columns) {  // every second element of the row over the vector
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

// Each thread writes the tiles of a vector of windows; tiles without a window, at the lower and right edges, become 0.
template <Along kAlong, int kVec, class T>
__global__ void __launch_bounds__(kThreads)
    tiles_backward_kernel(Pool pool, Image<const T> dy, Image<const int32_t> indices, Image<T> dx) {
  using C = compute_t<T>;
  for (uint32_t e = thread_index(); e < pool.vectors; e += thread_count()) {
    const Place at = place_of<kAlong, kVec>(pool, e);
    Vec<T, kVec> gradient;
    Vec<int32_t, kVec> index;
    if (at.row < pool.P && at.column < pool.Q) {
      gradient = load<kVec>(dy.element(at));
      index = load<kVec>(indices.element(at));
    } else {
#pragma unroll
      for (int k = 0; k < kVec; ++k) gradient.value[k] = T(0), index.value[k] = -1;
    }
    // A sum from 0 as in backward_kernel: -0 becomes 0.
    const auto gradient_at = [&](int k, int32_t here) {
      return static_cast<T>(index.value[k] == here ? C(0) + static_cast<C>(gradient.value[k]) : C(0));
    };
    T* image = dx.plane(at);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int h = 2 * at.row + r, w = 2 * at.column;
      if (h >= pool.H) break;
      T* row = image + h * dx.strides.h;
      if constexpr (kAlong == Along::columns) {
        Vec<T, 2 * kVec> tiles;
#pragma unroll
        for (int k = 0; k < 2 * kVec; ++k) tiles.value[k] = gradient_at(k / 2, h * pool.W + w + k);
        store(row + w, tiles);
      } else {
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          if (w + s >= pool.W) break;
          Vec<T, kVec> channels;
#pragma unroll
          for (int k = 0; k < kVec; ++k) channels.value[k] = gradient_at(k, h * pool.W + w + s);
          store(row + (w + s) * dx.strides.w, channels);
        }
      }
    }
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

// One vector of dx to a thread.
template <Along kAlong, int kVec, class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Pool pool, Image<const T> dy, Image<const int32_t> indices, Image<T> dx) {
  using C = compute_t<T>;
  static_assert(kAlong == Along::channels || kVec == 1);
  const Window& window = pool.window;
  for (uint32_t e = thread_index(); e < pool.vectors; e += thread_count()) {
    const Place at = place_of<kAlong, kVec>(pool, e);
    const int32_t here = at.row * pool.W + at.column;
    const Windows rows =
        windows_over(at.row, window.kernel[0], pool.stride_h, window.padding[0], window.dilation[0], pool.P);
    const Windows columns =
        windows_over(at.column, window.kernel[1], pool.stride_w, window.padding[1], window.dilation[1], pool.Q);
    const T* gradients = dy.plane(at);
    const int32_t* winners = indices.plane(at);
    C sum[kVec] = {};
    for (int p = rows.first; p <= rows.last; ++p)
      for (int q = columns.first; q <= columns.last; ++q) {
        const auto gradient = load<kVec>(gradients + p * dy.strides.h + q * dy.strides.w);
        const auto winner = load<kVec>(winners + p * indices.strides.h + q * indices.strides.w);
#pragma unroll
        for (int k = 0; k < kVec; ++k)
          if (winner.value[k] == here) sum[k] += static_cast<C>(gradient.value[k]);
      }
    Vec<T, kVec> total;
#pragma unroll
    for (int k = 0; k < kVec; ++k) total.value[k] = static_cast<T>(sum[k]);
    store(dx.element(at), total);
  }
}

// Whether the kernels for tiles serve: they take whole pairs of columns, or any columns of channels side by side.
bool takes_tiles(const View& image, const Pool2dGeometry& g) {
  for (int i = 0; i < 2; ++i)
    if (g.kernel[i] != 2 || g.stride[i] != 2 || g.padding[i] != 0 || g.dilation[i] != 1) return false;
  if (neighbours_of(image) == Along::channels) return true;
  bool pairs = false;
  visit_floating(image.dtype, [&]<class T>() { pairs = can_vectorize<T>(image, Along::columns, 2); });
  return pairs;
}

// Calls run<kTiles, kAlong, kVec>() with the largest vectors that all three views have.
template <class T, class Run>
void visit_packs(bool tiles, const View& image, const View& pooled, const View& indices, const Run& run) {
  constexpr int kFull = 16 / sizeof(T);
  const auto fits = [&](Along along, int vec, int image_vec) {
    return can_vectorize<T>(image, along, image_vec) && can_vectorize<T>(pooled, along, vec) &&
           can_vectorize<int32_t>(indices, along, vec);
  };
  const auto channels_fit = [&](int vec) { return fits(Along::channels, vec, vec); };
  const auto columns_fit = [&](int vec) { return fits(Along::columns, vec, 2 * vec); };
  if (neighbours_of(image) == Along::channels) {
    if (tiles)
      run_largest<kFull>(channels_fit, [&]<int kVec>() { run.template operator()<true, Along::channels, kVec>(); });
    else run_largest<kFull>(channels_fit, [&]<int kVec>() { run.template operator()<false, Along::channels, kVec>(); });
  } else if (tiles) {
    run_largest<kFull / 2>(columns_fit, [&]<int kVec>() { run.template operator()<true, Along::columns, kVec>(); });
  } else {
    run.template operator()<false, Along::columns, 1>();
  }
}

}  // namespace

void CudaBackend::max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                             const Pool2dGeometry& geometry) {
  const int64_t P = y.shape[2], Q = y.shape[3];
  const bool tiles = takes_tiles(x, geometry) && 2 * P <= x.shape[2] && 2 * Q <= x.shape[3];
  EventScope event("max_pool2d", "cuda", tiles ? "tiles" : "direct", {&x},
                   y.numel() * geometry.kernel[0] * geometry.kernel[1]);
  if (y.numel() == 0) return;
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    visit_packs<T>(tiles, x, y, indices, [&]<bool kTiles, Along kAlong, int kVec>() {
      const Pool pool = make_pool(x.shape, y.shape, geometry, P, Q, kAlong, kVec);
      launch(pool_kernel<kTiles, kAlong, kVec, T>, launch.blocks(pool.vectors, kThreads), kThreads, pool,
             Image<const T>(x), Image<T>(y), Image<int32_t>(indices));
    });
  });
}

void CudaBackend::max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                      const Pool2dGeometry& geometry) {
  const int64_t H = dx.shape[2], W = dx.shape[3];
  const bool tiles = takes_tiles(dx, geometry);
  EventScope event("max_pool2d_backward", "cuda", tiles ? "tiles" : "gather", {&dy, &indices}, dy.numel());
  if (dx.numel() == 0) return;
  const Launch launch(dx.device);
  visit_floating(dx.dtype, [&]<class T>() {
    visit_packs<T>(tiles, dx, dy, indices, [&]<bool kTiles, Along kAlong, int kVec>() {
      const auto kernel = [] {
        if constexpr (kTiles) return tiles_backward_kernel<kAlong, kVec, T>;
        else return backward_kernel<kAlong, kVec, T>;
      }();
      const Pool pool =
          make_pool(dx.shape, dy.shape, geometry, kTiles ? (H + 1) / 2 : H, kTiles ? (W + 1) / 2 : W, kAlong, kVec);
      launch(kernel, launch.blocks(pool.vectors, kThreads), kThreads, pool, Image<const T>(dy),
             Image<const int32_t>(indices), Image<T>(dx));
    });
  });
}

}  // namespace gradus
