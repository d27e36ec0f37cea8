// Softmax along an axis, and its gradient.
//   softmax      y = exp(x - m) / Z,  m = max(x),  Z = sum(exp(x - m));     dx = y (dy - sum(dy y))
//   log_softmax  y = x - m - ln Z;                                          dx = dy - exp(y) sum(dy)
// Rows of any strides along any axis. Up to 1,024 elements stay in registers, two to eight a thread: 8, 16 or 32
// threads share a row, in blocks of 256, or a block of 128 has one. Longer: grid of one wave of blocks that loop over
// rows; the 256 or 1,024 threads of a block go through a row with eight elements each under way, first for the maximum
// and the sum at once, then for the results.
// Deterministic: fixed trees over a row's threads.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/norm/select.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/exponential.cuh>
#include <gradus/backends/cuda/device/row.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// Elements along the axis.
template <class T>
struct Row {
  T* data;
  int64_t step;
  __device__ T& operator[](int64_t i) const { return data[i * step]; }
};

// A row's elements as kLanes threads keep them, kCount each: a part of a warp, or a block.
template <int kLanes, int kCount>
struct Spread {
  static constexpr int kValues = kCount;
  static constexpr int kBlock = kLanes > 32 ? kLanes : kThreads;  // its threads

  __device__ static uint32_t row() { return thread_index() / kLanes; }
  __device__ static int element(int k) { return k * kLanes + threadIdx.x % kLanes; }
  template <class A, class F>
  __device__ static A fold(A value, F&& f) {
    if constexpr (kLanes <= 32) {
      return group_reduce<kLanes>(value, f);
    } else {
      __shared__ A shared[32];
      return block_reduce(value, shared, f);
    }
  }
  /// The values; past the row's end `otherwise`.
  template <class T, class C>
  __device__ static void load(const Row<const T>& row, int size, C otherwise, C (&values)[kValues]) {
#pragma unroll
    for (int k = 0; k < kValues; ++k) values[k] = element(k) < size ? static_cast<C>(row[element(k)]) : otherwise;
  }
  template <class T, class C>
  __device__ static void store(const Row<T>& row, int size, const C (&values)[kValues]) {
#pragma unroll
    for (int k = 0; k < kValues; ++k)
      if (element(k) < size) row[element(k)] = static_cast<T>(values[k]);
  }
};

// The rows of y = softmax(x) or, backward, of dx. Views: the result, x or dy, and y, which forward is the result.
template <class T>
struct Rows {
  Geometry<3> nest;
  int64_t size, steps[3];  // of a row: elements, steps between them
  bool log;
  T* result;
  const T *x, *y;

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
  const bool outside = S::row() >= rows.nest.numel;  // lanes of other rows of the warp may be inside
  const int size = static_cast<int>(rows.size);
  int64_t at[3];
  rows.nest.offsets(outside ? 0 : S::row(), at);
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
#pragma unroll
    for (int k = 0; k < S::kValues; ++k) {
      values[k] -= max;
      const C power = rows.log ? rough_exponential(values[k]) : exponential<T>(values[k]);
      sum += power;
      if (!rows.log) values[k] = power;
    }
    sum = S::fold(sum, Add());
    const C log_sum = rows.log ? ::log(sum) : C(0), inverse = C(1) / sum;
#pragma unroll
    for (int k = 0; k < S::kValues; ++k) values[k] = rows.log ? values[k] - log_sum : values[k] * inverse;
  }
  if (!outside) S::store(rows.to(at), size, values);
}

// m = max(x) and sum(exp(x - m)) of numbers that come a few at a time, in one pass (Milakov and Gimelshein 2018).
// Where all are -inf the sum stays 0.
template <class C>
struct RunningSum {
  C max = -C(INFINITY), sum = 0;

  template <int N>
  __device__ void add(const C (&x)[N]) {
    C top = max;
#pragma unroll
    for (int k = 0; k < N; ++k) top = LargerNumber()(x[k], top);
    const C base = base_of(top);
    sum *= rough_exponential(max - base);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += rough_exponential(x[k] - base);
    max = top;
  }
  // Without it -inf - -inf would be NaN.
  __device__ static C base_of(C top) { return top == -C(INFINITY) ? C(0) : top; }
};

// That of a row, by a block. `shared` has room for 32 values.
template <class T, class C>
__device__ RunningSum<C> running_sum(const Row<const T>& row, int64_t size, C* shared) {
  RunningSum<C> result;
  for (int64_t first = threadIdx.x; first < size; first += kRowBatch * blockDim.x) {
    C x[kRowBatch];
#pragma unroll
    for (int k = 0; k < kRowBatch; ++k) {
      const int64_t i = first + k * blockDim.x;
      x[k] = i < size ? static_cast<C>(row[i]) : -C(INFINITY);
    }
    result.add(x);
  }
  const C max = block_reduce(result.max, shared, LargerNumber());
  return {max, block_reduce(result.sum * rough_exponential(result.max - result.base_of(max)), shared, Add())};
}

template <bool kBackward, class T>
__global__ void __launch_bounds__(1024) block_kernel(Rows<T> rows) {
  using C = compute_t<T>;
  __shared__ C shared[32];
  for (uint32_t r = blockIdx.x; r < rows.nest.numel; r += gridDim.x) {
    int64_t at[3];
    rows.nest.offsets(r, at);
    const auto to = rows.to(at);
    const auto from = rows.from(at), outputs = rows.outputs(at);
    const auto store = [&](int64_t i, C value) { to[i] = static_cast<T>(value); };
    if constexpr (kBackward) {
      C sum = 0;
#pragma unroll 8
      for (int64_t i = threadIdx.x; i < rows.size; i += blockDim.x) {
        const C dy = static_cast<C>(from[i]);
        sum += rows.log ? dy : dy * static_cast<C>(outputs[i]);
      }
      sum = block_reduce(sum, shared, Add());
      const auto gradient = [&](int64_t i) {
        return rows.gradient(static_cast<C>(from[i]), static_cast<C>(outputs[i]), sum);
      };
      map_row<C>(rows.size, gradient, store);
    } else {
      const RunningSum<C> total = running_sum(from, rows.size, shared);
      const C log_sum = ::log(total.sum);
      const auto result = [&](int64_t i) {
        const C value = static_cast<C>(from[i]) - total.max;
        return rows.log ? value - log_sum : exponential<T>(value) / total.sum;
      };
      map_row<C>(rows.size, result, store);
    }
  }
}

// Calls f.operator()<Spread>() for a row that lanes keep in registers.
template <class F>
void visit_spread(const SoftmaxPlan& plan, F&& f) {
  if (plan.lanes == 8) f.template operator()<Spread<8, 2>>();
  else if (plan.lanes == 16) f.template operator()<Spread<16, 4>>();
  else if (plan.lanes == 32) f.template operator()<Spread<32, 8>>();
  else f.template operator()<Spread<128, 8>>();
}

// False where there are too many rows.
template <bool kBackward>
bool run(const char* name, const View& x, const View& y, int axis, bool log, const MutableView& result) {
  const Nest<3> nest(reduced_shape(y.shape, 1u << axis, true), {&result.strides, &x.strides, &y.strides});
  if (nest.numel > kMaxChunk) return false;
  const SoftmaxPlan plan = select_softmax(y.shape, axis, device_properties(y.device.index));
  const View none, &output = kBackward ? y : none;
  EventScope event(name, "cuda", plan.name(), {&x, &output}, (kBackward ? 4 : 5) * y.numel());
  if (y.numel() == 0) return true;
  const auto step = [&](const StridedLayout& view) { return y.ndim() ? view.strides[axis] : 0; };
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    const Rows<T> rows{
        nest.geometry(), y.ndim() ? y.shape[axis] : 1, {step(result), step(x), step(y)}, log, result.as<T>(), x.as<T>(),
        y.as<T>()};
    if (!plan.in_registers) return launch(block_kernel<kBackward, T>, plan.blocks, plan.threads, rows);
    visit_spread(plan, [&]<class S>() { launch(lanes_kernel<kBackward, S, T>, plan.blocks, plan.threads, rows); });
  });
  return true;
}

}  // namespace

void CudaBackend::softmax(const View& x, int axis, bool log, const MutableView& y) {
  if (!run<false>(log ? "log_softmax" : "softmax", x, y, axis, log, y)) Backend::softmax(x, axis, log, y);
}

void CudaBackend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  if (!run<true>(log ? "log_softmax_backward" : "softmax_backward", dy, y, axis, log, dx))
    Backend::softmax_backward(dy, y, axis, log, dx);
}

}  // namespace gradus
