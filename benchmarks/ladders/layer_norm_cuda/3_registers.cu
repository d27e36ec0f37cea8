// Rung 3, a row in registers: a warp keeps its row in registers between the passes, so it reads x once. Each lane loads
// 16 bytes at a time.
// Grid: x = blocks of 4 rows.  Block: 4 warps; a lane has up to 32 groups of 4 neighbours, 128 numbers apart.
#include <gradus/benchmarks/ladders/layer_norm_cuda/rungs.h>
#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::ladders::layer_norm {
namespace {

using namespace cuda_detail;
constexpr int kWarps = 4, kWidth = 4;

template <int kGroups>
__global__ void __launch_bounds__(32 * kWarps) registers_kernel(Problem problem) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= problem.rows) return;
  const int columns = problem.columns, lane = threadIdx.x % 32;
  Vec<float, kWidth> groups[kGroups] = {};
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int j = (32 * i + lane) * kWidth;
    if (j < columns) groups[i] = load<kWidth>(problem.x + row * columns + j);
    for (const float x : groups[i].value) sum += x;
  }
  const float mean = warp_reduce(sum, Add()) / columns;
#pragma unroll
  for (int i = 0; i < kGroups; ++i)
    if ((32 * i + lane) * kWidth < columns)
      for (const float x : groups[i].value) squares += (x - mean) * (x - mean);
  const float scale = 1 / sqrtf(warp_reduce(squares, Add()) / columns + problem.eps);
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int j = (32 * i + lane) * kWidth;
    if (j >= columns) continue;
    const auto weight = load<kWidth>(problem.weight + j), bias = load<kWidth>(problem.bias + j);
    for (int e = 0; e < kWidth; ++e)
      groups[i].value[e] = (groups[i].value[e] - mean) * scale * weight.value[e] + bias.value[e];
    store(problem.y + row * columns + j, groups[i]);
  }
}

}  // namespace

void registers(const Problem& problem, Device device) {
  GRADUS_CHECK(problem.columns % kWidth == 0 && problem.columns <= 4096, ShapeError,
               "rung 3 takes rows of a multiple of 4 and at most 4096 numbers, not of ", problem.columns);
  const Launch launch(device);
  launch(problem.columns <= 256    ? registers_kernel<2>
         : problem.columns <= 1024 ? registers_kernel<8>
                                   : registers_kernel<32>,
         ceil_div(problem.rows, kWarps), 32 * kWarps, problem);
}

}  // namespace gradus::ladders::layer_norm
