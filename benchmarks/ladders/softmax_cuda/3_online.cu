// Rung 3, online: computes maximum and sum in one pass, which scales the sum whenever it finds a larger number (Milakov
// and Gimelshein 2018). Reads x twice, where rung 2 reads it three times, and loads 16 bytes at a time. For short rows
// a block is too large: with 256 numbers, three of four warps are idle, and rung 2 is 4 times as fast.
// Grid: x = rows.  Block: 256 threads; a thread computes every 256th group of 4 numbers.
#include <gradus/benchmarks/ladders/softmax_cuda/rungs.h>
#include <gradus/backends/cuda/device/row.cuh>

namespace gradus::ladders::softmax {
namespace {

using namespace cuda_detail;
constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) online_kernel(Problem problem) {
  __shared__ float shared[32];
  const int64_t first = int64_t{blockIdx.x} * problem.columns;
  const Row<const float> x{problem.x + first, 1};
  const Row<float> y{problem.y + first, 1};
  const VectorizedRows<const float, float> rows(problem.columns, x, y);
  const RunningSum<float> total = running_sum_of_row(rows, x, shared);
  map_row(
      rows, y, [&](int64_t, float value) { return expf(value - total.max) / total.sum; }, x);
}

}  // namespace

void online(const Problem& problem, Device device) { Launch{device}(online_kernel, problem.rows, kThreads, problem); }

}  // namespace gradus::ladders::softmax
