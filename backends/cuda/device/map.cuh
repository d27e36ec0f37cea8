// Element-wise operators: y[i] = f(x0[i], x1[i], …), and generators: y[i] = f(i).
// Layout: any strides. Elements are accessed in vectors if all views are contiguous, or if each row of the last axis
// consists of whole vectors (an operand may also repeat one element along the row); otherwise one by one. A vector has
// eight elements if no type has more than two bytes, otherwise four.
// Grid: x = blocks of a grid-stride loop (Launch::blocks).  Block: 256 threads; in each step of the loop, a thread
// computes one vector or one element (generators: four neighbours).  Deterministic: every element is computed
// independently of the others.
#pragma once

#include <utility>

#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {

/// The number of elements of a vector, which a thread computes together.
template <class... T>
inline constexpr int kMapVec = (... && (sizeof(T) <= 2)) ? 8 : 4;

/// Loads kVec neighbouring elements or, if `repeat` is true, one element that is repeated kVec times.
template <int kVec, class T>
__device__ Vec<T, kVec> load_or_repeat(const T* from, bool repeat) {
  if (!repeat) return load<kVec>(from);
  const T value = *from;
  Vec<T, kVec> vec;
#pragma unroll
  for (T& each : vec.value) each = value;
  return vec;
}
/// Applies f to each element of a vector.
template <class Out, int kVec, class F, class... In>
__device__ Vec<Out, kVec> map_vec(const F& f, const Vec<In, kVec>&... in) {
  Vec<Out, kVec> out;
#pragma unroll
  for (int k = 0; k < kVec; ++k) out.value[k] = f(in.value[k]...);
  return out;
}

/// The views as a kernel argument. They are indexed as contiguous memory or by strides. If `nest.vectorised` is set,
/// elements are accessed in vectors; a vector of operand k is one repeated element if bit k of `repeated` is set. The
/// members that contiguous views need come first, because a kernel waits for each cache line of its parameters.
template <int N>
struct MapViews {
  void* data[N];
  bool contiguous;
  uint32_t repeated;
  Geometry<N> nest;

  /// The loop over axes is unrolled if elements are accessed one by one, because a copy that transposes spends most of
  /// its time in this loop. Nests of vectors have few axes; unrolling their loop would slow down contiguous views more
  /// than it saves.
  template <bool kVector>
  __device__ void offsets(uint32_t i, int64_t (&at)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = contiguous ? i : 0;
    if (contiguous) return;
    if constexpr (kVector) {
#pragma unroll 1
      for (int axis = nest.ndim - 1; axis >= 0; --axis) {
        uint32_t index = i;
        i = nest.size[axis].split(index);
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] += index * nest.strides[k][axis];
      }
    } else {
      nest.offsets(i, at);
    }
  }
};

template <class F, class Out, class... In>
__global__ void __launch_bounds__(kThreads) map_kernel(F f, MapViews<1 + sizeof...(In)> views) {
  constexpr int kVec = kMapVec<Out, In...>;
  const auto apply = [&]<bool kVector, size_t... I>(uint32_t i, std::index_sequence<I...>) {
    int64_t at[1 + sizeof...(In)];
    views.template offsets<kVector>(i, at);
    Out* const y = static_cast<Out*>(views.data[0]) + at[0];
    if constexpr (kVector)
      store(y, map_vec<Out, kVec>(f, load_or_repeat<kVec>(static_cast<const In*>(views.data[I + 1]) + at[I + 1],
                                                          views.repeated >> I & 1)...));
    else *y = f(static_cast<const In*>(views.data[I + 1])[at[I + 1]]...);
  };
  constexpr std::index_sequence_for<In...> operands;
  const uint32_t vectors = views.nest.vectorised ? views.nest.numel / kVec : 0;
  for (uint32_t i = thread_index(); i < vectors; i += thread_count())
    apply.template operator()<true>(kVec * i, operands);
  for (uint32_t i = vectors * kVec + thread_index(); i < views.nest.numel; i += thread_count())
    apply.template operator()<false>(i, operands);
}

/// Returns true if view k repeats one element along the last axis.
template <int N>
bool is_repeated(const Nest<N>& nest, int k) {
  return nest.ndim > 0 && nest.strides[k][nest.ndim - 1] == 0;
}
/// Returns true if view k, which starts at `data`, can be accessed in aligned vectors: as a whole if all views are
/// contiguous, otherwise along each row of the last axis. An operand (k > 0) that repeats one element along that axis
/// also qualifies, because load_or_repeat() reads the element once.
template <int kVec, int N, class T>
bool has_map_vectors(const Nest<N>& nest, int k, const T* data) {
  if (reinterpret_cast<uintptr_t>(data) % std::min<size_t>(16, kVec * sizeof(T)) != 0) return is_repeated(nest, k);
  if (nest.all_contiguous()) return true;
  const auto is_whole = [](int64_t stride) { return stride % kVec == 0; };
  const int last = nest.ndim - 1;
  if (nest.shape[last] % kVec != 0) return false;
  if (is_repeated(nest, k)) return k > 0;
  return nest.strides[k][last] == 1 && std::all_of(nest.strides[k], nest.strides[k] + last, is_whole);
}

/// Runs y = f(x…) over views of the same shape; y may be the same view as an operand.
template <class Out, class... In, class F, class... Views>
void map(const F& f, const MutableView& y, const Views&... x) {
  static_assert(sizeof...(In) == sizeof...(Views));
  constexpr int N = 1 + sizeof...(In);
  const Nest<N> nest(y.shape, {&y.strides, &x.strides...});
  if (nest.numel == 0) return;
  const Launch launch(y.device);
  for_each_chunk(nest, [&](const Nest<N>& chunk, int64_t, const int64_t* at) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      constexpr int kVec = kMapVec<Out, In...>;
      MapViews<N> views{{y.template as<Out>() + at[0], const_cast<In*>(x.template as<In>() + at[I + 1])...},
                        chunk.all_contiguous(),
                        (0 | ... | (is_repeated(chunk, I + 1) ? 1u << I : 0)),
                        chunk.geometry()};
      views.nest.vectorised = has_map_vectors<kVec>(chunk, 0, y.template as<Out>() + at[0]) &&
                              (... && has_map_vectors<kVec>(chunk, I + 1, x.template as<In>() + at[I + 1]));
      const uint32_t blocks = launch.blocks(chunk.numel, (views.nest.vectorised ? kVec : 1) * int64_t{kThreads});
      launch(map_kernel<F, Out, In...>, blocks, kThreads, f, views);
    }
    (std::index_sequence_for<In...>());
  });
}

/// values[k] = f(first + i + k) for k = 0 … 3, where i is a multiple of four. If `first` is a multiple of four too, the
/// four values share a block of random words, which the compiler then computes only once.
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

/// y[i] = f(i) for i in logical order; a thread computes four neighbours a step.
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

/// Runs y[i] = f(i) for i in logical order. Each thread first calls f.begin() once.
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
