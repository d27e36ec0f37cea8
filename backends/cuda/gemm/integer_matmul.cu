// y[…, m, n] = sum over k of a[…, m, k] b[…, k, n] in int64, one thread per element.
#include <gradus/backends/cuda/gemm/integer_matmul.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {
namespace {

// Views: y, a (without k), b (without k).
template <class T>
__global__ void __launch_bounds__(kThreads)
    integer_matmul_kernel(Geometry<3> geometry, const T* a, int64_t a_step, const T* b, int64_t b_step, T* y,
                          int64_t depth, bool accumulate) {
  for (uint32_t i = thread_index(); i < geometry.numel; i += thread_count()) {
    int64_t at[3];
    geometry.offsets(i, at);
    int64_t sum = accumulate ? static_cast<int64_t>(y[at[0]]) : 0;
    for (int64_t k = 0; k < depth; ++k)
      sum += static_cast<int64_t>(a[at[1] + k * a_step]) * static_cast<int64_t>(b[at[2] + k * b_step]);
    y[at[0]] = scalar::convert<T>(sum);
  }
}

}  // namespace

void integer_matmul(const View& a, const View& b, const MutableView& y, bool accumulate) {
  const int n = y.ndim();
  const int64_t depth = a.shape[n - 1];
  EventScope event("matmul", "cuda", "plain", {&a, &b}, 2 * y.numel() * depth);
  Strides a_strides = a.strides, b_strides = b.strides;
  a_strides[n - 1] = 0, b_strides[n - 2] = 0;
  const Nest<3> nest(StridedLoop<3>(y.shape, {&y.strides, &a_strides, &b_strides}));
  const Launch launch(y.device);
  visit(y.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      for_each_chunk(nest, [&](const Nest<3>& piece, int64_t, const int64_t* at) {
        launch(integer_matmul_kernel<T>, launch.blocks(piece.numel, kThreads), kThreads, piece.geometry(),
               a.as<T>() + at[1], a.strides[n - 1], b.as<T>() + at[2], b.strides[n - 2], y.as<T>() + at[0], depth,
               accumulate);
      });
    }
  });
}

}  // namespace gradus::cuda_detail
