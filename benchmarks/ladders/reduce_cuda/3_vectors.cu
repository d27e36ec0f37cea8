// Rung 3, vectors: a block sums a row, and a thread loads four numbers at a time. More bytes are in flight with fewer
// instructions, and a long row does not depend on a single warp. For short rows a block is too large: with 256 numbers,
// three of four warps are idle, and rung 2 is 4 times as fast.
// Grid: x = rows.  Block: 256 threads; a thread adds every 256th group of 4 numbers.
#include <gradus/benchmarks/ladders/reduce_cuda/rungs.h>
#include <gradus/benchmarks/ladders/reduce_cuda/vec_sum.cuh>

namespace gradus::ladders::reduce {
namespace {

__global__ void __launch_bounds__(kThreads) vectors_kernel(Problem problem) {
  const float sum = vec_sum(problem.x + int64_t{blockIdx.x} * problem.columns, problem.columns);
  if (threadIdx.x == 0) problem.y[blockIdx.x] = sum;
}

}  // namespace

void vectors(const Problem& problem, Device device) {
  cuda_detail::Launch{device}(vectors_kernel, problem.rows, kThreads, problem);
}

}  // namespace gradus::ladders::reduce
