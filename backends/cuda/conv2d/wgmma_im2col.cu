// conv2d fprop, dgrad and wgrad, half types on tensor cores of Hopper (wgmma): filters up to 16x16, stride 1 or 2, any
// padding smaller than the filter.
//   y[n,p,q,k]  = sum over r,s,c of x[n, p stride + r - padding, …, c] w[k,r,s,c], then bias and ReLU
//   dx[n,h,w,c] = sum over k and the r,s of a phase (ConvPhase) of dy[n,p,q,k] w[k,r,s,c]
//   dw[k,r,s,c] = sum over n,p,q of dy[n,p,q,k] x[n, p stride + r - padding, …, c];  x, w, y: NHWC
// An implicit GEMM whose image operand TMA loads in its im2col mode: a box is what one tap reads for neighbouring
// positions (n,p,q), across rows and images, with zeros outside of the images. Tiles are therefore full for images of
// any size. An infinity in dy at an edge, multiplied by these zeros, becomes a NaN in dw.
// Tile: rows are 128 positions (wgrad: 128 filters), columns 64 or 128 channels of the result (wgrad: one or two boxes
// of 64 channels of a tap); a step of the depth is 64 channels of a tap (wgrad: 64 positions).
// Grid: x = tiles of rows, each of them a cluster of blocks that split the depth, y = tiles of columns, z = phases
// (wgrad: split-K parts).  Block: 2 warpgroups, which multiply 64 rows each, and one more warp, whose first lane starts
// the TMA copies; a thread of a warpgroup computes 32 or 64 results.
// Pipeline: a ring of slots; the barrier `full` opens when a step is loaded, `empty` when it has been multiplied.
// Deterministic: the sums of a cluster are added in the order of its blocks, and parts by conv2d.cu.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/cluster.cuh>
#include <gradus/backends/cuda/device/tma.cuh>
#include <gradus/backends/cuda/device/wgmma.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kConsumers = 256, kIm2colThreads = kConsumers + 32;
constexpr uint32_t kBoxBytes = kIm2colBox * 2 * kIm2colBox, kRowBytesOfSlot = kIm2colRows * 2 * kIm2colBox;

struct Im2colBarriers {
  Mbarrier full[kMaxWgmmaSlots], empty[kMaxWgmmaSlots];
};

/// Where results are stored. If `partial` is not null, the float32 parts of split-K are stored there. Otherwise results
/// are stored in `to`, which is an image or, for wgrad, `rows` filters of `pitch` elements.
template <class T>
struct Im2colResult {
  T* to;
  float* partial;
  const T* bias;
  int64_t bias_step;
  bool relu;
  int rows, channels, pitch;  // rows: positions or filters; channels of a position, or of a tap
  int height, width;          // of the result's images
};

/// What a block computes: its tile of rows, and its part of the depth.
template <ConvPass kPass>
struct Im2colWork {
  static constexpr bool kOfWeight = kPass == ConvPass::backward_weight;
  const Im2colTiling& tiling;
  const ConvPhase::Axis &h, &w;
  const uint32_t rank, tile, part;  // rank in the cluster; tile of rows; split-K part
  int begin, end;                   // steps of the depth

  __device__ explicit Im2colWork(const Im2colTiling& tiling)
      : tiling(tiling), h(tiling.h[kOfWeight ? 0 : blockIdx.z / tiling.phases_w]),
        w(tiling.w[kOfWeight ? 0 : blockIdx.z % tiling.phases_w]), rank(blockIdx.x % tiling.cluster),
        tile(blockIdx.x / tiling.cluster), part(kOfWeight ? blockIdx.z : 0) {
    const int steps = kOfWeight ? (tiling.positions + kIm2colBox - 1) / kIm2colBox : h.count * w.count * tiling.chunks;
    const auto splits = static_cast<int>(tiling.cluster * (kOfWeight ? gridDim.z : 1));
    const int split = static_cast<int>(part * tiling.cluster + rank), length = (steps + splits - 1) / splits;
    begin = min(split * length, steps), end = min(begin + length, steps);
  }
  struct Position {
    int image, i, j;
  };
  __device__ Position position(uint32_t index) const {
    uint32_t i = tiling.width.split(index);
    const uint32_t image = tiling.height.split(i);
    return {static_cast<int>(image), static_cast<int>(i), static_cast<int>(index)};
  }
  /// Starts the copy of a box: what tap (r, s) of the phase reads for the positions from `at` on, in the 64 channels
  /// from `channel` on.
  __device__ void load_im2col(uint32_t to, const CUtensorMap& map, const Mbarrier& full, int channel,
                              const Position& at, int r, int s) const {
    tma_load_im2col(to, map, full, channel, tiling.lower[1] + at.j * tiling.stride[1],
                    tiling.lower[0] + at.i * tiling.stride[0], at.image, w.origin + s * w.step, h.origin + r * h.step);
  }
};

/// The current slot of the ring.
struct Im2colRing {
  const uint32_t begin, slot_bytes;
  const int slots;
  int slot = 0;
  uint32_t parity = 0;  // of the current round

  __device__ uint32_t address() const { return begin + slot * slot_bytes; }
  __device__ void next() {
    if (++slot == slots) slot = 0, parity ^= 1;
  }
};

/// Starts all copies of the block, from one thread. `rows` and `columns` describe the two operands.
template <ConvPass kPass, int kColumns>
__device__ void load_steps(const Im2colWork<kPass>& work, const CUtensorMap& rows, const CUtensorMap& columns,
                           Im2colRing ring, Im2colBarriers& barriers) {
  constexpr int kBoxes = kColumns / kIm2colBox;
  const Im2colTiling& tiling = work.tiling;
  const int first_row = static_cast<int>(work.tile) * kIm2colRows, column = static_cast<int>(blockIdx.y) * kColumns;
  const auto wait_for_slot = [&]() -> Mbarrier& {
    barriers.empty[ring.slot].wait(ring.parity ^ 1);  // returns at once in the first round
    barriers.full[ring.slot].expect_tx(kIm2colSlotBytes<kColumns>);
    return barriers.full[ring.slot];
  };
  if constexpr (work.kOfWeight) {
    int channel[kBoxes], r[kBoxes], s[kBoxes];  // columns beyond the last tap are not stored
    for (int i = 0; i < kBoxes; ++i) {
      const int box = static_cast<int>(blockIdx.y) * kBoxes + i, tap = box / tiling.chunks;
      channel[i] = box % tiling.chunks * kIm2colBox, r[i] = tap / tiling.taps_w, s[i] = tap % tiling.taps_w;
    }
    for (int step = work.begin; step < work.end; ++step, ring.next()) {
      Mbarrier& full = wait_for_slot();
      const int position = step * kIm2colBox;
      const auto at = work.position(position);
      for (int i = 0; i < kIm2colRows / kIm2colBox; ++i)
        tma_load(ring.address() + i * kBoxBytes, rows, full, first_row + i * kIm2colBox, position, 0, 0);
#pragma unroll
      for (int i = 0; i < kBoxes; ++i)
        work.load_im2col(ring.address() + kRowBytesOfSlot + i * kBoxBytes, columns, full, channel[i], at, r[i], s[i]);
    }
  } else {
    const auto at = work.position(first_row);
    const int tap = work.begin / tiling.chunks;
    int chunk = work.begin % tiling.chunks, r = tap / max(work.w.count, 1), s = tap % max(work.w.count, 1);
    for (int step = work.begin; step < work.end; ++step, ring.next()) {
      Mbarrier& full = wait_for_slot();
      const uint32_t b = ring.address() + kRowBytesOfSlot;
      const int channel = chunk * kIm2colBox;
      work.load_im2col(ring.address(), rows, full, channel, at, r, s);
      const int rs = (work.h.first + r * work.h.period) * tiling.taps_w + work.w.first + s * work.w.period;
      if constexpr (kPass == ConvPass::forward) {
        tma_load(b, columns, full, channel, column, rs, 0);
      } else {
        for (int i = 0; i < kBoxes; ++i)
          tma_load(b + i * kBoxBytes, columns, full, column + i * kIm2colBox, channel, rs, 0);
      }
      if (++chunk == tiling.chunks) chunk = 0, ++s;
      if (s == work.w.count) s = 0, ++r;
    }
  }
}

/// sums = the products of all steps. wgrad's row operand, and the column operand of wgrad and dgrad, are transposed:
/// the depth runs across their lines.
template <class T, ConvPass kPass, int kColumns>
__device__ void multiply(const Im2colWork<kPass>& work, float (&sums)[kColumns / 8][4], Im2colRing ring,
                         Im2colBarriers& barriers) {
  constexpr bool kTransposeA = kPass == ConvPass::backward_weight, kTransposeB = kPass != ConvPass::forward;
  constexpr int kStepA = kTransposeA ? 128 : 2, kStepB = kTransposeB ? 128 : 2;  // 16 depths, in units of 16 bytes
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sums[i / 4][i % 4] = 0;
  int before = -1;  // the slot of the previous step
  for (int step = work.begin; step < work.end; ++step, ring.next()) {
    uint64_t a = matrix_descriptor<128>(ring.address() + threadIdx.x / 128 * kBoxBytes);
    uint64_t b = matrix_descriptor<128>(ring.address() + kRowBytesOfSlot, kTransposeB ? kBoxBytes : 16);
    barriers.full[ring.slot].wait(ring.parity);
    wgmma_fence();
#pragma unroll
    for (int depth = 0; depth < kIm2colBox; depth += 16) {
      wgmma<T, kTransposeA, kTransposeB>(sums, a, b, true);
      a += kStepA, b += kStepB;
    }
    wgmma_commit();
    wgmma_wait<1>();  // the previous step is done
    if (before >= 0 && threadIdx.x % 32 == 0) barriers.empty[before].arrive();
    before = ring.slot;
  }
  wgmma_wait<0>();
}

/// Stores a warp's 16 rows from `row` on and 32 columns from `column` on of the tile, with bias and ReLU. A lane stores
/// 16 bytes of neighbouring channels.
template <class T, ConvPass kPass, int kColumns>
__device__ void store_epilogue(const Im2colWork<kPass>& work, const Im2colResult<T>& result, float (&sums)[4][4],
                               int row, int column) {
  const Im2colTiling& tiling = work.tiling;
  row += static_cast<int>(work.tile * kIm2colRows + threadIdx.x % 32 / 4);
  column += static_cast<int>(blockIdx.y) * kColumns;
  int tap = 0;
  if constexpr (work.kOfWeight) {
    tap = column / kIm2colBox / tiling.chunks, column -= tap * tiling.chunks * kIm2colBox;
    if (tap * result.channels >= result.pitch) return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half, row += 8) {
    bool inside = row < result.rows;
    int64_t at = int64_t{row} * result.pitch + tap * result.channels;
    if constexpr (!work.kOfWeight) {
      const auto position = work.position(row);
      const int h = work.h.at + position.i * tiling.out_stride[0], w = work.w.at + position.j * tiling.out_stride[1];
      inside = inside && h < result.height && w < result.width;
      at = ((int64_t{position.image} * result.height + h) * result.width + w) * result.channels;
    }
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float value[2] = {sums[j][2 * half], sums[j][2 * half + 1]};
      const int channel = column + 8 * j + static_cast<int>(threadIdx.x % 4) * 2;
      if (inside && channel < result.channels) {
        if (result.bias)
          value[0] += result.bias[channel * result.bias_step],
              value[1] += result.bias[(channel + 1) * result.bias_step];
        if (result.partial)
          *reinterpret_cast<float2*>(result.partial + int64_t{work.part} * result.rows * result.pitch + at +
                                     channel) = {value[0], value[1]};
      }
      if (result.relu) value[0] = value[0] < 0 ? 0 : value[0], value[1] = value[1] < 0 ? 0 : value[1];  // a NaN stays
      words[j] = pair(T(value[0]), T(value[1]));
    }
    transpose_quad(words);
    const int channel = column + static_cast<int>(threadIdx.x % 4) * 8;
    if (inside && channel < result.channels && !result.partial)
      *reinterpret_cast<uint4*>(result.to + at + channel) = {words[0], words[1], words[2], words[3]};
  }
}

/// Adds the sums of the blocks of a cluster in the order of their ranks, and stores this block's share of the results.
/// The tile is divided into parts of 16 x 32 results, which the warps of all blocks take in turn.
template <class T, ConvPass kPass, int kColumns>
__device__ void reduce_cluster(const Im2colWork<kPass>& work, const Im2colResult<T>& result,
                               const float (&sums)[kColumns / 8][4], uint32_t ring) {
  const auto blocks = static_cast<int>(work.tiling.cluster), lane = static_cast<int>(threadIdx.x % 32);
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");  // both warpgroups have multiplied all slots
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j)
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(ring + (j * kConsumers + threadIdx.x) * 16),
                 "f"(sums[j][0]), "f"(sums[j][1]), "f"(sums[j][2]), "f"(sums[j][3])
                 : "memory");
  cluster_sync();
  for (int i = static_cast<int>(work.rank + threadIdx.x / 32 * blocks); i < kColumns / 4; i += 8 * blocks) {
    const int warp = i % 8, quad = i / 8;
    float total[4][4] = {};
#pragma unroll 4
    for (int block = 0; block < blocks; ++block)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 v = load_cluster(ring + ((4 * quad + j) * kConsumers + 32 * warp + lane) * 16, block);
        total[j][0] += v.x, total[j][1] += v.y, total[j][2] += v.z, total[j][3] += v.w;
      }
    store_epilogue<T, kPass, kColumns>(work, result, total, 16 * warp, 32 * quad);
  }
  cluster_sync();  // a block may not end while other blocks read its shared memory
}

template <class T, ConvPass kPass, int kColumns>
__global__ void __launch_bounds__(kIm2colThreads, 2)
    wgmma_im2col_kernel(const __grid_constant__ CUtensorMap rows, const __grid_constant__ CUtensorMap columns,
                        const __grid_constant__ Im2colTiling tiling, const Im2colResult<T> result) {
  extern __shared__ char memory[];
  __shared__ Im2colBarriers barriers;
  const uint32_t ring = (shared_address(memory) + 1023) / 1024 * 1024;
  launch_dependents();
  if (threadIdx.x == 0) {
    prefetch(rows), prefetch(columns);
    for (int i = 0; i < tiling.slots; ++i) barriers.full[i].init(), barriers.empty[i].init(kConsumers / 32);
  }
  __syncthreads();
  wait_for_grid();
  const Im2colWork<kPass> work(tiling);
  const Im2colRing slots{ring, kIm2colSlotBytes<kColumns>, tiling.slots};
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) load_steps<kPass, kColumns>(work, rows, columns, slots, barriers);
    return;
  }
  float sums[kColumns / 8][4];
  multiply<T, kPass, kColumns>(work, sums, slots, barriers);
  if (tiling.cluster > 1) return reduce_cluster<T, kPass, kColumns>(work, result, sums, ring);
#pragma unroll
  for (int j = 0; j < kColumns / 8; j += 4)
    store_epilogue<T, kPass, kColumns>(work, result, reinterpret_cast<float(&)[4][4]>(sums[j]),
                                       static_cast<int>(threadIdx.x / 32) * 16, 8 * j);
}

template <class T, ConvPass kPass, int kColumns>
void launch_im2col(const ConvCall& call, const Launch& launch) {
  const ConvProblem& p = call.problem;
  const auto& tiling = call.tiling<Im2colTiling>();
  constexpr bool kOfWeight = kPass == ConvPass::backward_weight;
  const Shape &in = p.in().shape, &out = p.out().shape, &filters = p.w.shape;
  const auto size = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  int upper[2];  // the upper corner of im2col_map() for which boxes end at the last position
  for (int i = 0; i < 2; ++i)
    upper[i] = (static_cast<int>((i == 0 ? tiling.height : tiling.width).divisor) - 1) * tiling.stride[i] + 1 -
               static_cast<int>(in[2 + i]) + tiling.lower[i];
  const cuuint64_t channels = size(in[1]), width = size(in[3]), height = size(in[2]);
  const CUtensorMap im2col =
      im2col_map(call.in.data, p.dtype, {channels, width, height, size(in[0])},
                 {2 * channels, 2 * channels * width, 2 * channels * width * height},
                 {tiling.lower[1], tiling.lower[0]}, {upper[1], upper[0]},
                 {cuuint32_t(tiling.stride[1]), cuuint32_t(tiling.stride[0])}, kOfWeight ? kIm2colBox : kIm2colRows);
  const cuuint64_t C = size(filters[1]), K = size(filters[0]), taps = size(filters[2] * filters[3]);
  const CUtensorMap dense =
      kOfWeight ? tensor_map(call.out.data, p.dtype, {K, size(tiling.positions), 1, 1}, {2 * K, 2 * K, 2 * K},
                             {kIm2colBox, kIm2colBox, 1, 1})
                : tensor_map(call.weight.data, p.dtype, {C, K, taps, 1}, {2 * taps * C, 2 * C, 2 * taps * C},
                             {kIm2colBox, kPass == ConvPass::forward ? kColumns : kIm2colBox, 1, 1});
  const bool parts = call.plan.split_k > 1;
  const Im2colResult<T> result = {.to = kOfWeight ? call.weight : call.out,
                                  .partial = parts ? static_cast<float*>(call.partial()) : nullptr,
                                  .bias = kOfWeight ? nullptr : static_cast<const T*>(call.bias),
                                  .bias_step = call.gemm.bias_step,
                                  .relu = p.relu,
                                  .rows = static_cast<int>(kOfWeight ? filters[0] : tiling.positions),
                                  .channels = static_cast<int>(kOfWeight ? filters[1] : out[1]),
                                  .pitch = static_cast<int>(kOfWeight ? taps * C : 0),
                                  .height = static_cast<int>(out[2]),
                                  .width = static_cast<int>(out[3])};
  launch.with({call.plan.shared_bytes, tiling.cluster, true}, wgmma_im2col_kernel<T, kPass, kColumns>,
              dim3(tiling.row_tiles * tiling.cluster, tiling.column_tiles, tiling.z), kIm2colThreads,
              kOfWeight ? dense : im2col, kOfWeight ? im2col : dense, tiling, result);
  if (parts) add_parts(call, launch, true);
}

void wgmma_im2col(const ConvCall& call, const Launch& launch) {
  visit_half(call.problem.dtype, [&]<class T>() {
    const auto with = [&]<ConvPass kPass>() {
      if (call.plan.tile.columns == 64) launch_im2col<T, kPass, 64>(call, launch);
      else launch_im2col<T, kPass, 128>(call, launch);
    };
    switch (call.problem.pass) {
      case ConvPass::forward: return with.template operator()<ConvPass::forward>();
      case ConvPass::backward_data: return with.template operator()<ConvPass::backward_data>();
      default: return with.template operator()<ConvPass::backward_weight>();
    }
  });
}

}  // namespace

bool launch_wgmma_im2col(const ConvOperands& call) { return launch_phases(wgmma_im2col, call); }

}  // namespace gradus::cuda_detail
