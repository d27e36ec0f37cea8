// Rung 6, a pipeline: rung 5 with asynchronous copies from global to shared memory (cp.async), two steps ahead of the
// products. The copies need no registers, and no thread waits for the copy that it has just started.
// Tiles of 64 filters x 128 pixels; a step has a depth of 32 channels of one (r,s).
// Grid: x = tiles of pixels, y = tiles of filters.  Block: 128 threads; a warp has 32 x 64 results, a thread 64.
// Pipeline: 3 stages of shared memory; for a pixel in the padding, the copy writes zeros.
#include <gradus/backends/cuda/device/cp_async.cuh>
#include <gradus/benchmarks/ladders/conv2d_cuda/implicit_gemm.cuh>

namespace gradus::ladders {
namespace {

using T = BFloat16;
constexpr int kStages = 3;

struct CopyAsync {
  template <class Offset>
  __device__ void operator()(cuda_detail::Vec16& to, const T* from, Offset offset, bool inside) const {
    cuda_detail::cp_async<16>(&to, from + (inside ? offset : 0), inside);
  }
};

__global__ void __launch_bounds__(Tile::kThreads) cp_async_kernel(Fprop<T> conv) {
  extern __shared__ cuda_detail::Vec16 memory[];
  auto* const stages = reinterpret_cast<Tile::Shared*>(memory);
  cuda_detail::MmaTile<cuda_detail::MathMode::half, T> mma;
  const int chunks = conv.size.C / kDepth<T>, steps = 9 * chunks;
  const auto start = [&](int step) {
    if (step < steps) load_tile(conv, step / chunks, step % chunks * kDepth<T>, stages[step % kStages], CopyAsync());
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
  store_epilogue(conv, mma);
}

}  // namespace

void cp_async(const Fprop<T>& conv, Device device) {
  cuda_detail::Launch(device).with({kStages * sizeof(Tile::Shared)}, cp_async_kernel, grid_of(conv.size),
                                   Tile::kThreads, conv);
}

}  // namespace gradus::ladders
