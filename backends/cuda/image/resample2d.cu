// y[n, c, p, q] = sum over k, l of rows.weight[k] columns.weight[l] x[n, c, rows.source[k], columns.source[l]], k and l
// being the taps of p and q: average pooling, interpolation, and the gradients of both (core/backend.h: Stencil).
// x (N, C, H, W), y (N, C, P, Q): any strides.
// windows_kernel: windows of one size and weight at equal distances, as of most pooling, its gradient and enlargement
//   to the nearest pixel, need no tables: one thread for a vector of neighbours of y, channels or columns.
// resample_kernel: one thread for each element of y; the stencils travel as kernel parameters.
// The mean of whole planes is a reduction.  Deterministic: each sum in the order of its taps.
#include <optional>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/image_vec.cuh>
#include <gradus/backends/cuda/device/kernel_params.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

struct Taps {
  const int32_t *begin, *source;
  const double* weight;
};

// A stencil in device memory.
class DeviceStencil {
 public:
  DeviceStencil(const Launch& launch, Device device, const Stencil& stencil)
      : begin_(launch, device, {stencil.begin.begin(), stencil.begin.end()}),
        source_(launch, device, {stencil.source.begin(), stencil.source.end()}),
        weight_(launch, device, {stencil.weight.begin(), stencil.weight.end()}) {}
  Taps taps() const { return {begin_.data(), source_.data(), weight_.data()}; }

 private:
  const DeviceTable<int32_t> begin_, source_;
  const DeviceTable<double> weight_;
};

struct Sizes {
  Divisor channels, height, width;  // of y, in vectors
  bool channels_last;               // y's channels are innermost
  uint32_t numel;

  Sizes(const View& y, Along along, int vec)
      : channels(y.shape[1] / (along == Along::channels ? vec : 1)), height(y.shape[2]),
        width(y.shape[3] / (along == Along::columns ? vec : 1)), channels_last(along == Along::channels),
        numel(static_cast<uint32_t>(y.numel() / vec)) {}
};

// The coordinates of an element or vector of y: neighbours in memory go to neighbouring threads.
struct Place {
  uint32_t n, c, p, q;
  __device__ Place(const Sizes& sizes, uint32_t e) {
    if (sizes.channels_last) {
      c = e, q = sizes.channels.split(c), p = sizes.width.split(q), n = sizes.height.split(p);
    } else {
      q = e, p = sizes.width.split(q), c = sizes.height.split(p), n = sizes.channels.split(c);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    resample_kernel(Sizes sizes, Taps rows, Taps columns, const T* x, Strides4 x_strides, T* y, Strides4 y_strides) {
  using C = compute_t<T>;
  for (uint32_t e = thread_index(); e < sizes.numel; e += thread_count()) {
    const auto [n, c, p, q] = Place(sizes, e);
    const T* plane = x + n * x_strides.n + c * x_strides.c;
    C sum = 0;
    for (int32_t k = rows.begin[p]; k < rows.begin[p + 1]; ++k) {
      const T* row = plane + rows.source[k] * x_strides.h;
      C row_sum = 0;
      for (int32_t l = columns.begin[q]; l < columns.begin[q + 1]; ++l)
        row_sum += static_cast<C>(columns.weight[l]) * static_cast<C>(row[columns.source[l] * x_strides.w]);
      sum += static_cast<C>(rows.weight[k]) * row_sum;
    }
    y[n * y_strides.n + c * y_strides.c + p * y_strides.h + q * y_strides.w] = static_cast<T>(sum);
  }
}

// The taps of p: `count` elements, all of one weight, from step (p / every) on.
struct Windows {
  int count, step;
  Divisor every;
  double weight;
  __device__ int first(uint32_t p) const { return step * static_cast<int>(every.quotient(p)); }
};

std::optional<Windows> windows_of(const Stencil& stencil) {
  const int64_t size = stencil.size_out, count = stencil.begin[1];
  if (count == 0 || static_cast<int64_t>(stencil.source.size()) != count * size) return {};
  const auto first = [&](int64_t p) { return stencil.source[p * count]; };
  int64_t every = 1;
  while (every < size && first(every) == 0) ++every;
  const int64_t step = every < size ? first(every) : 0;
  const double weight = stencil.weight[0];
  for (int64_t p = 0; p < size; ++p) {
    if (stencil.begin[p] != p * count) return {};
    for (int64_t i = p * count; i < (p + 1) * count; ++i)
      if (stencil.source[i] != p / every * step + (i - p * count) || stencil.weight[i] != weight) return {};
  }
  return Windows{static_cast<int>(count), static_cast<int>(step), Divisor(every), weight};
}

// One vector of y to a thread.
template <Along kAlong, int kVec, class T>
__global__ void __launch_bounds__(kThreads) windows_kernel(Sizes sizes, Windows rows, Windows columns, const T* x,
                                                           Strides4 x_strides, T* y, Strides4 y_strides) {
  using C = compute_t<T>;
  constexpr bool kChannels = kAlong == Along::channels;
  const C weight = static_cast<C>(rows.weight * columns.weight);
  for (uint32_t e = thread_index(); e < sizes.numel; e += thread_count()) {
    auto [n, c, p, q] = Place(sizes, e);
    (kChannels ? c : q) *= kVec;
    const T* window = x + n * x_strides.n + c * x_strides.c + rows.first(p) * x_strides.h;
    C sum[kVec] = {};
    for (int k = 0; k < rows.count; ++k, window += x_strides.h) {
#pragma unroll 4
      for (int l = 0; l < columns.count; ++l) {
        if constexpr (kChannels) {
          const auto tap = load<kVec>(window + (columns.first(q) + l) * x_strides.w);
#pragma unroll
          for (int j = 0; j < kVec; ++j) sum[j] += static_cast<C>(tap.value[j]);
        } else {
#pragma unroll
          for (int j = 0; j < kVec; ++j) sum[j] += static_cast<C>(window[(columns.first(q + j) + l) * x_strides.w]);
        }
      }
    }
    Vec<T, kVec> result;
#pragma unroll
    for (int j = 0; j < kVec; ++j) result.value[j] = static_cast<T>(weight * sum[j]);
    store(y + n * y_strides.n + c * y_strides.c + p * y_strides.h + q * y_strides.w, result);
  }
}

// Calls run<kAlong, kVec>() with the largest vectors that serve. Columns have vectors where a window is one element:
// the threads of a warp that each read several windows of several elements would share no sector of a load.
template <class T, class Run>
void visit_vectors(const View& x, const View& y, const Windows& columns, const Run& run) {
  constexpr int kFull = 16 / sizeof(T);
  const auto channels_fit = [&](int vec) {
    return can_vectorize<T>(x, Along::channels, vec) && can_vectorize<T>(y, Along::channels, vec);
  };
  const auto columns_fit = [&](int vec) { return columns.count == 1 && can_vectorize<T>(y, Along::columns, vec); };
  if (neighbours_of(y) == Along::channels)
    run_largest<kFull>(channels_fit, [&]<int kVec>() { run.template operator()<Along::channels, kVec>(); });
  else run_largest<kFull>(columns_fit, [&]<int kVec>() { run.template operator()<Along::columns, kVec>(); });
}

bool is_mean(const Stencil& stencil, const Windows& windows) {
  return stencil.size_out == 1 && windows.count == stencil.size_in &&
         windows.weight == 1 / static_cast<double>(windows.count);
}

}  // namespace

void CudaBackend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  if (y.numel() == 0) return;
  const auto down = windows_of(rows), across = windows_of(columns);
  if (down && across && is_mean(rows, *down) && is_mean(columns, *across)) return reduce(ReduceOp::mean, x, 0b1100, y);
  EventScope event("resample2d", "cuda", down && across ? "windows" : "direct", {&x, &y}, 2 * y.numel());
  GRADUS_CHECK(y.numel() <= kMaxChunk, ShapeError, "cuda resamples to at most ", kMaxChunk, " elements at once, got ",
               y.numel(), "; split the batch");
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    if (down && across) {
      visit_vectors<T>(x, y, *across, [&]<Along kAlong, int kVec>() {
        const Sizes sizes(y, kAlong, kVec);
        // Smaller blocks where there would not be two for every multiprocessor.
        const uint32_t threads =
            sizes.numel < 2 * kThreads * static_cast<uint32_t>(launch.multiprocessors()) ? 64 : kThreads;
        launch(windows_kernel<kAlong, kVec, T>, launch.blocks(sizes.numel, threads), threads, sizes, *down, *across,
               x.as<T>(), Strides4(x.strides), y.as<T>(), Strides4(y.strides));
      });
      return;
    }
    const DeviceStencil row_taps(launch, y.device, rows), column_taps(launch, y.device, columns);
    launch(resample_kernel<T>, launch.blocks(y.numel(), kThreads), kThreads, Sizes(y, neighbours_of(y), 1),
           row_taps.taps(), column_taps.taps(), x.as<T>(), Strides4(x.strides), y.as<T>(), Strides4(y.strides));
  });
}

}  // namespace gradus
