// Rung 5, a pipeline: rung 4 with asynchronous copies from global to shared memory (cp.async), two steps ahead of the
// products. The copies need no registers, and no thread waits for the copy that it has just started.
// Grid: x = tiles of 128 columns, y = tiles of 64 rows.  Block: 128 threads; a warp has 32 x 64 results.
// Pipeline: 3 stages of shared memory.
#include <gradus/backends/cuda/device/cp_async.cuh>
#include <gradus/benchmarks/ladders/gemm_cuda/tile.cuh>

namespace gradus::ladders::gemm {
namespace {

using T = BFloat16;
constexpr int kStages = 3;

struct CopyAsync {
  __device__ void operator()(cuda_detail::Vec16& to, const T* from, int64_t offset, bool exists) const {
    cuda_detail::cp_async<16>(&to, from + (exists ? offset : 0), exists);
  }
};

__global__ void __launch_bounds__(Tile::kThreads) cp_async_kernel(Problem<T> problem) {
  extern __shared__ cuda_detail::Vec16 memory[];
  auto* const stages = reinterpret_cast<Tile::Shared*>(memory);
  cuda_detail::MmaTile<cuda_detail::MathMode::half, T> mma;
  const int steps = problem.K / kDepth<T>;
  const auto start = [&](int step) {
    if (step < steps) load_tile(problem, step * kDepth<T>, stages[step % kStages], CopyAsync());
    cuda_detail::cp_async_commit();
  };
  for (int step = 0; step < kStages - 1; ++step) start(step);
  for (int step = 0; step < steps; ++step) {
    cuda_detail::cp_async_wait<kStages - 2>();
    __syncthreads();
    start(step + kStages - 1);
    const Tile::Shared& tile = stages[step % kStages];
    mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
  }
  store_tile(problem, mma);
}

}  // namespace

void cp_async(const Problem<T>& problem, Device device) {
  cuda_detail::Launch(device).with({kStages * sizeof(Tile::Shared)}, cp_async_kernel, grid_of(problem), Tile::kThreads,
                                   problem);
}

}  // namespace gradus::ladders::gemm
