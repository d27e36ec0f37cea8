// Average pooling, interpolation and the gradients of both, as weighted sums of taps (core/backend.h: Stencil):
//   y[n, c, p, q] = sum over the taps k of p and l of q of
//                   rows.weight[k] columns.weight[l] x[n, c, rows.source[k], columns.source[l]].
// Layout: x (N, C, H, W), y (N, C, P, Q), any strides.
// Grid: x = blocks of a grid-stride loop over vectors of y.  Block: 64 or 256 threads; a thread computes an element, or
// a vector of channels of a channels-last pixel, a step. The stencils are copied to device memory as kernel arguments.
// The mean of whole planes is a reduction (reduce), and its gradient an element-wise map (device/map.cuh).
// Deterministic: one thread computes all of a sum, in the order of the taps.
//
// RGB to grayscale: y (…, 1, H, W) = 0.2989 R + 0.5870 G + 0.1140 B of x (…, 3, H, W). Integers are computed in double
// and truncated.
// Layout: any strides; grid, block and order: device/map.cuh, with three operands, the channels of x.
#include <algorithm>
#include <cstring>
#include <vector>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/kernel_args.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/map.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// A stencil in device memory. The taps of position p are begin[p] … begin[p + 1] - 1; a tap has a source, which is an
// index along the axis, and a weight.
struct Taps {
  const int32_t *begin, *sources;
  const double* weights;
};

// A part of a host table as a kernel argument. All arguments together must fit in 4 KiB.
struct Words {
  static constexpr size_t kMost = 960;
  uint32_t word[kMost];
};
__global__ void __launch_bounds__(kThreads) copy_words_kernel(Words words, uint32_t count, uint32_t* to) {
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) to[i] = words.word[i];
}

// Copies a stencil to device memory: its weights, `begin` and sources. The stencil is passed as kernel arguments, so
// the copy waits for nothing and needs no pinned memory. A captured graph contains the copy, with the contents of the
// stencil at the time of the capture.
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
      launch(copy_words_kernel, 1, kThreads, part, u32(count), memory_.as<uint32_t>() + first);
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

template <Along kAlong, int kVec, class T>
__global__ void __launch_bounds__(kThreads)
    resample_kernel(ImageVectors vectors, Taps rows, Taps columns, Image<const T> x, Image<T> y) {
  using C = compute_t<T>;
  for (uint32_t e = thread_index(); e < vectors.count; e += thread_count()) {
    const Place at = vectors.place<kAlong, kVec>(e);
    C sum[kVec] = {};
    for (int k = rows.begin[at.row]; k < rows.begin[at.row + 1]; ++k) {
      const T* row = x.plane(at) + rows.sources[k] * x.strides.h;
      C of_row[kVec] = {};
#pragma unroll 4
      for (int l = columns.begin[at.column]; l < columns.begin[at.column + 1]; ++l) {
        const auto taps = load<kVec>(row + columns.sources[l] * x.strides.w);
#pragma unroll
        for (int j = 0; j < kVec; ++j) of_row[j] += static_cast<C>(columns.weights[l]) * static_cast<C>(taps.value[j]);
      }
#pragma unroll
      for (int j = 0; j < kVec; ++j) sum[j] += static_cast<C>(rows.weights[k]) * of_row[j];
    }
    Vec<T, kVec> result;
#pragma unroll
    for (int j = 0; j < kVec; ++j) result.value[j] = static_cast<T>(sum[j]);
    store(y.element(at), result);
  }
}

bool is_mean(const Stencil& stencil) {
  return is_uniform(stencil) && stencil.size_out == 1 && stencil.weight[0] == 1 / static_cast<double>(stencil.size_in);
}
// Returns true if the stencil repeats one element along the axis, as in the gradient of a mean.
bool spreads(const Stencil& stencil) { return is_uniform(stencil) && stencil.size_in == 1; }

template <class T>
struct Spread {
  compute_t<T> row, column;
  __device__ T operator()(T x) const { return static_cast<T>(row * (column * static_cast<compute_t<T>>(x))); }
};

}  // namespace

void CudaBackend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  if (y.numel() == 0) return;
  if (is_mean(rows) && is_mean(columns)) return reduce(ReduceOp::mean, x, 0b1100, y);
  const bool spread = spreads(rows) && spreads(columns);
  EventScope event("resample2d", "cuda", spread ? "map" : "direct", {&x, &y}, 2 * y.numel());
  GRADUS_CHECK(y.numel() <= kMaxChunk, ShapeError, "cuda resamples to at most ", kMaxChunk, " elements at once, got ",
               y.numel(), "; split the batch");
  if (spread) {
    View plane = x;  // the single element of each plane, broadcast to the shape of y
    plane.shape = y.shape;
    plane.strides[2] = plane.strides[3] = 0;
    return visit_floating(y.dtype, [&]<class T>() {
      using C = compute_t<T>;
      map<T, T>(Spread<T>{static_cast<C>(rows.weight[0]), static_cast<C>(columns.weight[0])}, y, plane);
    });
  }
  const Launch launch(y.device);
  const DeviceStencil row_taps(launch, y.device, rows), column_taps(launch, y.device, columns);
  visit_floating(y.dtype, [&]<class T>() {
    const auto run = [&]<Along kAlong, int kVec>() {
      const ImageVectors vectors(y.shape, kAlong, kVec);
      // Blocks are smaller if there would otherwise be fewer than two for every multiprocessor.
      const uint32_t threads = vectors.count < 2 * kThreads * u32(launch.multiprocessors()) ? 64 : kThreads;
      launch(resample_kernel<kAlong, kVec, T>, launch.blocks(vectors.count, threads), threads, vectors, row_taps.taps(),
             column_taps.taps(), Image<const T>(x), Image<T>(y));
    };
    const auto fits = [&](int vec) {
      return can_vectorize(x, Along::channels, vec) && can_vectorize(y, Along::channels, vec);
    };
    if (neighbours_of(y) == Along::channels)
      run_largest<16 / sizeof(T)>(fits, [&]<int kVec>() { run.template operator()<Along::channels, kVec>(); });
    else run.template operator()<Along::columns, 1>();
  });
}

// ---- rgb_to_grayscale ----

namespace {

template <class T>
struct Luma {
  __device__ T operator()(T red, T green, T blue) const {
    using C = std::conditional_t<std::is_same_v<compute_t<T>, float>, float, double>;
    return scalar::convert<T>(C(0.2989) * static_cast<C>(red) + C(0.5870) * static_cast<C>(green) +
                              C(0.1140) * static_cast<C>(blue));
  }
};

}  // namespace

void CudaBackend::rgb_to_grayscale(const View& x, const MutableView& y) {
  EventScope event("rgb_to_grayscale", "cuda", "map", {&x}, 5 * y.numel());
  const int axis = x.ndim() - 3;
  visit_numeric(y.dtype, [&]<class T>() {
    View channels[3] = {x, x, x};
    for (int c = 0; c < 3; ++c) {
      channels[c].data = x.as<T>() + c * x.strides[axis];
      channels[c].shape[axis] = 1;
    }
    cuda_detail::map<T, T, T, T>(Luma<T>(), y, channels[0], channels[1], channels[2]);
  });
}

}  // namespace gradus
