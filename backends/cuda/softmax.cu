// Softmax along an axis, a warp per row, or a block where it is long.
//   softmax      y = exp(x - m) / Z,  m = max(x),  Z = sum(exp(x - m));     dx = y (dy - sum(dy y))
//   log_softmax  y = x - m - ln Z;                                          dx = dy - exp(y) sum(dy)
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/rows.cuh>

namespace gradus {
namespace {

using cuda_detail::Geometry;
using cuda_detail::Launch;
using cuda_detail::Nest;
using cuda_detail::Pack;
using cuda_detail::PackedRows;
using cuda_detail::Row;

constexpr uint32_t kRowsOfBlock = cuda_detail::kThreads / 32;  // where a warp has a row

// Steps between elements of a row, in the views of the kernels.
struct Steps {
  int64_t x, y, dx;
};

// Views of `rows`: x, y. A row has at most 32 kValues elements.
template <int kValues, class T>
__global__ void __launch_bounds__(cuda_detail::kThreads)
    softmax_warp_kernel(const T* x, T* y, Geometry<2> rows, int size, Steps steps, bool log) {
  using C = compute_t<T>;
  const uint32_t row = cuda_detail::thread_index() / 32;
  if (row >= rows.numel) return;
  int64_t at[2];
  rows.offsets(row, at);
  const int lane = threadIdx.x % 32;
  C values[kValues], max = -C(INFINITY), sum = 0;
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    const int i = lane + 32 * k;
    values[k] = i < size ? static_cast<C>(x[at[0] + i * steps.x]) : -C(INFINITY);
    max = cuda_detail::Larger()(values[k], max);
  }
  max = cuda_detail::fold_warp(max, cuda_detail::Larger());
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    values[k] -= max;
    const C power = ::exp(values[k]);
    sum += power;
    if (!log) values[k] = power;
  }
  sum = cuda_detail::fold_warp(sum, cuda_detail::Add());
  const C log_sum = log ? ::log(sum) : C(0);
#pragma unroll
  for (int k = 0; k < kValues; ++k)
    if (const int i = lane + 32 * k; i < size)
      y[at[1] + i * steps.y] = static_cast<T>(log ? values[k] - log_sum : values[k] / sum);
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
    const PackedRows row(size, from, to);
    const auto [max, sum] = cuda_detail::running_sum_of_row<C>(row, from, shared);
    const C log_sum = ::log(sum);
    row.walk([&, max = max, sum = sum]<int kWidth>(int64_t i) {
      const auto in = from.template load<kWidth>(i);
      Pack<T, kWidth> out;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const C shifted = static_cast<C>(in.value[k]) - max;
        out.value[k] = static_cast<T>(log ? shifted - log_sum : ::exp(shifted) / sum);
      }
      to.store(i, out);
    });
  }
}

template <class C>
__device__ C gradient_at(C dy, C y, C sum, bool log) {
  return log ? dy - ::exp(y) * sum : y * (dy - sum);
}

// Views of `rows`: dx, dy, y; dy has the step of x.
template <int kValues, class T>
__global__ void __launch_bounds__(cuda_detail::kThreads)
    softmax_backward_warp_kernel(const T* dy, const T* y, T* dx, Geometry<3> rows, int size, Steps steps, bool log) {
  using C = compute_t<T>;
  const uint32_t row = cuda_detail::thread_index() / 32;
  if (row >= rows.numel) return;
  int64_t at[3];
  rows.offsets(row, at);
  const int lane = threadIdx.x % 32;
  C gradients[kValues], outputs[kValues], sum = 0;
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    const int i = lane + 32 * k;
    gradients[k] = i < size ? static_cast<C>(dy[at[1] + i * steps.x]) : C(0);
    outputs[k] = i < size ? static_cast<C>(y[at[2] + i * steps.y]) : C(0);
    sum += log ? gradients[k] : gradients[k] * outputs[k];
  }
  sum = cuda_detail::fold_warp(sum, cuda_detail::Add());
#pragma unroll
  for (int k = 0; k < kValues; ++k)
    if (const int i = lane + 32 * k; i < size)
      dx[at[0] + i * steps.dx] = static_cast<T>(gradient_at(gradients[k], outputs[k], sum, log));
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
    const PackedRows row(size, gradients, outputs, to);
    C sum = 0;
    row.walk([&]<int kWidth>(int64_t i) {
      const auto gradient = gradients.template load<kWidth>(i);
      Pack<T, kWidth> output{};
      if (!log) output = outputs.template load<kWidth>(i);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const C g = static_cast<C>(gradient.value[k]);
        sum += log ? g : g * static_cast<C>(output.value[k]);
      }
    });
    sum = cuda_detail::fold_block(sum, shared, cuda_detail::Add());
    row.walk([&]<int kWidth>(int64_t i) {
      const auto gradient = gradients.template load<kWidth>(i), output = outputs.template load<kWidth>(i);
      Pack<T, kWidth> result;
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        result.value[k] =
            static_cast<T>(gradient_at(static_cast<C>(gradient.value[k]), static_cast<C>(output.value[k]), sum, log));
      to.store(i, result);
    });
  }
}

/// f.operator()<kValues>() for a row that a warp keeps in registers.
template <class F>
void with_values(int64_t size, F&& f) {
  if (size <= 32) f.template operator()<1>();
  else if (size <= 128) f.template operator()<4>();
  else f.template operator()<32>();
}
uint32_t warp_blocks(int64_t rows) { return static_cast<uint32_t>((rows + kRowsOfBlock - 1) / kRowsOfBlock); }

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
      with_values(size, [&]<int kValues>() {
        launch(softmax_warp_kernel<kValues, T>, warp_blocks(piece.numel), cuda_detail::kThreads, from, to,
               piece.geometry(), static_cast<int>(size), steps, log);
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
      with_values(size, [&]<int kValues>() {
        launch(softmax_backward_warp_kernel<kValues, T>, warp_blocks(piece.numel), cuda_detail::kThreads, gradient,
               output, to, piece.geometry(), static_cast<int>(size), steps, log);
      });
    });
  });
}

}  // namespace gradus
