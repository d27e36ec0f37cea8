// y[n, c, p, q] = sum over k, l of rows.weight[k] columns.weight[l] x[n, c, rows.source[k], columns.source[l]], k and l
// being the taps of p and q: average pooling, interpolation, and the gradients of both (core/backend.h: Stencil).
// x (N, C, H, W), y (N, C, P, Q): any strides.
// Grid: all vectors of y, blocks of 64 or 256 threads; a thread makes a vector of neighbours, channels or columns.
// Windows of one size and weight at equal distances, as of most pooling, its gradient and enlargement to the nearest
// pixel, are computed in the kernel; other stencils travel as kernel parameters to tables in device memory. The mean of
// whole planes is a reduction.  Deterministic: each sum in the order of its taps.
#include <cstring>
#include <optional>
#include <vector>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/image_vec.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// The taps of p are `count(p)` from first(p) on; tap k is element source(k) of the axis and counts weight(k) times the
// kernel's `scale`. These are in device memory.
struct Taps {
  const int32_t *begin, *sources;
  const double* weights;
  __device__ int first(int p) const { return begin[p]; }
  __device__ int count(int p) const { return begin[p + 1] - begin[p]; }
  __device__ int source(int k) const { return sources[k]; }
  __device__ double weight(int k) const { return weights[k]; }
};

// A part of a table of the host, as a kernel parameter: with the others below the limit of 4 KiB.
struct Words {
  static constexpr size_t kMost = 960;
  uint32_t word[kMost];
};
__global__ void __launch_bounds__(kThreads) copy_words_kernel(Words words, uint32_t count, uint32_t* to) {
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) to[i] = words.word[i];
}

// A stencil in device memory: its weights, `begin`, and sources. The copy waits for nothing, needs no pinned memory,
// and is part of a captured graph with the contents that the stencil had then.
class DeviceStencil {
 public:
  DeviceStencil(const Launch& launch, Device device, const Stencil& stencil)
      : taps_(stencil.source.size()), places_(stencil.begin.size()),
        memory_(sizeof(uint32_t) * (3 * taps_ + places_), device) {
    std::vector<uint32_t> words(3 * taps_ + places_);
    std::memcpy(words.data(), stencil.weight.data(), sizeof(double) * taps_);
    std::copy_n(stencil.begin.data(), places_, words.data() + 2 * taps_);
    std::copy_n(stencil.source.data(), taps_, words.data() + 2 * taps_ + places_);
    for (size_t first = 0; first < words.size(); first += Words::kMost) {
      Words part;
      const size_t count = std::min(Words::kMost, words.size() - first);
      std::copy_n(words.data() + first, count, part.word);
      launch(copy_words_kernel, 1, kThreads, part, static_cast<uint32_t>(count), memory_.as<uint32_t>() + first);
    }
  }
  Taps taps() const {
    const auto* begin = memory_.as<int32_t>() + 2 * taps_;
    return {begin, begin + places_, memory_.as<double>()};
  }

 private:
  const size_t taps_, places_;
  const Scratch memory_;
};

// The taps of p: `size` elements, all of one weight, from step (p / every) on.
struct Windows {
  int size, step;
  Divisor every;
  double common_weight;
  __device__ int first(int p) const { return step * static_cast<int>(every.quotient(p)); }
  __device__ int count(int) const { return size; }
  __device__ int source(int k) const { return k; }
  __device__ double weight(int) const { return 1; }
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

// Only windows have vectors of columns: of one element each.
template <Along kAlong, int kVec, class Taps, class T>
__global__ void __launch_bounds__(kThreads)
    resample_kernel(ImageVectors vectors, Taps rows, Taps columns, double scale, Image<const T> x, Image<T> y) {
  using C = compute_t<T>;
  for (uint32_t e = thread_index(); e < vectors.count; e += thread_count()) {
    const Place at = vectors.place<kAlong, kVec>(e);
    const int first_row = rows.first(at.row), row_count = rows.count(at.row);
    const int first_column = columns.first(at.column), column_count = columns.count(at.column);
    C sum[kVec] = {};
    for (int k = first_row; k < first_row + row_count; ++k) {
      const T* row = x.plane(at) + rows.source(k) * x.strides.h;
      C of_row[kVec] = {};
#pragma unroll 4
      for (int l = 0; l < column_count; ++l) {
        Vec<T, kVec> taps;
        if constexpr (kAlong == Along::channels) {
          taps = load<kVec>(row + columns.source(first_column + l) * x.strides.w);
        } else {
#pragma unroll
          for (int j = 0; j < kVec; ++j)
            taps.value[j] = row[columns.source(columns.first(at.column + j) + l) * x.strides.w];
        }
#pragma unroll
        for (int j = 0; j < kVec; ++j)
          of_row[j] += static_cast<C>(columns.weight(first_column + l)) * static_cast<C>(taps.value[j]);
      }
#pragma unroll
      for (int j = 0; j < kVec; ++j) sum[j] += static_cast<C>(rows.weight(k)) * of_row[j];
    }
    Vec<T, kVec> result;
#pragma unroll
    for (int j = 0; j < kVec; ++j) result.value[j] = static_cast<T>(static_cast<C>(scale) * sum[j]);
    store(y.element(at), result);
  }
}

bool is_mean(const Stencil& stencil, const Windows& windows) {
  return stencil.size_out == 1 && windows.size == stencil.size_in &&
         windows.common_weight == 1 / static_cast<double>(windows.size);
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
  const auto run = [&]<class AnyTaps>(const AnyTaps& row_taps, const AnyTaps& column_taps, bool single, double scale) {
    visit_floating(y.dtype, [&]<class T>() {
      constexpr int kFull = 16 / sizeof(T);
      const auto run_vectors = [&]<Along kAlong, int kVec>() {
        const ImageVectors vectors(y.shape, kAlong, kVec);
        // Smaller blocks where there would not be two for every multiprocessor.
        const uint32_t threads =
            vectors.count < 2 * kThreads * static_cast<uint32_t>(launch.multiprocessors()) ? 64 : kThreads;
        launch(resample_kernel<kAlong, kVec, AnyTaps, T>, launch.blocks(vectors.count, threads), threads, vectors,
               row_taps, column_taps, scale, Image<const T>(x), Image<T>(y));
      };
      const auto channels_fit = [&](int vec) {
        return can_vectorize<T>(x, Along::channels, vec) && can_vectorize<T>(y, Along::channels, vec);
      };
      // Threads of a warp that each read several windows of several elements would share no sector of a load.
      const auto columns_fit = [&](int vec) { return single && can_vectorize<T>(y, Along::columns, vec); };
      if (neighbours_of(y) == Along::channels)
        run_largest<kFull>(channels_fit, [&]<int kVec>() { run_vectors.template operator()<Along::channels, kVec>(); });
      else
        run_largest<std::is_same_v<AnyTaps, Windows> ? kFull : 1>(
            columns_fit, [&]<int kVec>() { run_vectors.template operator()<Along::columns, kVec>(); });
    });
  };
  if (down && across) return run(*down, *across, across->size == 1, down->common_weight * across->common_weight);
  const DeviceStencil row_taps(launch, y.device, rows), column_taps(launch, y.device, columns);
  run(row_taps.taps(), column_taps.taps(), false, 1.0);
}

}  // namespace gradus
