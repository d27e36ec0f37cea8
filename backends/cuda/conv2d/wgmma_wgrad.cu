// conv2d wgrad, 3x3 with padding 1, half types on tensor cores of Hopper (wgmma).
//   dw[k,r,s,c] = sum over n,p,q of dy[n,p,q,k] x[n, p + r - 1, q + s - 1, c];  dbias[k] = sum of dy;  NHWC.
// With a mask, dy counts only where mask > 0. It is masked in shared memory, and the masked dy can be stored for dgrad,
// even in the place of dy: blocks with other channels that read it from there mask it again, which changes nothing.
// Tile: whole rows, as in wgmma_fprop.cu: (pixels, C) of x with the row above and the row below, and (pixels, K) of
// dy, both with W + 1 pixels a row, of which the last one of dy is zero. Pixels are the depth of the product, so wgmma
// reads both operands transposed. The columns of the product are the 3 taps of a row times the channels: three
// matrices, each of which begins a pixel after the previous one. An infinity in x at an end of a row, or in dy at an
// edge, multiplied by these zeros, becomes a NaN in other taps.
// Grid: x = split-K blocks that share the tiles, y = chunks of 32 or 64 channels, z = groups of 32 or 64 filters.
// Block: 512 threads; warpgroup r of the first three computes row r of the taps, up to 96 sums a thread; the fourth
// starts the TMA copies, masks dy and sums dbias. If there are few tiles and no mask, a block computes only one row of
// taps (y counts these, too), one tap a warpgroup: a third of the splits then fills the device, so that fewer sums have
// to be stored and added.
// Pipeline: a ring of slots; the barrier `full` opens when a tile is loaded, `ready` when it is masked, `empty` when it
// has been multiplied.
// Deterministic: a second kernel adds the splits in order. Their parts have the layout of the threads' registers.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/tma.cuh>
#include <gradus/backends/cuda/device/wgmma.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kWgradThreads = 512;

struct WgradBarriers {
  Mbarrier full[kMaxWgmmaSlots], ready[kMaxWgmmaSlots], empty[kMaxWgmmaSlots];
};

/// The addresses of the parts of a slot: x, with a pixel of zeros before it, dy and the mask.
struct WgradSlot {
  uint32_t x, dy, mask;
};

struct WgradMaps {
  CUtensorMap x, dy, mask, masked;
};

/// What a block computes, and the layout of its shared memory.
template <int kChannels, int kFilterBytes, int kTapRows>
struct WgmmaWgrad {
  static constexpr int kLineBytes = 2 * kChannels, kFilters = kFilterBytes / 2, kGroups = 3 / kTapRows;
  const WgmmaTiling& tiling;
  const uint32_t ring;
  const int chunk = static_cast<int>(blockIdx.y) / kGroups, first_channel = chunk * kChannels;
  const int first_tap_row = static_cast<int>(blockIdx.y) % kGroups;  // 0, unless a block computes one row of taps
  const int first_filter = static_cast<int>(blockIdx.z) * kFilters;

  __device__ WgmmaWgrad(const WgmmaTiling& tiling, const void* memory)
      : tiling(tiling), ring((shared_address(memory) + 1023) / 1024 * 1024 + 1024) {}
  __device__ WgradSlot slot(uint32_t i) const {
    const uint32_t x = ring + i * tiling.slot_bytes, dy = x + tiling.dy_offset;
    return {x, dy, dy + kWgmmaPixels * kFilterBytes};
  }
  /// Sets to zero what products read and TMA does not write: the pixel before x, and the pixels after x and dy.
  __device__ void zero_margins() const {
    for (int i = 0; i < tiling.slots; ++i) {
      const WgradSlot at = slot(i);
      const int pixels = (tiling.rows + kTapRows - 1) * tiling.pitch, dy_pixels = tiling.rows * tiling.pitch;
      zero(at.x - kLineBytes, at.x);
      zero(at.x + pixels * kLineBytes, at.x + (kWgmmaPixels + (kTapRows - 1) * tiling.pitch + 1) * kLineBytes);
      zero(at.dy + dy_pixels * kFilterBytes, at.dy + kWgmmaPixels * kFilterBytes);
    }
  }
  static __device__ void zero(uint32_t begin, uint32_t end) {
    for (uint32_t at = begin + threadIdx.x * 16; at < end; at += kWgradThreads * 16) store_shared(at, {});
  }

  template <bool kMasked>
  __device__ void load_tile(int tile, const WgradSlot& to, const WgradMaps& maps, Mbarrier& full) const {
    full.expect_tx(tiling.load_bytes);
    const WgmmaTiling::Tile at = tiling.tile_at(tile);
    tma_load(to.x, maps.x, full, first_channel, 0, at.row + first_tap_row - 1, at.image);
    tma_load(to.dy, maps.dy, full, first_filter, 0, at.row, at.image);
    if constexpr (kMasked) tma_load(to.mask, maps.mask, full, first_filter, 0, at.row, at.image);
  }
  __device__ void store_masked(int tile, const WgradSlot& from, const WgradMaps& maps) const {
    const WgmmaTiling::Tile at = tiling.tile_at(tile);
    tma_store(maps.masked, from.dy, first_filter, 0, at.row, at.image);
  }
};

/// What a thread of the fourth warpgroup processes: 8 neighbouring filters of every 16th or 32nd pixel of dy.
template <class T>
struct MaskLane {
  float sums[8] = {};
  const uint32_t lane = threadIdx.x % 128;

  /// Sets dy to 0 where mask > 0 does not hold (if kMasked), and adds `pixels` pixels of dy to `sums`.
  template <bool kMasked, int kFilterBytes>
  __device__ void mask_tile(const WgradSlot& slot, uint32_t pixels) {
#pragma unroll 4
    for (uint32_t at = lane * 16; at < pixels * kFilterBytes; at += 128 * 16) {
      uint4 dy = load_shared(slot.dy + at);
      if constexpr (kMasked) {
        const uint4 mask = load_shared(slot.mask + at);
        dy = {masked(dy.x, mask.x), masked(dy.y, mask.y), masked(dy.z, mask.z), masked(dy.w, mask.w)};
        store_shared(slot.dy + at, dy);
      }
      const uint32_t words[4] = {dy.x, dy.y, dy.z, dy.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[2 * i] += half_of(words[i]), sums[2 * i + 1] += half_of(words[i] >> 16);
    }
  }
  static __device__ uint4 load_shared(uint32_t from) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from));
    return v;
  }
  static __device__ float half_of(uint32_t word) {
    T value;
    value.bits = static_cast<uint16_t>(word);
    return value;
  }
  static __device__ uint32_t masked(uint32_t dy, uint32_t mask) {
    uint32_t counts;  // all bits of an element are set where mask > 0
    asm("set.gt.u32.%3x2 %0, %1, %2;" : "=r"(counts) : "r"(mask), "r"(0), "C"(kPtxType<T>));
    return dy & counts;
  }
  /// The first of this thread's 8 filters. It depends on the line, because TMA has swizzled the 16-byte pieces of a
  /// line by the line's address.
  template <int kFilterBytes>
  __device__ uint32_t filter() const {
    const uint32_t piece = lane * 16 % kFilterBytes / 16;
    return 8 * (piece ^ (kFilterBytes == 128 ? lane / 8 % 8 : lane / 8 % 4));
  }
};

/// The fourth warpgroup: loads tiles, masks dy, stores the masked dy and sums dbias.
template <bool kMasked, class T, int kChannels, int kFilterBytes, int kTapRows>
__device__ void feed(const WgmmaWgrad<kChannels, kFilterBytes, kTapRows>& block, const WgradMaps& maps,
                     WgradBarriers& barriers, bool stores, float* dbias, int filters) {
  constexpr int kPieces = kFilterBytes / 16;
  __shared__ float shared_sums[8 * kPieces][128 / kPieces];
  const WgmmaTiling& tiling = block.tiling;
  const auto tile_of = [](int i) { return static_cast<int>(blockIdx.x + i * gridDim.x); };
  const bool leader = threadIdx.x % 128 == 0;
  MaskLane<T> lane;
  if (leader)
    for (int i = 0; i < tiling.slots - 1 && tile_of(i) < tiling.tiles; ++i)
      block.template load_tile<kMasked>(tile_of(i), block.slot(i), maps, barriers.full[i]);
  for (int i = 0; tile_of(i) < tiling.tiles; ++i) {
    const int slot = i % tiling.slots, round = i / tiling.slots;
    barriers.full[slot].wait(round % 2);
    if (kMasked || dbias) lane.template mask_tile<kMasked, kFilterBytes>(block.slot(slot), tiling.rows * tiling.pitch);
    if constexpr (kMasked) fence_proxy_async();
    barriers.ready[slot].arrive();
    if (stores) asm volatile("bar.sync 1, 128;" ::: "memory");
    const int next = i + tiling.slots - 1, next_slot = next % tiling.slots;
    if (leader && stores) block.store_masked(tile_of(i), block.slot(slot), maps);
    if (leader && tile_of(next) < tiling.tiles) {  // into the slot of tile i - 1
      if (i > 0) barriers.empty[next_slot].wait((i - 1) / tiling.slots % 2);
      tma_store_wait_read<1>();
      block.template load_tile<kMasked>(tile_of(next), block.slot(next_slot), maps, barriers.full[next_slot]);
    }
    __syncwarp();
  }
  if (stores && leader) tma_store_wait_read<0>();
  if (!dbias) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t filter = lane.template filter<kFilterBytes>();
    shared_sums[filter + i][lane.lane / kPieces] = lane.sums[i];
  }
  asm volatile("bar.sync 1, 128;" ::: "memory");
  const int filter = static_cast<int>(lane.lane);
  if (filter >= 8 * kPieces || filter >= filters) return;
  float sum = 0;
  for (int i = 0; i < 128 / kPieces; ++i) sum += shared_sums[filter][i];
  dbias[filter] = sum;
}

/// A warpgroup that multiplies: computes dw of the taps (r, 0 … 2) or, in a block with one row of taps, of one tap.
template <class T, int kChannels, int kFilterBytes, int kTapRows>
__device__ void multiply(const WgmmaWgrad<kChannels, kFilterBytes, kTapRows>& block, WgradBarriers& barriers,
                         float (&sums)[kTapRows * kChannels / 8][4], int group) {
  constexpr int kLineBytes = 2 * kChannels;
  const WgmmaTiling& tiling = block.tiling;
#pragma unroll
  for (int i = 0; i < kTapRows * kChannels / 2; ++i) sums[i / 4][i % 4] = 0;
  for (int i = 0; static_cast<int>(blockIdx.x + i * gridDim.x) < tiling.tiles; ++i) {
    const int slot = i % tiling.slots;
    const WgradSlot at = block.slot(slot);
    // With 32 filters, both halves of the 64 rows are the same filters.
    uint64_t a = matrix_descriptor<kFilterBytes>(at.dy, 0);
    uint64_t b =
        matrix_descriptor<kLineBytes>(at.x + (group * (kTapRows == 3 ? tiling.pitch : 1) - 1) * kLineBytes, kLineBytes);
    barriers.ready[slot].wait(i / tiling.slots % 2);
    wgmma_fence();
#pragma unroll
    for (int depth = 0; depth < kWgmmaPixels; depth += 16) {
      wgmma<T, true, true>(sums, a, b, true);
      a += kFilterBytes, b += kLineBytes;  // 16 lines, in units of 16 bytes
    }
    wgmma_commit();
    wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) barriers.empty[slot].arrive();
  }
}

/// Where threads store their sums. A split is an array (groups of filters, chunks of channels, r, columns / 8, threads
/// that have filters) of vectors of four sums, at (filter, column), (filter, column + 1), and the same columns of
/// filter + 8; dbias follows it.
template <int kChannels, int kFilters>
struct WgradParts {
  static constexpr uint32_t kThreads = 2 * kFilters, kColumns = 3 * kChannels / 8;
  uint32_t chunks, vecs, of_split;  // chunks of channels; vectors of sums of a split, without and with dbias

  WgradParts(int K, int C, bool bias)
      : chunks(ceil_div(C, kChannels)), vecs(ceil_div(K, kFilters) * chunks * 3 * kColumns * kThreads),
        of_split(vecs + (bias ? K / 4 : 0)) {}
  __device__ uint32_t index(uint32_t group, uint32_t chunk, uint32_t r, uint32_t j, uint32_t thread) const {
    return (((group * chunks + chunk) * 3 + r) * kColumns + j) * kThreads + thread;
  }
};

template <class T, int kChannels, int kFilterBytes, int kTapRows, bool kMasked>
__global__ void __launch_bounds__(kWgradThreads, 1)
    wgmma_wgrad_kernel(const __grid_constant__ WgradMaps maps, const WgmmaTiling tiling, bool stores, bool sums_bias,
                       WgradParts<kChannels, kFilterBytes / 2> parts, float4* partial, int filters) {
  extern __shared__ char memory[];
  __shared__ WgradBarriers barriers;
  const WgmmaWgrad<kChannels, kFilterBytes, kTapRows> block(tiling, memory);
  launch_dependents();
  block.zero_margins();
  if (threadIdx.x == 0) {
    prefetch(maps.x), prefetch(maps.dy);
    if constexpr (kMasked) prefetch(maps.mask);
    for (int i = 0; i < tiling.slots; ++i)
      barriers.full[i].init(), barriers.ready[i].init(128), barriers.empty[i].init(3);
  }
  fence_proxy_async();
  __syncthreads();
  wait_for_grid();
  const int group = threadIdx.x / 128;
  partial += int64_t{blockIdx.x} * parts.of_split;
  if (group == 3) {
    float* const dbias =
        sums_bias && blockIdx.y == 0 ? reinterpret_cast<float*>(partial + parts.vecs) + block.first_filter : nullptr;
    return feed<kMasked, T>(block, maps, barriers, stores && blockIdx.y == 0, dbias, filters - block.first_filter);
  }
  float sums[kTapRows * kChannels / 8][4];
  multiply<T>(block, barriers, sums, group);
  const uint32_t thread = threadIdx.x % 128;
  if (thread >= parts.kThreads) return;
  const int r = kTapRows == 3 ? group : block.first_tap_row, first = kTapRows == 3 ? 0 : group * kChannels / 8;
#pragma unroll
  for (int j = 0; j < kTapRows * kChannels / 8; ++j)
    partial[parts.index(blockIdx.z, block.chunk, r, first + j, thread)] = {sums[j][0], sums[j][1], sums[j][2],
                                                                           sums[j][3]};
}

/// Adds the sums of all splits, and stores dw and dbias. kReduceLanes threads share a vector of four sums.
constexpr int kReduceLanes = 16, kReduceVecs = 16;
template <class T, int kChannels, int kFilters>
__global__ void __launch_bounds__(kReduceLanes* kReduceVecs)
    wgmma_reduce_kernel(WgradParts<kChannels, kFilters> parts, const float4* partial, int splits, Strides4 strides,
                        int K, int C, T* dw, T* dbias, int64_t bias_step) {
  __shared__ float4 shared[kReduceLanes][kReduceVecs];
  const uint32_t slot = threadIdx.x % kReduceVecs, lane = threadIdx.x / kReduceVecs;
  uint32_t at = blockIdx.x * kReduceVecs + slot;
  const auto add = [](float4& to, const float4& from) {
    to.x += from.x, to.y += from.y, to.z += from.z, to.w += from.w;
  };
  float4 sum = {};
  launch_dependents();
  wait_for_grid();
  if (at < parts.of_split) {
#pragma unroll 8
    for (int split = lane; split < splits; split += kReduceLanes)
      add(sum, partial[int64_t{split} * parts.of_split + at]);
  }
  shared[lane][slot] = sum;
  for (int width = kReduceLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (lane < width) add(shared[lane][slot], shared[lane + width][slot]);
  }
  if (lane > 0 || at >= parts.of_split) return;
  sum = shared[0][slot];
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
  if (at >= parts.vecs) {
#pragma unroll
    for (int i = 0; i < 4; ++i) dbias[((at - parts.vecs) * 4 + i) * bias_step] = T(values[i]);
    return;
  }
  const uint32_t thread = at % parts.kThreads, j = at / parts.kThreads % parts.kColumns;
  at /= parts.kThreads * parts.kColumns;
  const uint32_t r = at % 3, chunk = at / 3 % parts.chunks, group = at / 3 / parts.chunks;
  const int column = 8 * j + thread % 4 * 2, s = column / kChannels, c = chunk * kChannels + column % kChannels;
  const int k = group * kFilters + thread / 32 * 16 + thread % 32 / 4;
  T* const to = dw + k * strides.n + c * strides.c + r * strides.h + s * strides.w;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (k + i / 2 * 8 < K && c < C) to[i / 2 * 8 * strides.n + i % 2 * strides.c] = T(values[i]);
}

template <class T, int kChannels, int kFilterBytes, int kTapRows>
void launch_wgrad(const ConvCall& call, const Launch& launch) {
  const ConvProblem& problem = call.problem;
  const auto& tiling = call.tiling<WgmmaTiling>();
  const auto K = static_cast<int>(problem.w.shape[0]), C = static_cast<int>(problem.w.shape[1]);
  const auto map_of_dy = [&](const Address& data) {
    return image_map(data ? data.data : call.out.data, problem.dtype, problem.y.shape, kFilterBytes / 2, tiling.pitch,
                     tiling.rows);
  };
  const WgradMaps maps{
      image_map(call.in.data, problem.dtype, problem.x.shape, kChannels, tiling.pitch, tiling.rows + kTapRows - 1),
      map_of_dy(call.out), map_of_dy(call.mask), map_of_dy(call.masked)};
  const auto kernel = call.mask ? wgmma_wgrad_kernel<T, kChannels, kFilterBytes, 3, true>
                                : wgmma_wgrad_kernel<T, kChannels, kFilterBytes, kTapRows, false>;
  const WgradParts<kChannels, kFilterBytes / 2> parts(K, C, static_cast<bool>(call.bias));
  auto* const partial = static_cast<float4*>(call.partial());
  const uint32_t splits = call.plan.split_k;
  launch.with({.shared_bytes = call.plan.shared_bytes, .early = true}, kernel,
              dim3(splits, parts.chunks * (3 / kTapRows), ceil_div(K, kFilterBytes / 2)), kWgradThreads, maps, tiling,
              static_cast<bool>(call.masked), static_cast<bool>(call.bias), parts, partial, K);
  launch.with({.early = true}, wgmma_reduce_kernel<T, kChannels, kFilterBytes / 2>,
              ceil_div(parts.of_split, kReduceVecs), kReduceLanes * kReduceVecs, parts, partial,
              static_cast<int>(splits), Strides4(problem.w.strides), K, C, static_cast<T*>(call.weight),
              static_cast<T*>(call.bias), call.gemm.bias_step);
}

}  // namespace

void wgmma_wgrad(const ConvCall& call, const Launch& launch) {
  visit_half(call.problem.dtype, [&]<class T>() {
    const bool narrow = call.tiling<WgmmaTiling>().line_bytes == 64;
    if (call.plan.tile.rows == 32)
      narrow ? launch_wgrad<T, 32, 64, 3>(call, launch) : launch_wgrad<T, 64, 64, 3>(call, launch);
    else if (call.plan.tile.columns == 3 * 64) launch_wgrad<T, 64, 128, 1>(call, launch);
    else narrow ? launch_wgrad<T, 32, 128, 3>(call, launch) : launch_wgrad<T, 64, 128, 3>(call, launch);
  });
}

}  // namespace gradus::cuda_detail
