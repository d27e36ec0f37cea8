// Softmax along an axis, one block per row.
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

// Views of `rows`: x, y. Steps are between elements of a row.
template <class T>
__global__ void softmax_kernel(const T* x, T* y, Geometry<2> rows, int64_t size, int64_t x_step, int64_t y_step,
                               bool log) {
  using C = compute_t<T>;
  __shared__ C shared[32];
  for (uint32_t row = blockIdx.x; row < rows.numel; row += gridDim.x) {
    int64_t at[2];
    rows.offsets(row, at);
    C max = -C(INFINITY), sum = 0;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x)
      max = cuda_detail::Larger()(static_cast<C>(x[at[0] + i * x_step]), max);
    max = cuda_detail::fold_block(max, shared, cuda_detail::Larger());
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) sum += ::exp(static_cast<C>(x[at[0] + i * x_step]) - max);
    sum = cuda_detail::fold_block(sum, shared, cuda_detail::Add());
    const C log_sum = ::log(sum);
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const C shifted = static_cast<C>(x[at[0] + i * x_step]) - max;
      y[at[1] + i * y_step] = static_cast<T>(log ? shifted - log_sum : ::exp(shifted) / sum);
    }
  }
}

// Views of `rows`: dx, dy, y.
template <class T>
__global__ void softmax_backward_kernel(const T* dy, const T* y, T* dx, Geometry<3> rows, int64_t size, int64_t dx_step,
                                        int64_t dy_step, int64_t y_step, bool log) {
  using C = compute_t<T>;
  __shared__ C shared[32];
  for (uint32_t row = blockIdx.x; row < rows.numel; row += gridDim.x) {
    int64_t at[3];
    rows.offsets(row, at);
    C sum = 0;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const C gradient = static_cast<C>(dy[at[1] + i * dy_step]);
      sum += log ? gradient : gradient * static_cast<C>(y[at[2] + i * y_step]);
    }
    sum = cuda_detail::fold_block(sum, shared, cuda_detail::Add());
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const C gradient = static_cast<C>(dy[at[1] + i * dy_step]), output = static_cast<C>(y[at[2] + i * y_step]);
      dx[at[0] + i * dx_step] = static_cast<T>(log ? gradient - ::exp(output) * sum : output * (gradient - sum));
    }
  }
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
  const Nest<2> rows(StridedLoop<2>(without_axis(x.shape, axis), {&x.strides, &y.strides}));
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    cuda_detail::for_each_chunk(rows, [&](const Nest<2>& piece, int64_t, const int64_t* at) {
      launch(softmax_kernel<T>, launch.blocks(piece.numel, 1), cuda_detail::row_threads(size), x.as<T>() + at[0],
             y.as<T>() + at[1], piece.geometry(), size, scalar ? 0 : x.strides[axis], scalar ? 0 : y.strides[axis],
             log);
    });
  });
}

void CudaBackend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  EventScope event(log ? "log_softmax_backward" : "softmax_backward", "cuda", "rows", {&dy, &y}, 4 * dx.numel());
  if (y.numel() == 0) return;
  const bool scalar = y.ndim() == 0;
  const int64_t size = scalar ? 1 : y.shape[axis];
  const Nest<3> rows(StridedLoop<3>(without_axis(y.shape, axis), {&dx.strides, &dy.strides, &y.strides}));
  const Launch launch(dx.device);
  visit_floating(dx.dtype, [&]<class T>() {
    cuda_detail::for_each_chunk(rows, [&](const Nest<3>& piece, int64_t, const int64_t* at) {
      launch(softmax_backward_kernel<T>, launch.blocks(piece.numel, 1), cuda_detail::row_threads(size),
             dy.as<T>() + at[1], y.as<T>() + at[2], dx.as<T>() + at[0], piece.geometry(), size,
             scalar ? 0 : dx.strides[axis], scalar ? 0 : dy.strides[axis], scalar ? 0 : y.strides[axis], log);
    });
  });
}

}  // namespace gradus
