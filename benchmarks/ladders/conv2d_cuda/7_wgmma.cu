// Rung 7: TMA loads tiles with their padding, and wgmma multiplies operands in shared memory (Hopper). Rung 6 loads
// each pixel nine times, once for each (r,s). Rung 7 loads a tile of whole image rows once, with the row above and
// below and a zero after each row: a matrix (pixels, C) with W + 1 pixels for each image row. The products for (r,s)
// use the same matrix, shifted by (r - 1) (W + 1) + s - 1 rows. The zero after an image row is also the padding before
// the next row.
// Grid: x = blocks that share the tiles, y = groups of 32 filters.  Block: 3 warpgroups, which multiply 128 pixels of a
// tile each, in turn, and one more warp, whose first lane starts the TMA copies of tiles. Filters stay in shared
// memory.
// Pipeline: a ring of stages. The barrier `full` completes when a tile has been loaded, `empty` when it has been
// multiplied. The library's wgmma_fprop.cu is this kernel for any number of channels and filters, and for the gradient
// of images.
#include <algorithm>

#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/tma.cuh>
#include <gradus/backends/cuda/device/wgmma.cuh>

namespace gradus::ladders {
namespace {

using namespace cuda_detail;
using T = BFloat16;
constexpr int kWarpgroups = 3, kThreads = 128 * kWarpgroups + 32;
constexpr int kFilters = 32, kBlocks = 2, kMostStages = 8;  // a tile has kBlocks x 64 pixels

struct Ring {
  int rows, tiles_per_image, tiles, stages;  // rows: of a tile
  uint32_t tile_bytes, stage_bytes;          // stage_bytes: with zeros before the next stage
};
struct Barriers {
  Mbarrier full[kMostStages], empty[kMostStages], filters;
};

/// Returns a lane's results for 8 neighbouring filters of a pixel. A lane has two pixels; `half` selects one.
__device__ uint4 round_row(const float (&sums)[4][4], const float (&bias)[4][2], int half) {
  uint32_t words[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float low = sums[j][2 * half] + bias[j][0], high = sums[j][2 * half + 1] + bias[j][1];
    words[j] = pair(T(fmaxf(low, 0.0f)), T(fmaxf(high, 0.0f)));
  }
  transpose_quad(words);
  return {words[0], words[1], words[2], words[3]};
}

__device__ void load_tiles(const CUtensorMap& x, const Ring& ring, uint32_t stages, Barriers& barriers) {
  int count = 0;
  for (int tile = blockIdx.x; tile < ring.tiles; tile += gridDim.x, ++count) {
    const int stage = count % ring.stages;
    if (count >= ring.stages) barriers.empty[stage].wait((count / ring.stages - 1) % 2);
    barriers.full[stage].expect_tx(ring.tile_bytes);
    const int n = tile / ring.tiles_per_image, p = tile % ring.tiles_per_image * ring.rows;
    tma_load(stages + stage * ring.stage_bytes, x, barriers.full[stage], 0, 0, p - 1, n);
  }
}

template <int C>
__device__ void multiply(float (&sums)[kBlocks][4][4], uint32_t tile, uint32_t filters, int pitch) {
  wgmma_fence();
#pragma unroll
  for (int rs = 0; rs < 9; ++rs)
#pragma unroll
    for (int c = 0; c < C; c += 16)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const int row = 64 * i + rs / 3 * pitch + rs % 3 - 1;
        cuda_detail::wgmma<T, false, false>(sums[i], matrix_descriptor<2 * C>(tile + 2 * (row * C + c)),
                                            matrix_descriptor<2 * C>(filters + 2 * (rs * kFilters * C + c)),
                                            rs + c > 0);
      }
  wgmma_commit();
  wgmma_wait<0>();
}

template <int C>
__global__ void __launch_bounds__(kThreads)
    wgmma_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w, Fprop<T> conv,
                 Ring ring) {
  extern __shared__ char memory[];
  __shared__ Barriers barriers;
  const auto [N, H, W, channels, K] = conv.size;
  const uint32_t filters = (shared_address(memory) + 1023) / 1024 * 1024;
  const uint32_t stages = filters + 9 * kFilters * C * 2 + 1024;  // the last row before each stage is zero
  const int k = static_cast<int>(blockIdx.y) * kFilters, group = threadIdx.x / 128, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < ring.stages * C / 2; i += kThreads)
    asm volatile("st.shared.b32 [%0], 0;" ::"r"(stages + i / (C / 2) * ring.stage_bytes - 2 * C + i % (C / 2) * 4));
  if (threadIdx.x == 0) {
    for (int i = 0; i < ring.stages; ++i) barriers.full[i].init(), barriers.empty[i].init();
    barriers.filters.init();
  }
  fence_proxy_async();
  __syncthreads();
  if (group == kWarpgroups) {
    if (lane > 0) return;
    barriers.filters.expect_tx(9 * kFilters * C * 2);
    tma_load(filters, w, barriers.filters, 0, k, 0, 0);
    return load_tiles(x, ring, stages, barriers);
  }

  int row[kBlocks][2], at[kBlocks][2];  // rows and positions of this lane's pixels in a tile
#pragma unroll
  for (int i = 0; i < 2 * kBlocks; ++i) {
    const int pixel = i / 2 * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4 + i % 2 * 8;
    const int p = pixel / (W + 1), q = pixel % (W + 1);
    row[i / 2][i % 2] = q < W && p < ring.rows ? p : H;
    at[i / 2][i % 2] = (p * W + q) * K + k + lane % 4 * 8;
  }
  float bias[4][2];
#pragma unroll
  for (int i = 0; i < 8; ++i) bias[i / 2][i % 2] = conv.bias[k + i / 2 * 8 + lane % 4 * 2 + i % 2];
  barriers.filters.wait(0);
  int count = group;
  for (int tile = blockIdx.x + group * gridDim.x; tile < ring.tiles; tile += gridDim.x * kWarpgroups) {
    const int stage = count % ring.stages;
    barriers.full[stage].wait(count / ring.stages % 2);
    float sums[kBlocks][4][4];
    multiply<C>(sums, stages + stage * ring.stage_bytes, filters, W + 1);
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");  // of the warpgroup
    if (threadIdx.x % 128 == 0) barriers.empty[stage].arrive();
    count += kWarpgroups;
    const int n = tile / ring.tiles_per_image, p = tile % ring.tiles_per_image * ring.rows;
    T* const to = conv.y + int64_t{n * H + p} * W * K;
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      const uint4 filled = round_row(sums[i / 2], bias, i % 2);
      if (p + row[i / 2][i % 2] < H) *reinterpret_cast<uint4*>(to + at[i / 2][i % 2]) = filled;
    }
  }
}

template <int C>
void run(const Fprop<T>& conv, Device device) {
  const auto [N, H, W, channels, K] = conv.size;
  Ring ring;
  ring.rows = std::min(H, (64 * kBlocks + 1) / (W + 1));  // the last row needs no zero after it
  GRADUS_CHECK(ring.rows > 0, ShapeError, "rung 7 computes rows of at most ", 64 * kBlocks, " pixels, not of ", W);
  ring.tiles_per_image = ceil_div(H, ring.rows), ring.tiles = N * ring.tiles_per_image;
  ring.tile_bytes = (ring.rows + 2) * (W + 1) * C * 2;
  const uint32_t read_bytes = (64 * kBlocks + 2 * (W + 2)) * C * 2;
  ring.stage_bytes = ceil_div(std::max(ring.tile_bytes, read_bytes) + C * 2, 1024) * 1024;
  const uint32_t filter_bytes = 9 * kFilters * C * 2 + 2048;
  ring.stages = std::min<int>(kMostStages, (220 * 1024 - filter_bytes) / ring.stage_bytes);
  const CUtensorMap x = image_map(conv.x, DType::bf16, {N, C, H, W}, C, W + 1, ring.rows + 2);
  const CUtensorMap filters = tensor_map(conv.w, DType::bf16, {C, static_cast<cuuint64_t>(K), 9, 1},
                                         {2 * C * 9, 2 * C, 2 * C * 9}, {C, kFilters, 9, 1});
  const Launch launch(device);
  const int groups = K / kFilters;
  launch.with({filter_bytes + ring.stages * ring.stage_bytes}, wgmma_kernel<C>,
              dim3(std::min(ring.tiles, std::max(1, launch.multiprocessors() / groups)), groups), kThreads, x, filters,
              conv, ring);
}

}  // namespace

void wgmma(const Fprop<BFloat16>& conv, Device device) {
  GRADUS_CHECK(conv.size.C == 32 || conv.size.C == 64, ShapeError, "rung 7 takes 32 or 64 channels, not ", conv.size.C);
  conv.size.C == 32 ? run<32>(conv, device) : run<64>(conv, device);
}

}  // namespace gradus::ladders
