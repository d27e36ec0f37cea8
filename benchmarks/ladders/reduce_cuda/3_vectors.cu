// Rung 3, vectors: a block a row, a thread four numbers a load. More bytes are in flight, and fewer instructions ask
// for them; a long row no longer waits for one warp.
// A block a row is too much for short ones: with 256 numbers three warps in four idle, and rung 2 is 4 times as fast.
// Grid: x = rows.  Block: 256 threads; a thread adds each 256th group of 4 numbers.
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
