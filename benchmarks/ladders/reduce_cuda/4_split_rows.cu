// Rung 4, split rows: if there are few long rows, several blocks share a row, and a second kernel adds their sums in
// order. Atomic additions would need no second kernel, but give different bits in each run.
// Grid: x = rows, y = splits of a row.  Block: 256 threads; in the second kernel, a thread for each row.
#include <algorithm>

#include <gradus/benchmarks/ladders/reduce_cuda/rungs.h>
#include <gradus/benchmarks/ladders/reduce_cuda/vec_sum.cuh>

namespace gradus::ladders::reduce {
namespace {

__global__ void __launch_bounds__(kThreads) split_kernel(Problem problem, int per_split) {
  const int first = static_cast<int>(blockIdx.y) * per_split;
  const float* const x = problem.x + int64_t{blockIdx.x} * problem.columns + first;
  const float sum = vec_sum(x, min(per_split, problem.columns - first));
  float* const to = gridDim.y == 1 ? problem.y : problem.workspace;
  if (threadIdx.x == 0) to[blockIdx.x * gridDim.y + blockIdx.y] = sum;
}

__global__ void merge_kernel(Problem problem, int splits) {
  const int row = static_cast<int>(cuda_detail::thread_index());
  if (row >= problem.rows) return;
  float sum = 0;
  for (int split = 0; split < splits; ++split) sum += problem.workspace[row * splits + split];
  problem.y[row] = sum;
}

}  // namespace

void split_rows(const Problem& problem, Device device) {
  const cuda_detail::Launch launch(device);
  constexpr int kSmallest = 4 * kThreads * kWidth;  // four loads for each thread
  const int wanted = std::clamp(8 * launch.multiprocessors() / problem.rows, 1, kMostSplits);
  const int per_split = std::max(static_cast<int>(ceil_div(problem.columns, wanted * kWidth)) * kWidth, kSmallest);
  const int splits = static_cast<int>(ceil_div(problem.columns, per_split));
  launch(split_kernel, dim3(problem.rows, splits), kThreads, problem, per_split);
  if (splits > 1) launch(merge_kernel, ceil_div(problem.rows, 64), 64, problem, splits);
}

}  // namespace gradus::ladders::reduce
