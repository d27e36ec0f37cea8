// Rung 4, a row in registers: a block keeps its row in registers between the passes. It reads x once and writes y once,
// which is the minimum. It computes the maximum first again, so that it needs only one exponential per number.
// Grid: x = rows.  Block: 256 threads; a thread has up to 8 groups of 4 neighbours of its row, 1,024 numbers apart.
#include <gradus/benchmarks/ladders/softmax_cuda/rungs.h>
#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::ladders::softmax {
namespace {

using namespace cuda_detail;
constexpr int kThreads = 256, kWidth = 4;

template <int kGroups>
__global__ void __launch_bounds__(kThreads) registers_kernel(Problem problem) {
  __shared__ float shared[32];
  const int64_t first = int64_t{blockIdx.x} * problem.columns;
  Vec<float, kWidth> groups[kGroups];
  float max = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int j = (i * kThreads + threadIdx.x) * kWidth;
    groups[i] = j < problem.columns ? load<kWidth>(problem.x + first + j)
                                    : Vec<float, kWidth>{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (const float value : groups[i].value) max = fmaxf(max, value);
  }
  max = block_reduce(max, shared, LargerNumber());
#pragma unroll
  for (Vec<float, kWidth>& group : groups)
    for (float& value : group.value) sum += value = expf(value - max);
  sum = block_reduce(sum, shared, Add());
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int j = (i * kThreads + threadIdx.x) * kWidth;
    for (float& value : groups[i].value) value /= sum;
    if (j < problem.columns) store(problem.y + first + j, groups[i]);
  }
}

}  // namespace

void registers(const Problem& problem, Device device) {
  GRADUS_CHECK(problem.columns % kWidth == 0 && problem.columns <= 8192, ShapeError,
               "rung 4 takes rows of a multiple of 4 and at most 8192 numbers, not of ", problem.columns);
  const Launch launch(device);
  const int groups = static_cast<int>(ceil_div(problem.columns, kThreads * kWidth));
  launch(groups == 1   ? registers_kernel<1>
         : groups <= 4 ? registers_kernel<4>
                       : registers_kernel<8>,
         problem.rows, kThreads, problem);
}

}  // namespace gradus::ladders::softmax
