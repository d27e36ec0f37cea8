// Random numbers: y[i] = element i, in logical order, of a stream of core/runtime/random.h, with the same bits as on
// the CPU. Dropout draws, masks and scales in one pass. A permutation is the order of random keys; equal keys keep
// their order.
// Layout: any strides.  Grid: x = blocks of a grid-stride loop (device/map.cuh).  Block: 256 threads; a thread computes
// four neighbours in logical order a step, which share random words.
// Deterministic: a number depends only on seed, offset and index.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/random.h>
#include <gradus/backends/cuda/device/map.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// Adds the offset that is stored on the device. It is there because the host changes it between replays of a graph.
__device__ void add_device_offset(RandomState& state) {
  if (state.device_offset) state.offset += *state.device_offset;
}

enum class Distribution { uniform, normal, bernoulli, integer, key };

// Draws element i of a stream. `a` and `b` are the limits (uniform) or the mean and the deviation (normal); for
// bernoulli, `a` is the probability. A key for a permutation is 64 random bits with the sign bit flipped, so that the
// signed keys are in the order of the bits as unsigned numbers.
template <Distribution kOf, class T, class Parameter>
struct Draw {
  RandomState state;
  Parameter a = {}, b = {};
  __device__ void begin() { add_device_offset(state); }
  __device__ T operator()(uint64_t i) const {
    using enum Distribution;
    const uint64_t seed = state.seed, offset = state.offset;
    if constexpr (kOf == uniform) return random_uniform<T>(seed, offset, i, a, b);
    if constexpr (kOf == normal) return random_normal<T>(seed, offset, i, a, b);
    if constexpr (kOf == bernoulli) return scalar::convert<T>(random_bernoulli(seed, offset, i, a));
    if constexpr (kOf == integer) return scalar::convert<T>(random_integer(seed, offset, i, a, b));
    if constexpr (kOf == key) return static_cast<T>(random_bits64(seed, offset, i) ^ uint64_t{1} << 63);
  }
};

// Computes y = dropout(x) and the mask of kept elements. geometry.offsets() returns the offsets in y, x and mask.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(RandomState state, Geometry<3> geometry, const T* x, T* y, bool* mask, uint64_t first, double keep,
                   compute_t<T> scale) {
  add_device_offset(state);
  for (uint32_t i = 4 * thread_index(); i < geometry.numel; i += 4 * thread_count()) {
    Vec<bool, 4> kept;
    four_draws([&](uint64_t e) { return random_bernoulli(state.seed, state.offset, e, keep); }, first, i, kept.value);
    const auto scaled = [&](T value, bool is_kept) {
      return is_kept ? static_cast<T>(static_cast<compute_t<T>>(value) * scale) : T(0);
    };
    if (geometry.vectorised && i + 4 <= geometry.numel) {
      const Vec<T, 4> in = reinterpret_cast<const Vec<T, 4>*>(x)[i / 4];
      Vec<T, 4> out;
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) out.value[k] = scaled(in.value[k], kept.value[k]);
      reinterpret_cast<Vec<bool, 4>*>(mask)[i / 4] = kept;
      reinterpret_cast<Vec<T, 4>*>(y)[i / 4] = out;
    } else {
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        if (i + k >= geometry.numel) break;
        int64_t at[3];
        geometry.offsets(i + k, at);
        mask[at[2]] = kept.value[k];
        y[at[0]] = scaled(x[at[1]], kept.value[k]);
      }
    }
  }
}

template <class T>
struct DropoutBackward {
  compute_t<T> scale;
  __device__ T operator()(T dy, bool kept) const {
    return kept ? static_cast<T>(static_cast<compute_t<T>>(dy) * scale) : T(0);
  }
};

}  // namespace

void CudaBackend::uniform(const MutableView& y, const RandomState& state, double low, double high) {
  EventScope event("uniform", "cuda", "generate", {});
  visit_floating(y.dtype, [&]<class T>() { generate<T>(Draw<Distribution::uniform, T, double>{state, low, high}, y); });
}

void CudaBackend::normal(const MutableView& y, const RandomState& state, double mean, double deviation) {
  EventScope event("normal", "cuda", "generate", {});
  visit_floating(y.dtype, [&]<class T>() {
    generate<T>(Draw<Distribution::normal, T, double>{state, mean, deviation}, y);
  });
}

void CudaBackend::bernoulli(const MutableView& y, const RandomState& state, double p) {
  EventScope event("bernoulli", "cuda", "generate", {});
  visit(y.dtype, [&]<class T>() { generate<T>(Draw<Distribution::bernoulli, T, double>{state, p}, y); });
}

void CudaBackend::randint(const MutableView& y, const RandomState& state, int64_t low, int64_t high) {
  EventScope event("randint", "cuda", "generate", {});
  visit(y.dtype, [&]<class T>() { generate<T>(Draw<Distribution::integer, T, int64_t>{state, low, high}, y); });
}

void CudaBackend::randperm(const MutableView& y, const RandomState& state) {
  EventScope event("randperm", "cuda", "sort", {});
  const Scratch memory(sizeof(int64_t) * static_cast<size_t>(y.numel()), y.device);
  MutableView keys = y;
  keys.data = memory.data(), keys.strides = Strides{1};
  generate<int64_t>(Draw<Distribution::key, int64_t, int>{state}, keys);
  sort(keys, 0, /*descending=*/false, {}, y);
}

void CudaBackend::dropout(const View& x, double p, const RandomState& state, const MutableView& mask,
                          const MutableView& y) {
  EventScope event("dropout", "cuda", "fused", {&x}, 2 * x.numel());
  const Nest<3> nest = Nest<3>::logical(y.shape, {&y.strides, &x.strides, &mask.strides});
  if (nest.numel == 0) return;
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    const auto scale = static_cast<compute_t<T>>(1 / (1 - p));
    for_each_chunk(nest, [&](const Nest<3>& chunk, int64_t first, const int64_t* at) {
      const T* from = x.as<T>() + at[1];
      T* to = y.as<T>() + at[0];
      bool* kept = mask.as<bool>() + at[2];
      Geometry<3> geometry = chunk.geometry();
      geometry.vectorised = chunk.contiguous(0) && chunk.contiguous(1) && chunk.contiguous(2) && aligned(from) &&
                            aligned(to) && aligned(kept);
      launch(dropout_kernel<T>, launch.blocks(chunk.numel, 4 * kThreads), kThreads, state, geometry, from, to, kept,
             static_cast<uint64_t>(first), 1 - p, scale);
    });
  });
}

void CudaBackend::dropout_backward(const View& dy, const View& mask, double p, const MutableView& dx) {
  EventScope event("dropout_backward", "cuda", "fused", {&dy, &mask}, dx.numel());
  visit_floating(dx.dtype, [&]<class T>() {
    const auto scale = static_cast<compute_t<T>>(1 / (1 - p));
    map<T, T, bool>(DropoutBackward<T>{scale}, dx, dy, mask);
  });
}

}  // namespace gradus
