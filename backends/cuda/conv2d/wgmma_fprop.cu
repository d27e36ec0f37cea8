// conv2d fprop and dgrad, 3x3 with padding 1: half types, and fprop of TF32, on tensor cores of Hopper (wgmma).
//   out[n,p,q,k] = sum over r,s,c of in[n, p + r - 1, q + s - 1, c] w[k,r,s,c], then bias and ReLU;  in, out, w: NHWC.
// For dgrad, `in` is dy, `out` is dx, and the filters are flipped and transposed; wgmma transposes them as it reads.
// Tile: 128 pixels, or some whole rows, of an image. TMA loads the rows of a tile once, with the row above, the row
// below and a pixel of zeros after each row: a matrix (pixels, C) with W + 1 pixels a row. Tap (r,s) multiplies this
// matrix from row (r - 1) (W + 1) + s - 1 on; a pixel of zeros is the padding of two rows, at the end of one and at the
// beginning of the next.
// Grid: x = blocks that share the tiles, y = groups of kFilters (32 or 64) filters.  Block: 2 or 3 warpgroups, which
// multiply a tile each, in turn, and one more warp, whose first lane starts the TMA copies; a thread of a warpgroup
// computes kFilters results. The filters stay in shared memory.
// Pipeline: a ring of slots, each for 64 or 128 bytes of channels of a tile; the barrier `full` opens when a slot is
// loaded, `empty` when it has been multiplied.  Deterministic: one warpgroup computes all of a sum.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/tma.cuh>
#include <gradus/backends/cuda/device/wgmma.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kBlocks = kWgmmaPixels / 64;  // blocks of 64 pixels in a tile

struct FpropBarriers {
  Mbarrier full[kMaxWgmmaSlots], empty[kMaxWgmmaSlots], filters[kMaxWgmmaSlots][3];  // filters: (chunks, rows of taps)
};

/// The shared memory of a block: the filters of all chunks of channels, then the ring.
template <class T, int kLineBytes, int kFilters>
struct FpropShared {
  static constexpr int kChannels = kLineBytes / sizeof(T), kFilterBytes = 9 * kFilters * kLineBytes;  // per chunk
  uint32_t filters, ring, slot_bytes;

  __device__ FpropShared(const void* memory, const WgmmaTiling& tiling)
      : filters((shared_address(memory) + 1023) / 1024 * 1024), ring(filters + tiling.chunks * kFilterBytes + 1024),
        slot_bytes(tiling.slot_bytes) {}
  __device__ uint32_t slot(uint32_t i) const { return ring + i * slot_bytes; }
};

/// Starts all copies of the block, from one thread.
template <bool kFlipped, class T, int kLineBytes, int kFilters>
__device__ void load_tiles(const CUtensorMap& in, const CUtensorMap& w, const WgmmaTiling& tiling,
                           const FpropShared<T, kLineBytes, kFilters>& shared, FpropBarriers& barriers) {
  using Shared = FpropShared<T, kLineBytes, kFilters>;
  constexpr uint32_t kRowBytes = Shared::kFilterBytes / 3;
  const int first_filter = static_cast<int>(blockIdx.y) * kFilters;
  // After each chunk of the block's first tile, the filters of this chunk are loaded, in the order of their use.
  const auto load_filters = [&](int chunk, int row) {
    const int channel = chunk * Shared::kChannels, r = kFlipped ? 2 - row : row;
    barriers.filters[chunk][r].expect_tx(kRowBytes);
    tma_load(shared.filters + chunk * Shared::kFilterBytes + r * kRowBytes, w, barriers.filters[chunk][r],
             kFlipped ? first_filter : channel, kFlipped ? channel : first_filter, 3 * r, 0);
  };
  uint32_t slot = 0, round = 0;
  for (int tile = blockIdx.x; tile < tiling.tiles; tile += gridDim.x)
    for (int chunk = 0; chunk < tiling.chunks; ++chunk) {
      if (round > 0) barriers.empty[slot].wait((round - 1) % 2);
      barriers.full[slot].expect_tx(tiling.load_bytes);
      const WgmmaTiling::Tile at = tiling.tile_at(tile);
      tma_load(shared.slot(slot), in, barriers.full[slot], chunk * Shared::kChannels, 0, at.row - 1, at.image);
      if (tile == static_cast<int>(blockIdx.x))
        for (int row = 0; row < 3; ++row) load_filters(chunk, row);
      if (++slot == tiling.slots) slot = 0, ++round;
    }
}

/// In most kernels a product has 64 pixels as rows and the filters as columns; a warpgroup computes two such products.
/// For 64 filters of half types the filters are the rows and all 128 pixels the columns of one product, which reads 6
/// instead of 8 KiB of shared memory for each step of the depth. float32 is slower that way, because movmatrix cannot
/// transpose it.
template <class T, int kFilters>
constexpr bool kFiltersAreRows = sizeof(T) == 2 && kFilters == 64;
template <class T, int kFilters>
using FpropSums =
    std::conditional_t<kFiltersAreRows<T, kFilters>, float[kWgmmaPixels / 8][4], float[kBlocks][kFilters / 8][4]>;

/// Starts the asynchronous products that add a chunk of channels to `sums` (the first chunk sets them). The filters are
/// (9, K, C) for fprop and (9, C, K) for dgrad, which flips them.
template <class T, bool kFlipped, int kLineBytes, int kFilters>
__device__ void multiply(FpropSums<T, kFilters>& sums, uint32_t tile, uint32_t filters, Mbarrier (&have_filters)[3],
                         int pitch, bool accumulate) {
#pragma unroll
  for (int rs = 0; rs < 9; ++rs) {
    if (rs % 3 == 0) {
      have_filters[(kFlipped ? 8 - rs : rs) / 3].wait(0);
      wgmma_fence();
    }
#pragma unroll
    for (int byte = 0; byte < kLineBytes; byte += 32) {
      const uint64_t k = kFlipped ? matrix_descriptor<2 * kFilters>(filters + kFilters * ((8 - rs) * kLineBytes + byte))
                                  : matrix_descriptor<kLineBytes>(filters + rs * kFilters * kLineBytes + byte);
      const auto pixels = [&](int block) {
        const int first = 64 * block + rs / 3 * pitch + rs % 3 - 1;
        return matrix_descriptor<kLineBytes>(tile + first * kLineBytes + byte);
      };
      const bool add = rs + byte > 0 || accumulate;
      if constexpr (kFiltersAreRows<T, kFilters>) {
        wgmma<T, kFlipped, false>(sums, k, pixels(0), add);
      } else {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) wgmma<T, false, kFlipped>(sums[i], pixels(i), k, add);
      }
    }
  }
  wgmma_commit();
}

/// A pixel of a tile: its index in the image, and whether the tile and the image contain it.
struct OutputPixel {
  int index;
  bool inside;

  __device__ OutputPixel(const WgmmaTiling& tiling, const WgmmaTiling::Tile& tile, int pixel) {
    uint32_t q = tile.pixel + pixel;
    const int p = tile.row + static_cast<int>(tiling.pitches.split(q));
    inside = pixel < tiling.step && q < tiling.width && p < tiling.height;
    index = p * tiling.width + static_cast<int>(q);
  }
};

/// Adds the bias, applies ReLU and stores the results; a lane stores 16 bytes of neighbouring filters at a time. `to`
/// points to the first filter of this block in the image's first pixel.
template <class T, int kEights>
__device__ void store_epilogue(const float (&sums)[kBlocks][kEights][4], const float (&bias)[kEights][2], bool relu,
                               const WgmmaTiling& tiling, const WgmmaTiling::Tile& tile, T* to, int channels,
                               int filters) {
#pragma unroll
  for (int i = 0; i < 2 * kBlocks; ++i) {
    const OutputPixel at(tiling, tile, i / 2 * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + i % 2 * 8);
    T* const row = to + at.index * channels;
#pragma unroll
    for (int first = 0; first < kEights; first += 4) {
      float2 values[sizeof(T) == 4 ? 4 : 1];
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float low = sums[i / 2][first + j][i % 2 * 2] + bias[first + j][0];
        float high = sums[i / 2][first + j][i % 2 * 2 + 1] + bias[first + j][1];
        if (relu) low = low < 0 ? 0 : low, high = high < 0 ? 0 : high;  // a NaN stays
        if constexpr (sizeof(T) == 4) values[j] = {low, high};
        else words[j] = pair(T(low), T(high));  // a separate loop for these is slower
      }
      if constexpr (sizeof(T) == 2) {
        transpose_quad(words);
        const int filter = first * 8 + static_cast<int>(threadIdx.x % 4) * 8;
        if (at.inside && filter < filters)
          *reinterpret_cast<uint4*>(row + filter) = {words[0], words[1], words[2], words[3]};
      } else {
        const bool odd = threadIdx.x % 2;
#pragma unroll
        for (int j = 0; j < 4; j += 2) {  // an even lane stores both lanes' values j, an odd lane both values j + 1
          const float2 give = odd ? values[j] : values[j + 1], own = odd ? values[j + 1] : values[j];
          const float2 got = {__shfl_xor_sync(~0u, give.x, 1), __shfl_xor_sync(~0u, give.y, 1)};
          const int filter = (first + j + odd) * 8 + static_cast<int>(threadIdx.x % 4 / 2) * 4;
          if (at.inside && filter < filters)
            *reinterpret_cast<float4*>(row + filter) =
                odd ? float4{got.x, got.y, own.x, own.y} : float4{own.x, own.y, got.x, got.y};
        }
      }
    }
  }
}

/// The epilogue for products whose rows are filters: two lanes store 32 bytes of a pixel.
template <class T>
__device__ void store_epilogue(const float (&sums)[kWgmmaPixels / 8][4], const float (&bias)[1][2], bool relu,
                               const WgmmaTiling& tiling, const WgmmaTiling::Tile& tile, T* to, int channels,
                               int filters) {
  const int lane = threadIdx.x % 32, filter = threadIdx.x % 128 / 32 * 16 + lane % 2 * 8;
#pragma unroll
  for (int first = 0; first < kWgmmaPixels / 8; first += 2) {
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float(&sum)[4] = sums[first + j / 2];
      float low = sum[j % 2 * 2] + bias[0][j % 2], high = sum[j % 2 * 2 + 1] + bias[0][j % 2];
      if (relu) low = low < 0 ? 0 : low, high = high < 0 ? 0 : high;
      words[j] = transpose_matrix(pair(T(low), T(high)));
    }
    transpose_quad(words);
    const OutputPixel at(tiling, tile, (first + lane % 4 / 2) * 8 + lane / 4);
    if (at.inside && filter < filters)
      *reinterpret_cast<uint4*>(to + at.index * channels + filter) = {words[0], words[1], words[2], words[3]};
  }
}

template <class T, int kLineBytes, int kFilters, bool kFlipped, int kWarpgroups>
__global__ void __launch_bounds__(128 * kWarpgroups + 32, 1)
    wgmma_fprop_kernel(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap w,
                       const WgmmaTiling tiling, const T* bias, int64_t bias_step, bool relu, T* out, int channels) {
  extern __shared__ char memory[];
  __shared__ FpropBarriers barriers;
  const FpropShared<T, kLineBytes, kFilters> shared(memory, tiling);
  launch_dependents();
  for (int i = threadIdx.x; i < tiling.slots * kLineBytes / 16; i += blockDim.x)  // a pixel of zeros before each slot
    store_shared(shared.slot(i / (kLineBytes / 16)) - kLineBytes + i % (kLineBytes / 16) * 16, {});
  if (threadIdx.x == 0) {
    prefetch(in), prefetch(w);
    for (int i = 0; i < tiling.slots; ++i) barriers.full[i].init(), barriers.empty[i].init(4);
    for (int i = 0; i < 3 * tiling.chunks; ++i) barriers.filters[i / 3][i % 3].init();
  }
  fence_proxy_async();
  __syncthreads();
  wait_for_grid();
  const int group = threadIdx.x / 128, first_filter = static_cast<int>(blockIdx.y) * kFilters;
  if (group == kWarpgroups) {
    if (threadIdx.x % 32 == 0) load_tiles<kFlipped>(in, w, tiling, shared, barriers);
    return;
  }

  constexpr bool kRows = kFiltersAreRows<T, kFilters>;
  constexpr int kPairs = kRows ? 1 : kFilters / 8;
  float shift[kPairs][2] = {};  // the bias of this thread's filters
#pragma unroll
  for (int i = 0; i < 2 * kPairs; ++i) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const int k = first_filter + (kRows ? warp * 16 + i * 8 + lane / 4 : i / 2 * 8 + lane % 4 * 2 + i % 2);
    if (bias && k < channels) shift[i / 2][i % 2] = bias[k * bias_step];
  }
  const auto release = [&](int slot) {
    if (threadIdx.x % 32 == 0) barriers.empty[slot].arrive();
  };
  int count = group * tiling.chunks;  // chunks of the block's earlier tiles
  for (int tile = blockIdx.x + group * gridDim.x; tile < tiling.tiles; tile += gridDim.x * kWarpgroups) {
    const WgmmaTiling::Tile at = tiling.tile_at(tile);
    FpropSums<T, kFilters> sums;
    int last_slot = 0;
    for (int chunk = 0; chunk < tiling.chunks; ++chunk) {
      const int slot = (count + chunk) % tiling.slots, round = (count + chunk) / tiling.slots;
      if (round > 0) barriers.empty[slot].wait((round - 1) % 2);  // else full.wait() could return for round - 2
      barriers.full[slot].wait(round % 2);
      multiply<T, kFlipped, kLineBytes, kFilters>(sums, shared.slot(slot) + at.pixel * kLineBytes,
                                                  shared.filters + chunk * shared.kFilterBytes, barriers.filters[chunk],
                                                  tiling.pitch, chunk > 0);
      if (chunk > 0) wgmma_wait<1>(), release(last_slot);  // the previous chunk
      last_slot = slot;
    }
    wgmma_wait<0>();
    release(last_slot);
    count += kWarpgroups * tiling.chunks;
    T* const to = out + int64_t{at.image} * tiling.height * tiling.width * channels + first_filter;
    store_epilogue(sums, shift, relu, tiling, at, to, channels, channels - first_filter);
  }
}

template <class T, int kLineBytes, int kFilters, bool kFlipped, int kWarpgroups = 3>
void launch_fprop(const ConvCall& call, const Launch& launch) {
  const ConvProblem& problem = call.problem;
  const auto& tiling = call.tiling<WgmmaTiling>();
  const Shape &filters = problem.w.shape, &shape = problem.in().shape;
  const auto channels = static_cast<int>(problem.out().shape[1]);
  constexpr cuuint32_t kChannels = kLineBytes / sizeof(T);
  const CUtensorMap in = image_map(call.in.data, problem.dtype, shape, kChannels, tiling.pitch, tiling.rows + 2);
  const cuuint64_t C = filters[1], K = filters[0], tap = sizeof(T) * C;
  const CUtensorMap w = tensor_map(call.weight.data, problem.dtype, {C, K, 9, 1}, {9 * tap, tap, 9 * tap},
                                   {kFlipped ? kFilters : kChannels, kFlipped ? kChannels : kFilters, 3, 1});
  launch.with({.shared_bytes = call.plan.shared_bytes, .early = true},
              wgmma_fprop_kernel<T, kLineBytes, kFilters, kFlipped, kWarpgroups>,
              dim3(tiling.blocks, ceil_div(channels, kFilters)), 128 * kWarpgroups + 32, in, w, tiling,
              static_cast<const T*>(call.bias), call.gemm.bias_step, problem.relu, static_cast<T*>(call.out), channels);
}

void wgmma_fprop(const ConvCall& call, const Launch& launch) {
  const bool flipped = call.problem.pass == ConvPass::backward_data;
  const auto& tiling = call.tiling<WgmmaTiling>();
  visit_narrow(call.problem.dtype, [&]<class T>() {
    const auto with = [&]<int kLineBytes, int kFilters>() {
      if constexpr (sizeof(T) == 2)
        if (flipped) return launch_fprop<T, kLineBytes, kFilters, true>(call, launch);
      launch_fprop<T, kLineBytes, kFilters, false>(call, launch);
    };
    const bool wide = call.plan.tile.rows == 64;
    if constexpr (sizeof(T) == 4)
      if (tiling.warpgroups == 2) return launch_fprop<T, 64, 64, false, 2>(call, launch);
    if (tiling.line_bytes == 64) wide ? with.template operator()<64, 64>() : with.template operator()<64, 32>();
    else wide ? with.template operator()<128, 64>() : with.template operator()<128, 32>();
  });
}

}  // namespace

bool launch_wgmma(const ConvOperands& call) {
  return launch_phases(call.problem.is_wgrad() ? wgmma_wgrad : wgmma_fprop, call);
}

}  // namespace gradus::cuda_detail
