// Softmax along an axis, and its gradient.
//   softmax      y = exp(x - m) / Z,  m = max(x),  Z = sum(exp(x - m));     dx = y (dy - sum(dy y))
//   log_softmax  y = x - m - ln Z;                                          dx = dy - exp(y) sum(dy)
// Rows of any strides along any axis. Up to 1,024 elements stay in registers, two to eight a thread, four neighbours at
// a time where rows are vectors: 8, 16 or 32 threads share a row, in blocks of 256, or a block of 128 has one. Longer:
// grid of one wave of blocks that loop over rows; the 256 or 1,024 threads of a block go through a row in vectors of 16
// bytes, first for the maximum and the sum at once (online_softmax.cuh), then for the results.
// Deterministic: fixed trees over a row's threads.
#include <initializer_list>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/norm/select.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/online_softmax.cuh>
#include <gradus/backends/cuda/device/row.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// Steps between elements of a row, in the views of the kernels.
struct Steps {
  int64_t x, y, dx;
};

// A row's elements as kLanes threads keep them, kCount each, in vectors of kWidth: a part of a warp, or a block.
template <int kLanes, int kCount, int kWidth>
struct Spread {
  static constexpr int kValues = kCount;
  static constexpr int kBlock = kLanes > 32 ? kLanes : kThreads;  // its threads

  __device__ static uint32_t row() { return thread_index() / kLanes; }
  /// Of the vector that begins with the lane's value k.
  __device__ static int element(int k) { return k * kLanes + threadIdx.x % kLanes * kWidth; }
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
    for (int k = 0; k < kValues; k += kWidth) {
      const bool inside = element(k) < size;
      Vec<T, kWidth> vec;
      if (inside) vec = row.template load<kWidth>(element(k));
#pragma unroll
      for (int w = 0; w < kWidth; ++w) values[k + w] = inside ? static_cast<C>(vec.value[w]) : otherwise;
    }
  }
  template <class T, class C>
  __device__ static void store(const Row<T>& row, int size, const C (&values)[kValues]) {
#pragma unroll
    for (int k = 0; k < kValues; k += kWidth) {
      Vec<T, kWidth> vec;
#pragma unroll
      for (int w = 0; w < kWidth; ++w) vec.value[w] = static_cast<T>(values[k + w]);
      if (element(k) < size) row.store(element(k), vec);
    }
  }
};

// Views of `rows`: x, y.
template <class S, class T>
__global__ void __launch_bounds__(S::kBlock)
    softmax_lanes_kernel(const T* x, T* y, Geometry<2> rows, int size, Steps steps, bool log) {
  using C = compute_t<T>;
  const bool outside = S::row() >= rows.numel;  // lanes of other rows of the warp may be inside
  int64_t at[2];
  rows.offsets(outside ? 0 : S::row(), at);
  C values[S::kValues], max = -C(INFINITY), sum = 0;
  S::load(Row<const T>{x + at[0], steps.x}, size, -C(INFINITY), values);
#pragma unroll
  for (int k = 0; k < S::kValues; ++k) max = LargerNumber()(values[k], max);
  max = S::fold(max, LargerNumber());
#pragma unroll
  for (int k = 0; k < S::kValues; ++k) {
    values[k] -= max;
    const C power = log ? rough_exponential(values[k]) : exponential<T>(values[k]);
    sum += power;
    if (!log) values[k] = power;
  }
  sum = S::fold(sum, Add());
  const C log_sum = log ? ::log(sum) : C(0), inverse = C(1) / sum;
#pragma unroll
  for (int k = 0; k < S::kValues; ++k) values[k] = log ? values[k] - log_sum : values[k] * inverse;
  if (!outside) S::store(Row<T>{y + at[1], steps.y}, size, values);
}

template <class T>
__global__ void __launch_bounds__(1024)
    softmax_kernel(const T* x, T* y, Geometry<2> rows, int64_t size, Steps steps, bool log) {
  using C = compute_t<T>;
  __shared__ C shared[32];
  for (uint32_t r = blockIdx.x; r < rows.numel; r += gridDim.x) {
    int64_t at[2];
    rows.offsets(r, at);
    const Row<const T> from{x + at[0], steps.x};
    const Row<T> to{y + at[1], steps.y};
    const VectorizedRows row(size, from, to);
    const auto [max, sum] = running_sum_of_row<C>(row, from, shared);
    const C log_sum = ::log(sum);
    row.walk([&, max = max, sum = sum]<int kWidth>(int64_t i) {
      const auto in = from.template load<kWidth>(i);
      Vec<T, kWidth> out;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const C shifted = static_cast<C>(in.value[k]) - max;
        out.value[k] = static_cast<T>(log ? shifted - log_sum : exponential<T>(shifted) / sum);
      }
      to.store(i, out);
    });
  }
}

template <class T, class C>
__device__ C gradient_at(C dy, C y, C sum, bool log) {
  return log ? dy - exponential<T>(y) * sum : y * (dy - sum);
}

// Views of `rows`: dx, dy, y; dy has the step of x.
template <class S, class T>
__global__ void __launch_bounds__(S::kBlock)
    softmax_backward_lanes_kernel(const T* dy, const T* y, T* dx, Geometry<3> rows, int size, Steps steps, bool log) {
  using C = compute_t<T>;
  const bool outside = S::row() >= rows.numel;
  int64_t at[3];
  rows.offsets(outside ? 0 : S::row(), at);
  C gradients[S::kValues], outputs[S::kValues], sum = 0;
  S::load(Row<const T>{dy + at[1], steps.x}, size, C(0), gradients);
  S::load(Row<const T>{y + at[2], steps.y}, size, C(0), outputs);
#pragma unroll
  for (int k = 0; k < S::kValues; ++k) sum += log ? gradients[k] : gradients[k] * outputs[k];
  sum = S::fold(sum, Add());
#pragma unroll
  for (int k = 0; k < S::kValues; ++k) gradients[k] = gradient_at<T>(gradients[k], outputs[k], sum, log);
  if (!outside) S::store(Row<T>{dx + at[0], steps.dx}, size, gradients);
}

template <class T>
__global__ void __launch_bounds__(1024)
    softmax_backward_kernel(const T* dy, const T* y, T* dx, Geometry<3> rows, int64_t size, Steps steps, bool log) {
  using C = compute_t<T>;
  __shared__ C shared[32];
  for (uint32_t r = blockIdx.x; r < rows.numel; r += gridDim.x) {
    int64_t at[3];
    rows.offsets(r, at);
    const Row<T> to{dx + at[0], steps.dx};
    const Row<const T> gradients{dy + at[1], steps.x}, outputs{y + at[2], steps.y};
    const VectorizedRows row(size, gradients, outputs, to);
    C sum = 0;
    row.walk([&]<int kWidth>(int64_t i) {
      const auto gradient = gradients.template load<kWidth>(i);
      Vec<T, kWidth> output{};
      if (!log) output = outputs.template load<kWidth>(i);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const C g = static_cast<C>(gradient.value[k]);
        sum += log ? g : g * static_cast<C>(output.value[k]);
      }
    });
    sum = block_reduce(sum, shared, Add());
    row.walk([&]<int kWidth>(int64_t i) {
      const auto gradient = gradients.template load<kWidth>(i), output = outputs.template load<kWidth>(i);
      Vec<T, kWidth> result;
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        result.value[k] = static_cast<T>(
            gradient_at<T>(static_cast<C>(gradient.value[k]), static_cast<C>(output.value[k]), sum, log));
      to.store(i, result);
    });
  }
}

// Calls f.operator()<Spread>() for a row that lanes keep in registers.
template <class F>
void visit_spread(const SoftmaxPlan& plan, F&& f) {
  const auto run = [&]<int kLanes, int kCount>() {
    if (plan.vectorized) f.template operator()<Spread<kLanes, kCount, 4>>();
    else f.template operator()<Spread<kLanes, kCount, 1>>();
  };
  if (plan.lanes == 8) f.template operator()<Spread<8, 2, 1>>();
  else if (plan.lanes == 16) run.template operator()<16, 4>();
  else if (plan.lanes == 32) run.template operator()<32, 8>();
  else run.template operator()<128, 8>();
}

// The rows along an axis.
struct Rows {
  int64_t size = 1;
  Shape outer;  // of the rows: size 1 at the axis
  Rows(Shape shape, int axis) : outer(shape) {
    if (shape.size()) size = shape[axis], outer[axis] = 1;
  }
  static int64_t step(const StridedLayout& view, int axis) { return view.ndim() ? view.strides[axis] : 0; }
};

}  // namespace

void CudaBackend::softmax(const View& x, int axis, bool log, const MutableView& y) {
  const Rows rows(x.shape, axis);
  const Nest<2> nest(StridedLoop<2>(rows.outer, {&x.strides, &y.strides}));
  if (nest.numel > kMaxChunk) return Backend::softmax(x, axis, log, y);
  const SoftmaxPlan plan = select_softmax({x, y}, axis, device_properties(y.device.index));
  EventScope event(log ? "log_softmax" : "softmax", "cuda", plan.name(), {&x}, 5 * x.numel());
  if (x.numel() == 0) return;
  const Steps steps{Rows::step(x, axis), Rows::step(y, axis), 0};
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    const auto run = [&](const auto kernel, auto size) {
      launch(kernel, plan.blocks, plan.threads, x.as<T>(), y.as<T>(), nest.geometry(), size, steps, log);
    };
    if (!plan.in_registers) return run(softmax_kernel<T>, rows.size);
    visit_spread(plan, [&]<class S>() { run(softmax_lanes_kernel<S, T>, static_cast<int>(rows.size)); });
  });
}

void CudaBackend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  const Rows rows(y.shape, axis);
  const Nest<3> nest(StridedLoop<3>(rows.outer, {&dx.strides, &dy.strides, &y.strides}));
  if (nest.numel > kMaxChunk) return Backend::softmax_backward(dy, y, axis, log, dx);
  const SoftmaxPlan plan = select_softmax({dx, dy, y}, axis, device_properties(dx.device.index));
  EventScope event(log ? "log_softmax_backward" : "softmax_backward", "cuda", plan.name(), {&dy, &y}, 4 * dx.numel());
  if (y.numel() == 0) return;
  const Steps steps{Rows::step(dy, axis), Rows::step(y, axis), Rows::step(dx, axis)};
  const Launch launch(dx.device);
  visit_floating(dx.dtype, [&]<class T>() {
    const auto run = [&](const auto kernel, auto size) {
      launch(kernel, plan.blocks, plan.threads, dy.as<T>(), y.as<T>(), dx.as<T>(), nest.geometry(), size, steps, log);
    };
    if (!plan.in_registers) return run(softmax_backward_kernel<T>, rows.size);
    visit_spread(plan, [&]<class S>() { run(softmax_backward_lanes_kernel<S, T>, static_cast<int>(rows.size)); });
  });
}

}  // namespace gradus
