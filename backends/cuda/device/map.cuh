// y[i] = f(x0[i], x1[i], …): the kernel of all element-wise operators. Contiguous views go four elements at a time,
// others by their strides.
#pragma once

#include <utility>

#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {

template <class F, class Out, class... In>
__global__ void __launch_bounds__(kThreads)
    map_kernel(F f, Geometry<1 + sizeof...(In)> geometry, Out* y, const In*... x) {
  if (geometry.vectorised) {
    const uint32_t vectors = geometry.numel / 4;
    for (uint32_t i = thread_index(); i < vectors; i += thread_count()) {
      Vec<Out, 4> out;
      [&](const Vec<In, 4>&... in) {
#pragma unroll
        for (int k = 0; k < 4; ++k) out.value[k] = f(in.value[k]...);
      }(Vec<In, 4>(reinterpret_cast<const Vec<In, 4>*>(x)[i])...);
      reinterpret_cast<Vec<Out, 4>*>(y)[i] = out;
    }
    for (uint32_t i = vectors * 4 + thread_index(); i < geometry.numel; i += thread_count()) y[i] = f(x[i]...);
  } else {
    for (uint32_t i = thread_index(); i < geometry.numel; i += thread_count()) {
      int64_t at[1 + sizeof...(In)];
      geometry.offsets(i, at);
      [&]<size_t... I>(std::index_sequence<I...>) { y[at[0]] = f(x[at[I + 1]]...); }
      (std::index_sequence_for<In...>());
    }
  }
}

/// Runs y = f(x…) over views of the same shape; y may be the same view as an x.
template <class Out, class... In, class F, class... Views>
void map(const F& f, const MutableView& y, const Views&... x) {
  static_assert(sizeof...(In) == sizeof...(Views));
  constexpr int N = 1 + sizeof...(In);
  const Nest<N> nest(y.shape, {&y.strides, &x.strides...});
  if (nest.numel == 0) return;
  const Launch launch(y.device);
  for_each_chunk(nest, [&](const Nest<N>& chunk, int64_t, const int64_t* at) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      Out* out = y.template as<Out>() + at[0];
      Geometry<N> geometry = chunk.geometry();
      geometry.vectorised = chunk.contiguous(0) && aligned(out) &&
                            (... && (chunk.contiguous(I + 1) && aligned(x.template as<In>() + at[I + 1])));
      const uint32_t blocks = launch.blocks(chunk.numel, geometry.vectorised ? 4 * kThreads : kThreads);
      launch(map_kernel<F, Out, In...>, blocks, kThreads, f, geometry, out, (x.template as<In>() + at[I + 1])...);
    }
    (std::index_sequence_for<In...>());
  });
}

/// values[k] = f(first + i + k), i being a multiple of four. What f computes for all four alike, as random words, is
/// computed once where `first` is such a multiple too.
template <class F, class Out>
__device__ void four_draws(F&& f, uint64_t first, uint32_t i, Out (&values)[4]) {
  if (first % 4 == 0) {
    const uint64_t quarter = first / 4 + i / 4;
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) values[k] = f(quarter << 2 | k);
  } else {
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) values[k] = f(first + (i | k));
  }
}

/// y[i] = f(i), i in logical order; each thread makes four neighbours.
template <class F, class Out>
__global__ void __launch_bounds__(kThreads) generate_kernel(F f, Geometry<1> geometry, Out* y, uint64_t first) {
  f.begin();
  for (uint32_t i = 4 * thread_index(); i < geometry.numel; i += 4 * thread_count()) {
    Vec<Out, 4> out;
    four_draws(f, first, i, out.value);
    if (geometry.vectorised && i + 4 <= geometry.numel) {
      reinterpret_cast<Vec<Out, 4>*>(y)[i / 4] = out;
    } else {
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k)
        if (i + k < geometry.numel) y[geometry.offset(i + k)] = out.value[k];
    }
  }
}

/// Runs y[i] = f(i). `f.begin()` is called once per thread before.
template <class Out, class F>
void generate(const F& f, const MutableView& y) {
  const Nest<1> nest = Nest<1>::logical(y.shape, {&y.strides});
  if (nest.numel == 0) return;
  const Launch launch(y.device);
  for_each_chunk(nest, [&](const Nest<1>& chunk, int64_t first, const int64_t* at) {
    Out* out = y.template as<Out>() + at[0];
    Geometry<1> geometry = chunk.geometry();
    geometry.vectorised = chunk.contiguous(0) && aligned(out);
    launch(generate_kernel<F, Out>, launch.blocks(chunk.numel, 4 * kThreads), kThreads, f, geometry, out,
           static_cast<uint64_t>(first));
  });
}

}  // namespace gradus::cuda_detail
