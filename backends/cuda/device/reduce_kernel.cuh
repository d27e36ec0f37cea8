// Reductions: y[o] = fold over i of load(x[o, i], i).  Used by reduce.cu, arg_reduce.cu and the sums of normalisation.
// Layout: x has any strides. If the strides allow it, elements are loaded in vectors of up to 16 bytes, either along
// the reduction (all elements of a vector belong to the same output) or across the outputs (each belongs to another
// output).
// Grid: x = blocks of outputs, y = splits of the reduction.  Block: 256 threads, of which `lanes` share an output
// (ReducePlan).  A thread folds every `lanes`-th vector of its split.
// Pipeline: a thread has four vectors or eight single elements in flight, because the memory reaches its bandwidth only
// with some megabytes in flight. The partial results of an output's threads are folded in a tree; a second launch folds
// those of the splits.
// Deterministic: the order of folds depends only on shape, strides, alignment and device.
//
// The template parameter Op has a type A of partial results and the functions neutral(), load(element, its index in the
// reduction) and fold(A, A). The parameter Results has store(offsets of the output in the views of `outer`, A).
#pragma once

#include <gradus/backends/cuda/device/reduce_plan.h>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {

/// A thread loads x in vectors of kAlong neighbours along the reduction or of kAcross neighbours across the outputs;
/// one of the two numbers is 1. Accordingly, `inner` or `outer` is a nest over vectors instead of elements. If
/// `partial` is not null, the results of the splits are stored there.
template <class Op, int kAlong, int kAcross, class T, int N, class Results>
__global__ void __launch_bounds__(kThreads, 4)
    reduce_kernel(const T* x, Geometry<N> outer, Geometry<1> inner, ReducePlan plan, typename Op::A* partial,
                  Results results) {
  using A = typename Op::A;
  using V = Vec<T, kAlong * kAcross>;
  constexpr uint32_t kAtOnce = ReducePlan::loads_at_once(kAlong * kAcross);
  __shared__ A shared[kAcross][kThreads];
  const uint32_t thread = threadIdx.x, lane = plan.lane(), output = plan.output();
  int64_t base[N] = {};
  A total[kAcross];
#pragma unroll
  for (int j = 0; j < kAcross; ++j) total[j] = Op::neutral();

  const auto take = [&](const V& vec, int64_t i) {
    if constexpr (kAlong == 1) {
#pragma unroll
      for (int j = 0; j < kAcross; ++j) total[j] = Op::fold(total[j], Op::load(vec.value[j], i));
    } else {  // folds the vector in a tree first, so that the chain of dependent folds has only one fold per vector
      A folded[kAlong];
#pragma unroll
      for (int j = 0; j < kAlong; ++j) folded[j] = Op::load(vec.value[j], i * kAlong + j);
#pragma unroll
      for (int width = kAlong / 2; width > 0; width /= 2)
#pragma unroll
        for (int j = 0; j < width; ++j) folded[j] = Op::fold(folded[j], folded[j + width]);
      total[0] = Op::fold(total[0], folded[0]);
    }
  };
  const auto for_each_load = [&](auto&& offset) {
    const uint32_t begin = blockIdx.y * plan.per_split, end = min(begin + plan.per_split, inner.numel);
    for (uint32_t i = begin + lane; i < end; i += kAtOnce * plan.lanes) {
      V vectors[kAtOnce];
#pragma unroll
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        // Loads beyond the end repeat the last element, so that no load is conditional.
        vectors[k] = *reinterpret_cast<const V*>(x + base[0] + offset(min(i + k * plan.lanes, end - 1)));
      }
#pragma unroll
      for (uint32_t k = 0; k < kAtOnce; ++k)
        if (i + k * plan.lanes < end) take(vectors[k], i + k * plan.lanes);
    }
  };
  if (output < outer.numel) {
    if (outer.ndim == 1) {  // avoids the loop over axes, which would take as long as reducing a short row
#pragma unroll
      for (int k = 0; k < N; ++k) base[k] = output * outer.strides[k][0];
    } else {
      outer.offsets(output, base);
    }
    if (kAlong * kAcross > 1 || inner.ndim <= 2) {  // nests of vectors have at most two axes; missing axes have size 1
      for_each_load([&](uint32_t i) {
        const uint32_t row = inner.size[1].split(i);
        return row * inner.strides[0][0] + i * inner.strides[0][1];
      });
    } else {
      for_each_load([&](uint32_t i) { return inner.offset(i); });
    }
  }

  const auto share = [&] {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) shared[j][thread] = total[j];
  };
  constexpr bool kShuffles = kAcross == 1 && std::is_arithmetic_v<A>;
  const uint32_t step = plan.outputs_adjacent ? plan.outputs : 1;
  if (!kShuffles || plan.lanes * step > 32) share();
  for (uint32_t width = plan.lanes / 2; width > 0; width /= 2) {
    if (kShuffles && 2 * width * step <= 32) {
      if constexpr (kShuffles) total[0] = Op::fold(total[0], __shfl_down_sync(0xffffffffu, total[0], width * step));
      continue;
    }
    if (2 * width * step > 32) __syncthreads();
    else __syncwarp();  // each warp reads only what it has written itself
    if (lane < width) {
#pragma unroll
      for (int j = 0; j < kAcross; ++j) total[j] = Op::fold(total[j], shared[j][thread + width * step]);
      share();
    }
  }
  if (kAcross > 1 && plan.lanes > 1) __syncthreads();
  if (output >= outer.numel) return;
  for (uint32_t j = lane; j < kAcross; j += plan.lanes) {  // each lane stores some of the vector's outputs
    const A result = kAcross > 1 ? shared[j][thread - lane * step] : total[0];
    if (partial) {
      partial[(static_cast<int64_t>(blockIdx.y) * outer.numel + output) * kAcross + j] = result;
    } else {
      int64_t at[N];
#pragma unroll
      for (int k = 0; k < N; ++k)  // the stride of a vector is kAcross times that of an output
        at[k] = base[k] + (kAcross > 1 ? j * (outer.strides[k][outer.ndim - 1] / kAcross) : 0);
      results.store(at, result);
    }
  }
}

/// Returns true if x, which is view 0 of both nests, can be read in aligned vectors of kWidth elements along the last
/// axis of `inner`, at all indices of the other axes of `inner` and of `other`.
template <int kWidth, class T, int M, int N>
bool has_vectors(const T* x, const Nest<M>& inner, const Nest<N>& other) {
  const int last = inner.ndim - 1;
  if (last < 0 || inner.strides[0][last] != 1 || inner.shape[last] % kWidth != 0) return false;
  const auto whole = [](int64_t step) { return step % kWidth == 0; };
  return reinterpret_cast<uintptr_t>(x) % (kWidth * sizeof(T)) == 0 &&
         std::all_of(inner.strides[0], inner.strides[0] + last, whole) &&
         std::all_of(other.strides[0], other.strides[0] + other.ndim, whole);
}

/// The nest `nest` over vectors of kWidth elements instead of single elements.
template <int kWidth, int N>
Nest<N> over_vectors(Nest<N> nest) {
  if (kWidth == 1) return nest;
  const int last = nest.ndim - 1;
  nest.numel /= kWidth, nest.shape[last] /= kWidth;
  for (int k = 0; k < N; ++k) nest.strides[k][last] *= kWidth;
  return nest;
}

template <class Op, class Second, class T, int N, class Results>
void reduce(Device device, const T* x, const Nest<N>& outer, const Nest<1>& inner, const Results& results);

template <class Op, class Second, int kAlong, int kAcross, class T, int N, class Results>
void reduce_vectors(Device device, const T* x, const Nest<N>& outer, const Nest<1>& inner, const Results& results) {
  using A = typename Op::A;
  const Nest<N> outputs = over_vectors<kAcross>(outer);
  const Nest<1> reduced = over_vectors<kAlong>(inner);
  GRADUS_CHECK(outputs.numel <= kMaxChunk && reduced.numel <= kMaxChunk, ShapeError, "cuda reduces at most ", kMaxChunk,
               " elements to as many results at once, got ", inner.numel, " to ", outer.numel,
               "; reduce one axis after the other");
  const Launch launch(device);
  const auto innermost = [](const auto& nest) { return nest.ndim ? nest.strides[0][nest.ndim - 1] : INT64_MAX; };
  const ReducePlan plan(outputs.numel, reduced.numel, innermost(outer) < innermost(inner), kAlong * kAcross,
                        launch.multiprocessors());
  const auto run = [&](A* partial) {
    launch(reduce_kernel<Op, kAlong, kAcross, T, N, Results>, dim3(plan.blocks(outputs.numel), plan.splits), kThreads,
           x, outputs.geometry(), reduced.geometry(), plan, partial, results);
  };
  if (plan.splits == 1) return run(nullptr);
  const Scratch partial(sizeof(A) * plan.splits * static_cast<size_t>(outer.numel), device);
  run(partial.as<A>());
  Nest<N> in_a_row = outer;  // the same outputs, contiguous in `partial`
  int64_t step = 1;
  for (int axis = outer.ndim - 1; axis >= 0; --axis) in_a_row.strides[0][axis] = step, step *= outer.shape[axis];
  const Strides between{outer.numel};
  reduce<Second, Second>(device, static_cast<const A*>(partial.as<A>()), in_a_row, Nest<1>({plan.splits}, {&between}),
                         results);
}

/// The number of elements of a vector. The vector has at most 16 bytes, and a value of type A for each of its elements
/// fits in `room` bytes of registers.
template <class T, class A>
constexpr int vector_width(size_t room) {
  return static_cast<int>(std::max<size_t>(std::min(16 / sizeof(T), room / sizeof(A)), 1));
}

/// Reduces the elements of `inner` for each element of `outer`. `Second` is the Op that folds the partial results of
/// the splits.
template <class Op, class Second, class T, int N, class Results>
void reduce(Device device, const T* x, const Nest<N>& outer, const Nest<1>& inner, const Results& results) {
  constexpr int kAlong = vector_width<T, typename Op::A>(64), kAcross = vector_width<T, typename Op::A>(32);
  if constexpr (kAlong > 1)
    if (inner.ndim <= 2 && has_vectors<kAlong>(x, inner, outer))
      return reduce_vectors<Op, Second, kAlong, 1>(device, x, outer, inner, results);
  if constexpr (kAcross > 1)
    if (inner.ndim <= 2 && has_vectors<kAcross>(x, outer, inner))
      return reduce_vectors<Op, Second, 1, kAcross>(device, x, outer, inner, results);
  reduce_vectors<Op, Second, 1, 1>(device, x, outer, inner, results);
}

}  // namespace gradus::cuda_detail
