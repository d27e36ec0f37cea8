// y[i] = x[i, target[i]] and its gradient: dx = 0 but for dx[i, target[i]] = dy[i]. Ignored rows give 0. A target that
// is no class gives NaN (0 for integers): the host does not wait to look. Grid: 256 threads a block, one for each row,
// of the gradient for each element. Deterministic: no sums.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::kThreads;
using cuda_detail::Launch;

template <class T>
__device__ T no_class() {
  if constexpr (std::is_floating_point_v<compute_t<T>>) return static_cast<T>(static_cast<compute_t<T>>(NAN));
  else return T(0);
}

// Elements of a matrix `e` enumerates row by row, or of a vector (columns = 1).
struct Rows {
  int64_t rows, columns, classes, ignore_index;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    pick_kernel(Rows sizes, const T* x, int64_t x_row, int64_t x_column, const int64_t* target, int64_t target_step,
                T* y, int64_t y_step) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = cuda_detail::thread_index(); i < sizes.rows; i += step) {
    const int64_t t = target[i * target_step];
    const bool valid = t >= 0 && t < sizes.classes;
    y[i * y_step] = t == sizes.ignore_index ? T(0) : valid ? x[i * x_row + t * x_column] : no_class<T>();
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pick_backward_kernel(Rows sizes, const T* dy, int64_t dy_step, const int64_t* target, int64_t target_step, T* dx,
                         int64_t dx_row, int64_t dx_column) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t e = cuda_detail::thread_index(); e < sizes.rows * sizes.columns; e += step) {
    const int64_t i = e / sizes.columns, j = e % sizes.columns, t = target[i * target_step];
    const bool ignored = t == sizes.ignore_index, valid = t >= 0 && t < sizes.classes;
    dx[i * dx_row + j * dx_column] = ignored ? T(0) : !valid ? no_class<T>() : j == t ? dy[i * dy_step] : T(0);
  }
}

}  // namespace

void CudaBackend::pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) {
  EventScope event("pick", "cuda", "gather", {&x, &target});
  if (y.numel() == 0) return;
  const Launch launch(y.device);
  visit(x.dtype, [&]<class T>() {
    launch(pick_kernel<T>, launch.blocks(y.numel(), kThreads), kThreads, Rows{x.shape[0], 1, x.shape[1], ignore_index},
           x.as<T>(), x.strides[0], x.strides[1], target.as<int64_t>(), target.strides[0], y.as<T>(), y.strides[0]);
  });
}

void CudaBackend::pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) {
  EventScope event("pick_backward", "cuda", "gather", {&dy, &target});
  if (dx.numel() == 0) return;
  const Launch launch(dx.device);
  visit(dx.dtype, [&]<class T>() {
    launch(pick_backward_kernel<T>, launch.blocks(dx.numel(), kThreads), kThreads,
           Rows{dx.shape[0], dx.shape[1], dx.shape[1], ignore_index}, dy.as<T>(), dy.strides[0], target.as<int64_t>(),
           target.strides[0], dx.as<T>(), dx.strides[0], dx.strides[1]);
  });
}

}  // namespace gradus
