// positions = indices of the true elements in row-major order. Blocks count the true ones among their elements, one
// block turns the counts into where each block's positions begin, and the blocks write them.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// Adds up `mine` over the threads before this one, and over all.
__device__ uint32_t sum_before(uint32_t mine, uint32_t* total) {
  __shared__ uint32_t warps[kThreads / 32];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t sum = mine;
  for (uint32_t reach = 1; reach < 32; reach *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, sum, reach);
    if (lane >= reach) sum += other;
  }
  __syncthreads();  // an earlier call's sums may still be read
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  uint32_t before = 0;
  *total = 0;
  for (uint32_t w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += warps[w];
    *total += warps[w];
  }
  return before + sum - mine;
}

__device__ bool is_true(const bool* x, const Geometry<1>& geometry, uint32_t i) {
  if (i >= geometry.numel) return false;
  int64_t at[1];
  geometry.offsets(i, at);
  return x[at[0]];
}

// Each block has `share` elements.
__global__ void __launch_bounds__(kThreads)
    count_kernel(const bool* x, Geometry<1> geometry, uint32_t share, uint32_t* counts) {
  const uint32_t begin = blockIdx.x * share, end = min(begin + share, geometry.numel);
  uint32_t count = 0, total = 0;
  for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) count += is_true(x, geometry, i);
  sum_before(count, &total);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// counts[b] = sum of the counts before b; one block.
__global__ void __launch_bounds__(kThreads) starts_kernel(uint32_t* counts, uint32_t blocks) {
  uint32_t start = 0, total = 0;
  for (uint32_t begin = 0; begin < blocks; begin += kThreads) {
    const uint32_t b = begin + threadIdx.x, count = b < blocks ? counts[b] : 0;
    const uint32_t before = sum_before(count, &total);
    if (b < blocks) counts[b] = start + before;
    start += total;
  }
}

struct Sizes {
  int ndim;
  Divisor size[kMaxDims];
};

__global__ void __launch_bounds__(kThreads)
    write_kernel(const bool* x, Geometry<1> geometry, Sizes sizes, uint32_t share, const uint32_t* starts,
                 int64_t* positions, int64_t row_step, int64_t column_step) {
  const uint32_t first = blockIdx.x * share, end = min(first + share, geometry.numel);
  uint32_t start = starts[blockIdx.x], total = 0;
  for (uint32_t begin = first; begin < end; begin += kThreads) {
    const uint32_t i = begin + threadIdx.x;
    const bool hit = i < end && is_true(x, geometry, i);
    const uint32_t row = start + sum_before(hit, &total);
    start += total;
    if (!hit) continue;
    uint32_t rest = i;
    for (int axis = sizes.ndim - 1; axis >= 0; --axis) {
      uint32_t index = rest;
      rest = sizes.size[axis].split(index);
      positions[row * row_step + axis * column_step] = index;
    }
  }
}

}  // namespace

void CudaBackend::nonzero(const View& x, const MutableView& positions) {
  EventScope event("nonzero", "cuda", "count", {&x, &positions});
  const Nest<1> nest = Nest<1>::logical(x.shape, {&x.strides});
  if (nest.numel == 0 || positions.numel() == 0) return;
  GRADUS_CHECK(nest.numel < kMaxChunk, ShapeError, "cuda looks for non-zeros in fewer than ", kMaxChunk,
               " elements at once, got ", nest.numel, "; look in parts");
  Sizes sizes{x.ndim(), {}};
  for (int axis = 0; axis < x.ndim(); ++axis) sizes.size[axis] = Divisor(x.shape[axis]);
  const Launch launch(x.device);
  const uint32_t blocks = launch.blocks(nest.numel, 8 * kThreads);
  const auto share = static_cast<uint32_t>((nest.numel + blocks - 1) / blocks);
  const Scratch starts(sizeof(uint32_t) * blocks, x.device);
  launch(count_kernel, blocks, kThreads, x.as<bool>(), nest.geometry(), share, starts.as<uint32_t>());
  launch(starts_kernel, 1, kThreads, starts.as<uint32_t>(), blocks);
  launch(write_kernel, blocks, kThreads, x.as<bool>(), nest.geometry(), sizes, share, starts.as<uint32_t>(),
         positions.as<int64_t>(), positions.strides[0], positions.strides[1]);
}

}  // namespace gradus
