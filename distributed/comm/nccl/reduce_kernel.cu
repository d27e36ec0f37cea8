// y[i] = finish(combine(… combine(x[0][i], x[1][i]) …, x[ranks - 1][i])), with one thread for each element.
#include <cuda_runtime_api.h>

#include <algorithm>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/nccl/reduce_kernel.h>
#include <gradus/distributed/comm/reduce_formula.h>

namespace gradus::dist {
namespace {

constexpr unsigned kThreads = 256;

template <class T, ReduceKind kind>
__global__ void __launch_bounds__(kThreads) reduce_kernel(const T* x, int ranks, T* y, size_t count) {
  using Sum = compute_t<T>;
  const size_t step = static_cast<size_t>(gridDim.x) * kThreads;
  for (size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    Sum sum = static_cast<Sum>(x[i]);
    for (int r = 1; r < ranks; ++r) sum = combine<kind>(sum, static_cast<Sum>(x[static_cast<size_t>(r) * count + i]));
    y[i] = static_cast<T>(finish<kind>(sum, static_cast<size_t>(ranks)));
  }
}

}  // namespace

void reduce_in_order_on(const Stream& stream, DType dtype, ReduceKind kind, const void* x, int ranks, void* y,
                        size_t count) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<size_t>((count + kThreads - 1) / kThreads, 4096));
  visit_reduction(dtype, kind, [&]<class T, ReduceKind reduction> {
    reduce_kernel<T, reduction><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(
        static_cast<const T*>(x), ranks, static_cast<T*>(y), count);
  });
  const cudaError_t error = cudaGetLastError();
  GRADUS_CHECK(error == cudaSuccess, DeviceError,
               "the kernel of a strict sum was not launched: ", cudaGetErrorName(error), " (",
               cudaGetErrorString(error), ")");
}

}  // namespace gradus::dist
