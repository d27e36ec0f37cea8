// Softmax along an axis: a part of a warp or a block keeps a row in registers; where it is long, a block reads it
// twice.
//   softmax      y = exp(x - m) / Z,  m = max(x),  Z = sum(exp(x - m));     dx = y (dy - sum(dy y))
//   log_softmax  y = x - m - ln Z;                                          dx = dy - exp(y) sum(dy)
#include <initializer_list>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/online_softmax.cuh>
#include <gradus/backends/cuda/device/row.cuh>

namespace gradus {
namespace {

using cuda_detail::exponential;
using cuda_detail::Geometry;
using cuda_detail::Launch;
using cuda_detail::Nest;
using cuda_detail::rough_exponential;
using cuda_detail::Row;
using cuda_detail::Vec;
using cuda_detail::VectorizedRows;

// Steps between elements of a row, in the views of the kernels.
struct Steps {
  int64_t x, y, dx;
};

// A row's elements as kLanes threads keep them, kCount each, in vectors of kWidth: a part of a warp, or a block.
template <int kLanes, int kCount, int kWidth>
struct Spread {
  static constexpr int kValues = kCount;
  static constexpr int kThreads = kLanes > 32 ? kLanes : cuda_detail::kThreads;  // of a block
  static constexpr int kRows = kThreads / kLanes;

  __device__ static uint32_t row() { return cuda_detail::thread_index() / kLanes; }
  /// Of the vector that begins with the lane's value k.
  __device__ static int element(int k) { return k * kLanes + threadIdx.x % kLanes * kWidth; }
  template <class A, class F>
  __device__ static A fold(A value, F&& f) {
    if constexpr (kLanes <= 32) {
      return cuda_detail::group_reduce<kLanes>(value, f);
    } else {
      __shared__ A shared[32];
      return cuda_detail::block_reduce(value, shared, f);
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
__global__ void __launch_bounds__(S::kThreads)
    softmax_lanes_kernel(const T* x, T* y, Geometry<2> rows, int size, Steps steps, bool log) {
  using C = compute_t<T>;
  const bool outside = S::row() >= rows.numel;  // lanes of other rows of the warp may be inside
  int64_t at[2];
  rows.offsets(outside ? 0 : S::row(), at);
  C values[S::kValues], max = -C(INFINITY), sum = 0;
  S::load(Row<const T>{x + at[0], steps.x}, size, -C(INFINITY), values);
#pragma unroll
  for (int k = 0; k < S::kValues; ++k) max = cuda_detail::LargerNumber()(values[k], max);
  max = S::fold(max, cuda_detail::LargerNumber());
#pragma unroll
  for (int k = 0; k < S::kValues; ++k) {
    values[k] -= max;
    const C power = log ? rough_exponential(values[k]) : exponential<T>(values[k]);
    sum += power;
    if (!log) values[k] = power;
  }
  sum = S::fold(sum, cuda_detail::Add());
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
    const auto [max, sum] = cuda_detail::running_sum_of_row<C>(row, from, shared);
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
__global__ void __launch_bounds__(S::kThreads)
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
  sum = S::fold(sum, cuda_detail::Add());
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
    sum = cuda_detail::block_reduce(sum, shared, cuda_detail::Add());
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
void with_spread(int64_t size, bool packed, F&& f) {
  if (size <= 16) f.template operator()<Spread<8, 2, 1>>();
  else if (size <= 64) packed ? f.template operator()<Spread<16, 4, 4>>() : f.template operator()<Spread<16, 4, 1>>();
  else if (size <= 256) packed ? f.template operator()<Spread<32, 8, 4>>() : f.template operator()<Spread<32, 8, 1>>();
  else packed ? f.template operator()<Spread<128, 8, 4>>() : f.template operator()<Spread<128, 8, 1>>();
}
template <class S>
uint32_t blocks_of(int64_t rows) {
  return static_cast<uint32_t>((rows + S::kRows - 1) / S::kRows);
}
// True when rows of `size` elements at unit steps, the first of them at `data`, consist of aligned vectors of four.
template <int N, class T>
bool consists_of_packs(const Nest<N>& rows, int64_t size, std::initializer_list<int64_t> steps,
                       std::initializer_list<const T*> data) {
  constexpr size_t kAlignment = alignof(Vec<T, 4>);
  bool fits = size % 4 == 0;
  for (int64_t step : steps) fits = fits && step == 1;
  for (const T* first : data) fits = fits && reinterpret_cast<uintptr_t>(first) % kAlignment == 0;
  for (int view = 0; view < N; ++view)
    for (int axis = 0; axis < rows.ndim; ++axis) fits = fits && rows.strides[view][axis] % 4 == 0;
  return fits;
}

Shape without_axis(Shape shape, int axis) {
  if (shape.size()) shape[axis] = 1;
  return shape;
}

}  // namespace

void CudaBackend::softmax(const View& x, int axis, bool log, const MutableView& y) {
  EventScope event(log ? "log_softmax" : "softmax", "cuda", "rows", {&x}, 5 * x.numel());
  if (x.numel() == 0) return;
  const bool scalar = x.ndim() == 0;
  const int64_t size = scalar ? 1 : x.shape[axis];
  const Steps steps{scalar ? 0 : x.strides[axis], scalar ? 0 : y.strides[axis], 0};
  const Nest<2> rows(StridedLoop<2>(without_axis(x.shape, axis), {&x.strides, &y.strides}));
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    cuda_detail::for_each_chunk(rows, [&](const Nest<2>& piece, int64_t, const int64_t* at) {
      const T* from = x.as<T>() + at[0];
      T* to = y.as<T>() + at[1];
      if (size > cuda_detail::kWarpRow)
        return launch(softmax_kernel<T>, launch.blocks(piece.numel, 1), cuda_detail::row_threads(size), from, to,
                      piece.geometry(), size, steps, log);
      const bool packed = consists_of_packs<2, T>(piece, size, {steps.x, steps.y}, {from, to});
      with_spread(size, packed, [&]<class S>() {
        launch(softmax_lanes_kernel<S, T>, blocks_of<S>(piece.numel), S::kThreads, from, to, piece.geometry(),
               static_cast<int>(size), steps, log);
      });
    });
  });
}

void CudaBackend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  EventScope event(log ? "log_softmax_backward" : "softmax_backward", "cuda", "rows", {&dy, &y}, 4 * dx.numel());
  if (y.numel() == 0) return;
  const bool scalar = y.ndim() == 0;
  const int64_t size = scalar ? 1 : y.shape[axis];
  const Steps steps{scalar ? 0 : dy.strides[axis], scalar ? 0 : y.strides[axis], scalar ? 0 : dx.strides[axis]};
  const Nest<3> rows(StridedLoop<3>(without_axis(y.shape, axis), {&dx.strides, &dy.strides, &y.strides}));
  const Launch launch(dx.device);
  visit_floating(dx.dtype, [&]<class T>() {
    cuda_detail::for_each_chunk(rows, [&](const Nest<3>& piece, int64_t, const int64_t* at) {
      const T *gradient = dy.as<T>() + at[1], *output = y.as<T>() + at[2];
      T* to = dx.as<T>() + at[0];
      if (size > cuda_detail::kWarpRow)
        return launch(softmax_backward_kernel<T>, launch.blocks(piece.numel, 1), cuda_detail::row_threads(size),
                      gradient, output, to, piece.geometry(), size, steps, log);
      const bool packed = consists_of_packs<3, T>(piece, size, {steps.x, steps.y, steps.dx}, {gradient, output, to});
      with_spread(size, packed, [&]<class S>() {
        launch(softmax_backward_lanes_kernel<S, T>, blocks_of<S>(piece.numel), S::kThreads, gradient, output, to,
               piece.geometry(), static_cast<int>(size), steps, log);
      });
    });
  });
}

}  // namespace gradus
