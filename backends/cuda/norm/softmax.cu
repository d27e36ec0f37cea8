// Softmax along an axis, and its gradient.
//   softmax      y = exp(x - m) / Z,  m = max(x),  Z = sum(exp(x - m));     dx = y (dy - sum(dy y))
//   log_softmax  y = x - m - ln Z;                                          dx = dy - exp(y) sum(dy)
// Layout: rows along any axis, of any strides.
// lanes_kernel: rows of up to 1,024 elements, or 8,192 if they are aligned vectors of 16 bytes, stay in registers.
//   Grid: x = blocks for all rows.  Block: 256 threads, of which 8, 16 or 32 share a row, or 128 to 512 threads for one
//   row; a thread keeps two to sixteen elements.
// block_kernel: longer rows.
//   Grid: x = up to 32 blocks a multiprocessor, which loop over rows.  Block: 256 or 1,024 threads, which read a row
//   twice, in vectors: once for the maximum and the sum (RunningSum), once for the results.
// Deterministic: sums over a row's threads are fixed trees.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/norm/select.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/row.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// How kLanes threads (a part of a warp, or a block) keep a row: each has kCount elements, in vectors of kVec
// neighbours.
template <int kLanes, int kCount, int kVec>
struct Spread {
  static constexpr int kValues = kCount;
  static constexpr int kBlock = kLanes > 32 ? kLanes : kThreads;  // threads of a block

  __device__ static uint32_t row() { return thread_index() / kLanes; }
  __device__ static int element(int k) {
    return (k / kVec * kLanes + static_cast<int>(threadIdx.x) % kLanes) * kVec + k % kVec;
  }
  template <class A, class F>
  __device__ static A fold(A value, F&& f) {
    if constexpr (kLanes <= 32) {
      return group_reduce<kLanes>(value, f);
    } else {
      __shared__ A shared[32];
      return block_reduce(value, shared, f);
    }
  }
  /// Loads the values, or `otherwise` beyond the row's end. All loads are in flight before the first value is used.
  template <class T, class C>
  __device__ static void load(const Row<const T>& row, int size, C otherwise, C (&values)[kValues]) {
    Vec<T, kVec> vecs[kValues / kVec];
#pragma unroll
    for (int k = 0; k < kValues; k += kVec) vecs[k / kVec] = row.template load<kVec>(min(element(k), size - kVec));
#pragma unroll
    for (int k = 0; k < kValues; ++k)
      values[k] = element(k) < size ? static_cast<C>(vecs[k / kVec].value[k % kVec]) : otherwise;
  }
  template <class T, class C>
  __device__ static void store(const Row<T>& row, int size, const C (&values)[kValues]) {
#pragma unroll
    for (int k = 0; k < kValues; k += kVec) {
      Vec<T, kVec> vec;
#pragma unroll
      for (int j = 0; j < kVec; ++j) vec.value[j] = static_cast<T>(values[k + j]);
      if (element(k) < size) row.template store<kVec>(element(k), vec);
    }
  }
};

// The rows of y = softmax(x) or, in backward, of dx. There are three views: the result, x or dy, and y, which in
// forward is the result again.
template <class T>
struct Rows {
  uint32_t count;
  bool log, or_zeros, evenly;            // evenly: all rows are `row_steps` apart
  int64_t size, steps[3], row_steps[3];  // elements of a row; strides along and across rows
  T* result;
  const T *x, *y;
  Geometry<3> nest;

  __device__ void offsets(uint32_t row, int64_t (&at)[3]) const {
    if (!evenly) return nest.offsets(row, at);
#pragma unroll
    for (int k = 0; k < 3; ++k) at[k] = row * row_steps[k];
  }
  __device__ Row<T> to(const int64_t (&at)[3]) const { return {result + at[0], steps[0]}; }
  __device__ Row<const T> from(const int64_t (&at)[3]) const { return {x + at[1], steps[1]}; }
  __device__ Row<const T> outputs(const int64_t (&at)[3]) const { return {y + at[2], steps[2]}; }
  __device__ compute_t<T> gradient(compute_t<T> dy, compute_t<T> y, compute_t<T> sum) const {
    return log ? dy - exponential<T>(y) * sum : y * (dy - sum);
  }
};

template <bool kBackward, class S, class T>
__global__ void __launch_bounds__(S::kBlock) lanes_kernel(Rows<T> rows) {
  using C = compute_t<T>;
  const bool outside = S::row() >= rows.count;  // does not return, because other lanes of the warp may have rows
  const int size = static_cast<int>(rows.size);
  int64_t at[3];
  rows.offsets(outside ? 0 : S::row(), at);
  C values[S::kValues], sum = 0;
  S::load(rows.from(at), size, kBackward ? C(0) : -C(INFINITY), values);
  if constexpr (kBackward) {
    C outputs[S::kValues];
    S::load(rows.outputs(at), size, C(0), outputs);
#pragma unroll
    for (int k = 0; k < S::kValues; ++k) sum += rows.log ? values[k] : values[k] * outputs[k];
    sum = S::fold(sum, Add());
#pragma unroll
    for (int k = 0; k < S::kValues; ++k) values[k] = rows.gradient(values[k], outputs[k], sum);
  } else {
    C max = -C(INFINITY);
#pragma unroll
    for (int k = 0; k < S::kValues; ++k) max = LargerNumber()(values[k], max);
    max = S::fold(max, LargerNumber());
    if (rows.or_zeros) max = RunningSum<C>::base_of(max);
#pragma unroll
    for (int k = 0; k < S::kValues; ++k) {
      values[k] -= max;
      const C power = rows.log ? rough_exponential(values[k]) : exponential<T>(values[k]);
      sum += power;
      if (!rows.log) values[k] = power;
    }
    sum = S::fold(sum, Add());
    if (rows.or_zeros && sum == 0) sum = 1;
    const C scale = rows.log ? ::log(sum) : C(1) / sum;
#pragma unroll
    for (int k = 0; k < S::kValues; ++k) values[k] = rows.log ? values[k] - scale : values[k] * scale;
  }
  if (!outside) S::store(rows.to(at), size, values);
}

template <bool kBackward, class T>
__global__ void __launch_bounds__(1024) block_kernel(Rows<T> rows) {
  using C = compute_t<T>;
  __shared__ C shared[32];
  for (uint32_t r = blockIdx.x; r < rows.count; r += gridDim.x) {
    int64_t at[3];
    rows.offsets(r, at);
    const auto to = rows.to(at);
    const auto from = rows.from(at), outputs = rows.outputs(at);
    if constexpr (kBackward) {
      const VectorizedRows row(rows.size, from, outputs, to);
      C sum = 0;
      row.for_each_vec([&]<int kWidth>(int64_t i) {
        const auto gradient = from.template load<kWidth>(i);
        Vec<T, kWidth> output{};
        if (!rows.log) output = outputs.template load<kWidth>(i);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          const C g = static_cast<C>(gradient.value[k]);
          sum += rows.log ? g : g * static_cast<C>(output.value[k]);
        }
      });
      sum = block_reduce(sum, shared, Add());
      map_row(
          row, to, [&](int64_t, C dy, C y) { return rows.gradient(dy, y, sum); }, from, outputs);
    } else {
      const VectorizedRows row(rows.size, from, to);
      RunningSum<C> total = running_sum_of_row<C>(row, from, shared);
      if (rows.or_zeros && total.sum == 0) total = {.max = 0, .sum = 1};
      const C log_sum = ::log(total.sum);
      const auto result = [&](int64_t, C value) {
        return rows.log ? value - total.max - log_sum : exponential<T>(value - total.max) / total.sum;
      };
      map_row(row, to, result, from);
    }
  }
}

// Calls f.operator()<Spread>() with the Spread of a plan that keeps rows of T in registers.
template <class T, class F>
void visit_spread(const SoftmaxPlan& plan, F&& f) {
  constexpr int kFull = 16 / sizeof(T);
  const auto either = [&]<int kLanes, int kCount>() {
    if (plan.vectorized) f.template operator()<Spread<kLanes, kCount, std::min(kCount, kFull)>>();
    else f.template operator()<Spread<kLanes, kCount, 1>>();
  };
  if (plan.lanes == 8) f.template operator()<Spread<8, 2, 1>>();
  else if (plan.lanes == 16) either.template operator()<16, 4>();
  else if (plan.lanes == 32) either.template operator()<32, 8>();
  else if (plan.lanes == 128) either.template operator()<128, 8>();
  else if (plan.lanes == 256) f.template operator()<Spread<256, 16, kFull>>();
  else f.template operator()<Spread<512, 16, kFull>>();
}

// Computes softmax or its gradient. Returns false if there are too many rows for one launch.
template <bool kBackward>
bool run(const char* name, const View& x, const View& y, int axis, SoftmaxKind kind, const MutableView& result) {
  const Nest<3> nest(reduced_shape(y.shape, 1u << axis, true), {&result.strides, &x.strides, &y.strides});
  if (nest.numel > kMaxChunk) return false;
  const auto width = static_cast<int64_t>(16 / size_of(y.dtype));
  const bool vectorized =
      has_vectors_along(x, axis, width) && has_vectors_along(y, axis, width) && has_vectors_along(result, axis, width);
  const int64_t size = y.ndim() ? y.shape[axis] : 1;
  const auto step = [&](const StridedLayout& view) { return y.ndim() ? view.strides[axis] : 0; };
  const SoftmaxPlan plan = select(SoftmaxProblem{.dtype = y.dtype,
                                                 .rows = nest.numel,
                                                 .size = size,
                                                 .backward = kBackward,
                                                 .vectorized = vectorized,
                                                 .strided = step(x) > 1 || step(y) > 1 || step(result) > 1,
                                                 .device = device_properties(y.device.index())});
  const View none, &output = kBackward ? y : none;
  EventScope event(name, "cuda", plan.algorithm->name, {&x, &output}, (kBackward ? 4 : 5) * y.numel(),
                   plan.algorithm->reason);
  if (y.numel() == 0) return true;
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    Rows<T> rows{.count = u32(nest.numel),
                 .log = kind == SoftmaxKind::log_softmax,
                 .or_zeros = kind == SoftmaxKind::or_zeros,
                 .evenly = nest.ndim <= 1,
                 .size = y.ndim() ? y.shape[axis] : 1,
                 .steps = {step(result), step(x), step(y)},
                 .row_steps = {nest.strides[0][0], nest.strides[1][0], nest.strides[2][0]},
                 .result = result.as<T>(),
                 .x = x.as<T>(),
                 .y = y.as<T>(),
                 .nest = nest.geometry()};
    if (plan.algorithm == &kSoftmaxBlock) return launch(block_kernel<kBackward, T>, plan.blocks, plan.threads, rows);
    visit_spread<T>(plan, [&]<class S>() { launch(lanes_kernel<kBackward, S, T>, plan.blocks, plan.threads, rows); });
  });
  return true;
}

}  // namespace

void CudaBackend::softmax(const View& x, int axis, SoftmaxKind kind, const MutableView& y) {
  const char* name = kind == SoftmaxKind::log_softmax ? "log_softmax" : "softmax";
  if (!run<false>(name, x, y, axis, kind, y)) Backend::softmax(x, axis, kind, y);
}

void CudaBackend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  const SoftmaxKind kind = log ? SoftmaxKind::log_softmax : SoftmaxKind::softmax;
  if (!run<true>(log ? "log_softmax_backward" : "softmax_backward", dy, y, axis, kind, dx))
    Backend::softmax_backward(dy, y, axis, log, dx);
}

}  // namespace gradus
