// Rung 1, naive: each thread computes one y[m,n].
// Grid: x = blocks of 16 columns, y = of 16 rows.  Block: 16 x 16 threads.
// Slow because each multiply-add loads two numbers.
#include <gradus/benchmarks/ladders/gemm_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders::gemm {
namespace {

template <class T>
__global__ void naive_kernel(Problem<T> problem) {
  const auto [M, N, K, x, w, y] = problem;
  const int64_t m = blockIdx.y * 16 + threadIdx.y, n = blockIdx.x * 16 + threadIdx.x;
  if (m >= M || n >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += static_cast<float>(x[m * K + k]) * static_cast<float>(w[n * K + k]);
  y[m * N + n] = static_cast<T>(sum);
}

template <class T>
void run(const Problem<T>& problem, Device device) {
  cuda_detail::Launch{device}(naive_kernel<T>, dim3(ceil_div(problem.N, 16), ceil_div(problem.M, 16)), dim3(16, 16),
                              problem);
}

}  // namespace

void naive(const Problem<float>& problem, Device device) { run(problem, device); }
void naive(const Problem<BFloat16>& problem, Device device) { run(problem, device); }

}  // namespace gradus::ladders::gemm
