// conv2d fprop and wgrad, few channels (C < 8), K a multiple of 8, no groups, on tensor cores: half types with
// C R S <= 64, or fprop of TF32 with C R S <= 32; y NHWC.
//   fprop  y[(n,p,q), k] = relu(bias[k] + sum over t = (c,r,s) of x[(n,p,q), t] w[k,t])
//   wgrad  dw[k,t] = sum over pixels (n,p,q) of dy[(n,p,q), k] x[(n,p,q), t];  dbias is one more column t, of ones.
// In fprop's implicit GEMM all taps t of a pixel together form the depth, in wgrad's they form the columns.
// Tile: whole rows of y, which is dense. A block copies the rows of x that a tile reads into shared memory; its warps
// load their fragments from there, element by element.
// Grid: x = blocks that share the tiles (wgrad: split-K), y = groups of 32 or 64 filters.  Block: 128 threads; a warp
// multiplies 16 pixels at a time (mma.m16n8k16, TF32: m16n8k8), and a thread keeps 4 sums of each block of 16 pixels x
// 8 filters (wgrad: 16 filters x 8 taps). In fprop, weights and bias stay in registers for all tiles of the block.
// Pipeline: the rows of x for the next tile are copied by cp.async while a tile is computed. In wgrad, dy and the mask
// are loaded from global memory straight into fragments, each element once and one step ahead: a lane loads
// neighbouring filters of four pixels, and combines pairs of pixels in registers.
// Deterministic: in fprop, one warp computes the whole of each sum. In wgrad, the partial sums of the warps of a block
// are added in order, and those of the blocks by conv2d.cu.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kFewChannelThreads = 32 * kFewChannelWarps;
constexpr int kFewChannelStep = 16;  // pixels that a warp multiplies at a time

/// The argument of the kernels: the tiles and the convolution.
struct FewChannelArgs : FewChannelTiling {
  ImplicitGemm g;  // describes fprop, from x to y

  /// A tile: its image, its first row and first pixel of y, and its number of pixels.
  struct Tile {
    uint32_t image, row, first, count;
  };
  __device__ Tile tile_at(uint32_t index) const {
    Tile tile;
    tile.row = index;
    tile.image = tiles.split(tile.row);
    tile.row *= tile_rows;
    tile.first = (tile.image * g.out_height.divisor + tile.row) * g.out_width.divisor;
    tile.count = min(tile_rows, g.out_height.divisor - tile.row) * g.out_width.divisor;
    return tile;
  }
  /// Where the taps of a pixel of the tile begin, in bytes from the beginning of a buffer.
  __device__ uint32_t pixel_at(uint32_t pixel, const Tile& tile) const {
    uint32_t column = pixel;
    const uint32_t row = g.out_width.split(column);
    return pixel < tile.count ? origin + row * row_step + column * column_step : zeros;
  }
  /// The distance in bytes of a tap from pixel_at(). An index beyond the last tap gets the distance of the first tap.
  __device__ uint32_t tap_at(uint32_t index) const {
    if (index >= g.depth) return 0;
    const ImplicitGemm::Place at = g.place_of_tap(index);
    return at.outer * tap_channel + at.h * tap_row + at.w * tap_column;
  }
  /// Starts to copy the lines of x that a tile reads; finish_copies() waits for them.
  template <class T>
  __device__ void copy_lines(const Tile& tile, const T* x, char* buffer) const {
    const int first_row = static_cast<int>(tile.row) * g.step[0] + g.origin[0];
    x += tile.image * g.in.n;
    for (uint32_t i = threadIdx.x; i < lines * copies.divisor; i += kFewChannelThreads) {
      uint32_t at = i;
      const uint32_t line = copies.split(at);
      uint32_t plane = line;
      const int row = first_row + static_cast<int>(planes.split(plane));
      const bool inside = within(row, g.in_height);
      const T* const from = inside ? x + row * g.in.h + plane * g.in.c + at * (copy_bytes / sizeof(T)) : x;
      char* const to = buffer + line * pitch + front + at * copy_bytes;
      switch (copy_bytes) {
        case 16: cp_async<16>(to, from, inside); break;
        case 8: cp_async<8>(to, from, inside); break;
        case 4: cp_async<4>(to, from, inside); break;
        default: *reinterpret_cast<T*>(to) = inside ? *from : T(0.0f);
      }
    }
  }
};

/// Waits until the copies of all threads of the block have arrived.
__device__ void finish_copies() {
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
}

/// Sets both buffers to zero. Copies never overwrite the zeros between the lines, which are the padding.
__device__ void clear_buffers(const FewChannelArgs& args, Vec16* memory) {
  for (uint32_t i = threadIdx.x; i < 2 * args.size / sizeof(Vec16); i += kFewChannelThreads) memory[i] = {};
  __syncthreads();
}

/// The element that a tap reads for a pixel.
template <class T>
__device__ T element(const char* pixel, uint32_t tap) {
  return *reinterpret_cast<const T*>(pixel + tap);
}

// ---- fprop ----

constexpr int kGroup = kFewChannelFilters;

/// Packs two sums into a word of two elements, rounded to nearest, after ReLU if `relu` is true.
template <class T>
__device__ uint32_t round_pair(float low, float high, bool relu) {
  uint32_t word = 0;
#if __CUDA_ARCH__ >= 800
  if (relu) asm("cvt.rn.relu.%3x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low), "C"(kPtxType<T>));
  else asm("cvt.rn.%3x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low), "C"(kPtxType<T>));
#endif
  return word;
}

/// Packs 4 bytes of depth into a word: two half-type elements, or one element rounded to TF32.
template <class T>
__device__ uint32_t word_of(const T (&elements)[4 / sizeof(T)]) {
  if constexpr (sizeof(T) == 2) return pair(elements[0], elements[1]);
  else return __float_as_uint(multiplicand<MathMode::tf32>(elements[0]));
}

/// The filter to which element e of a lane's sums of the j-th product belongs, as an index in its group; `part` is the
/// lane's index among the four lanes of a pixel. The filters are permuted so that a lane's sums form whole vectors of
/// neighbouring filters, next to those of the pixel's other lanes.
template <class T>
__device__ int filter_of(int j, int part, int e) {
  return sizeof(T) == 2 ? part * 8 + j * 2 + e : j / 2 * 16 + part * 4 + j % 2 * 2 + e;
}

template <class T, int kSteps, int kGroups>
__global__ void __launch_bounds__(kFewChannelThreads, kFewChannelBlocks)
    few_channel_mma_fprop_kernel(FewChannelArgs args, const T* __restrict__ x, const T* __restrict__ weight,
                                 const T* __restrict__ bias, bool relu, T* __restrict__ y) {
  extern __shared__ Vec16 memory[];
  char* const buffers = reinterpret_cast<char*>(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
  const uint32_t filters = args.g.rows, first_filter = blockIdx.y * kGroup * kGroups;

  clear_buffers(args, memory);
  args.copy_lines(args.tile_at(blockIdx.x), x, buffers);

  // The taps of a lane are two words: 2 part + {0, 1, 8, 9} in a step of 16 taps (half types), part + {0, 4} in a step
  // of 8 (TF32).
  constexpr int kOfWord = 4 / sizeof(T), kDepth = 8 * kOfWord;
  const auto tap_number = [&](int step, int i) {
    return kDepth * step + kOfWord * part + i % kOfWord + i / kOfWord * kDepth / 2;
  };
  uint32_t taps[kSteps][2 * kOfWord], inside[2] = {};
  uint32_t weights[kSteps][4 * kGroups][2];
  float biases[kGroups][8];
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 2 * kOfWord; ++i) taps[step][i] = args.tap_at(tap_number(step, i));
#pragma unroll
  for (int i = 0; i < 2 * kOfWord; ++i)  // only the last step may reach beyond the taps
    if (tap_number(kSteps - 1, i) < args.g.depth)
      inside[i / kOfWord] |= kOfWord == 1 ? ~0u : 0xffffu << i % kOfWord * 16;
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int64_t offsets[kOfWord];
      bool exist[kOfWord];
#pragma unroll
      for (int e = 0; e < kOfWord; ++e) {
        const uint32_t tap = tap_number(step, kOfWord * i + e);
        exist[e] = tap < args.g.depth;
        offsets[e] = args.g.weight_offset(0, args.g.place_of_tap(tap));
      }
#pragma unroll
      for (int j = 0; j < 4 * kGroups; ++j) {  // a lane has column number `row` of each product
        const uint32_t filter = first_filter + j / 4 * kGroup + filter_of<T>(j % 4, row / 2, row % 2);
        const T* const from = weight + filter * args.g.weight.n;
        T elements[kOfWord];
#pragma unroll
        for (int e = 0; e < kOfWord; ++e) elements[e] = exist[e] && filter < filters ? from[offsets[e]] : T(0.0f);
        weights[step][j][i] = word_of<T>(elements);
      }
    }
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t filter = first_filter + group * kGroup + filter_of<T>(i / 2, part, i % 2);
      biases[group][i] = bias && filter < filters ? static_cast<float>(bias[filter * args.g.bias_step]) : 0.0f;
    }

  uint32_t buffer = 0;
  for (uint32_t index = blockIdx.x; index < args.tile_count; index += gridDim.x, buffer = args.size - buffer) {
    finish_copies();
    if (index + gridDim.x < args.tile_count)
      args.copy_lines(args.tile_at(index + gridDim.x), x, buffers + args.size - buffer);
    const FewChannelArgs::Tile tile = args.tile_at(index);
    for (uint32_t first = warp * kFewChannelStep; first < tile.count; first += kFewChannelWarps * kFewChannelStep) {
      const char* const upper = buffers + buffer + args.pixel_at(first + row, tile);
      const char* const lower = buffers + buffer + args.pixel_at(first + row + 8, tile);
      float sums[4 * kGroups][4];
#pragma unroll
      for (int j = 0; j < 4 * kGroups; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[j][e] = biases[j / 4][j % 4 * 2 + e % 2];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          T above[kOfWord], below[kOfWord];
#pragma unroll
          for (int e = 0; e < kOfWord; ++e) {
            above[e] = element<T>(upper, taps[step][kOfWord * i + e]);
            below[e] = element<T>(lower, taps[step][kOfWord * i + e]);
          }
          a[2 * i] = word_of<T>(above), a[2 * i + 1] = word_of<T>(below);
          if (step == kSteps - 1) a[2 * i] &= inside[i], a[2 * i + 1] &= inside[i];
        }
#pragma unroll
        for (int j = 0; j < 4 * kGroups; ++j) mma_m16n8<T>(sums[j], a, weights[step][j][0], weights[step][j][1]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t pixel = first + row + 8 * half;
        T* const to = y + (tile.first + pixel) * filters;
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          constexpr int kVecs = 8 / kVec16Size<T>;
#pragma unroll
          for (int i = 0; i < kVecs; ++i) {
            Vec16 vec;
#pragma unroll
            for (int w = 0; w < 4; ++w) {
              const float(&of)[4] = sums[4 * group + (kVecs == 1 ? w : 2 * i + w / 2)];
              if constexpr (kVecs == 1) vec.value[w] = round_pair<T>(of[2 * half], of[2 * half + 1], relu);
              else vec.value[w] = __float_as_uint(relu && of[2 * half + w % 2] < 0 ? 0 : of[2 * half + w % 2]);
            }
            const uint32_t filter = first_filter + group * kGroup + filter_of<T>(2 * i, part, 0);
            if (pixel < tile.count && filter < filters) *reinterpret_cast<Vec16*>(to + filter) = vec;
          }
        }
      }
    }
  }
}

void few_channel_mma_fprop(const ConvCall& call, const Launch& launch) {
  const ConvPlan& plan = call.plan;
  const auto& tiling = call.tiling<FewChannelTiling>();
  visit_narrow(call.problem.dtype, [&]<class T>() {
    const auto run = [&]<int kSteps, int kGroups>() {
      const uint32_t groups = ceil_div(call.gemm.rows, kGroup * kGroups);
      launch.with({plan.shared_bytes}, few_channel_mma_fprop_kernel<T, kSteps, kGroups>, dim3(tiling.blocks, groups),
                  kFewChannelThreads, FewChannelArgs{tiling, call.gemm}, call.in, call.weight, call.bias,
                  call.problem.relu, call.out);
    };
    const auto of_groups = [&]<int kSteps>() {
      if constexpr (sizeof(T) == 2)
        if (plan.tile.rows > kGroup) return run.template operator()<kSteps, 2>();
      run.template operator()<kSteps, 1>();
    };
    switch (ceil_div(call.gemm.depth * sizeof(T), 32u)) {  // number of steps, each of 32 bytes of depth
      case 1: return of_groups.template operator()<1>();
      case 2: return of_groups.template operator()<2>();
      case 3: return run.template operator()<3, 1>();
      default: run.template operator()<4, 1>();
    }
  });
}

// ---- wgrad ----

/// Sets all bits of each of two elements that is greater than zero, and clears the bits of the others.
template <class T>
__device__ uint32_t positive(uint32_t words) {
  using Two = std::conditional_t<std::is_same_v<T, Half>, __half2, __nv_bfloat162>;
  return __hgt2_mask(reinterpret_cast<const Two&>(words), Two{});
}

/// The tile of a block: filters x columns.
template <int kRows_, int kColumns_>
struct TileOf {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
};

template <int kRows, int kColumns>
inline constexpr int kBlocks = few_channel_wgrad_blocks(16 * kRows, 8 * kColumns);

/// The sums of a warp in shared memory. A row has one element of padding, so that rows begin in different banks.
template <int kRows, int kColumns>
using Sums = float[16 * kRows][8 * kColumns + 1];

// Sums dw and dbias over a block's tiles, and stores the sums in `partial` (blocks, filters, columns).
template <class T, int kRows, int kColumns, bool kMasked>
__global__ void __launch_bounds__(kFewChannelThreads, kBlocks<kRows, kColumns>)
    few_channel_mma_wgrad_kernel(FewChannelArgs args, const T* __restrict__ dy, const T* __restrict__ mask,
                                 const T* __restrict__ x, float* __restrict__ partial) {
  constexpr int kPixels = 4, kFilters = 16 * kRows;  // pixels of a lane in a step; filters of a block
  using Filters = Vec<uint32_t, kRows>;              // 2 kRows neighbouring filters of a pixel
  extern __shared__ Vec16 memory[];
  char* const buffers = reinterpret_cast<char*>(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, part = lane % 4;
  const uint32_t filters = args.g.rows, columns = args.g.columns, first_filter = blockIdx.y * kFilters,
                 filter = first_filter + group * 2 * kRows;
  const bool exists = filter < filters;

  // In each block of eight columns, a lane loads the column whose index is its `group`. The taps are followed by the
  // column of ones, then by zeros.
  uint32_t taps[kColumns], inside[kColumns], instead[kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const uint32_t column = 8 * j + group;
    taps[j] = args.tap_at(column);
    inside[j] = column < args.g.depth ? ~uint32_t{0} : 0;
    instead[j] = column >= args.g.depth && column < columns ? pair(T(1.0f), T(1.0f)) : 0;
  }

  Filters next[kPixels], next_mask[kPixels];
  const auto fetch = [&](const FewChannelArgs::Tile& tile, uint32_t first) {
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {  // neighbouring lanes load neighbouring pixels
      const uint32_t pixel = first + 4 * i + part;
      const bool counts = exists && pixel < tile.count;
      const uint32_t at = counts ? (tile.first + pixel) * filters + filter : 0;
      next[i] = counts ? *reinterpret_cast<const Filters*>(dy + at) : Filters{};
      if constexpr (kMasked) next_mask[i] = *reinterpret_cast<const Filters*>(mask + at);
    }
  };

  float sums[kRows][kColumns][4] = {};
  FewChannelArgs::Tile tile = args.tile_at(blockIdx.x);
  fetch(tile, warp * kFewChannelStep);
  clear_buffers(args, memory);
  args.copy_lines(tile, x, buffers);
  uint32_t buffer = 0;
  for (uint32_t index = blockIdx.x; index < args.tile_count; index += gridDim.x, buffer = args.size - buffer) {
    finish_copies();
    FewChannelArgs::Tile following{0, 0, 0, 0};
    if (index + gridDim.x < args.tile_count) {
      following = args.tile_at(index + gridDim.x);
      args.copy_lines(following, x, buffers + args.size - buffer);
    }
    uint32_t first = warp * kFewChannelStep;
    if (first >= tile.count) fetch(following, first);
    while (first < tile.count) {
      uint32_t a[kRows][4];
#pragma unroll
      for (int i = 0; i < kPixels; i += 2)
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          uint32_t one = next[i].value[row], other = next[i + 1].value[row];
          if constexpr (kMasked)
            one &= positive<T>(next_mask[i].value[row]), other &= positive<T>(next_mask[i + 1].value[row]);
          a[row][i] = __byte_perm(one, other, 0x5410), a[row][i + 1] = __byte_perm(one, other, 0x7632);
        }
      const char* pixels[kPixels];
#pragma unroll
      for (int i = 0; i < kPixels; ++i) pixels[i] = buffers + buffer + args.pixel_at(first + 4 * i + part, tile);
      first += kFewChannelWarps * kFewChannelStep;
      if (first < tile.count) fetch(tile, first);
      else fetch(following, warp * kFewChannelStep);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        uint32_t b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          b[i] = (pair(element<T>(pixels[2 * i], taps[j]), element<T>(pixels[2 * i + 1], taps[j])) & inside[j]) |
                 instead[j];
#pragma unroll
        for (int row = 0; row < kRows; ++row) mma_m16n8<T>(sums[row][j], a[row], b[0], b[1]);
      }
    }
    tile = following;
  }

  auto* const of_warps = reinterpret_cast<Sums<kRows, kColumns>*>(memory);
  __syncthreads();
#pragma unroll
  for (int row = 0; row < kRows; ++row)
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        of_warps[warp][group * 2 * kRows + 2 * row + e / 2][8 * j + 2 * part + e % 2] = sums[row][j][e];
  __syncthreads();
  float* const out = partial + (static_cast<int64_t>(blockIdx.x) * filters + first_filter) * columns;
  const uint32_t count = min(u32(kFilters), filters - first_filter) * columns;
  for (uint32_t i = threadIdx.x; i < count; i += kFewChannelThreads) {
    float sum = 0;
#pragma unroll
    for (int from = 0; from < kFewChannelWarps; ++from) sum += of_warps[from][i / columns][i % columns];
    out[i] = sum;
  }
}

void few_channel_mma_wgrad(const ConvCall& call, const Launch& launch) {
  visit_half(call.problem.dtype, [&]<class T>() {
    visit_tiles<TileOf<32, 72>, TileOf<64, 32>, TileOf<32, 32>, TileOf<64, 16>, TileOf<32, 16>>(
        call.plan.tile, [&]<class Tile>() {
          constexpr int kRows = Tile::kRows / 16, kColumns = Tile::kColumns / 8;
          launch.with({call.plan.shared_bytes},
                      call.mask ? few_channel_mma_wgrad_kernel<T, kRows, kColumns, true>
                                : few_channel_mma_wgrad_kernel<T, kRows, kColumns, false>,
                      dim3(call.phase.split_k, ceil_div(call.gemm.rows, Tile::kRows)), kFewChannelThreads,
                      FewChannelArgs{call.tiling<FewChannelTiling>(), call.gemm}, call.out, call.mask, call.in,
                      call.partial());
        });
  });
  add_parts(call, launch, false);
}

}  // namespace

bool launch_few_channel_mma(const ConvOperands& call) {
  return launch_phases(call.problem.is_wgrad() ? few_channel_mma_wgrad : few_channel_mma_fprop, call);
}

}  // namespace gradus::cuda_detail
