// conv2d fprop and dgrad, implicit GEMM, in any math mode (FMA, TF32, half types).
// out[k, (n,p,q)] = sum over (r,s), c of w[k,c,r,s] in[n, c, p, q shifted by (r,s)]  (conv2d.cuh);  any strides.
// Depth: C R S tap by tap; a step (BK) is kRowDepth channels of one tap (r, s), so that one test per step decides
// whether the tap of an output position is inside the image.
// Grid: x = tiles of positions N P Q (BN), y = tiles of rows K, for dgrad C (BM), z = groups x split-K.  Block: 64 to
// 128 threads; a warp computes 32 x 64 results, a thread 64 of them.
// Pipeline: RegisterLoader loads the next step into registers while the current step is multiplied (2 stages of shared
// memory); where channels are innermost (kVector) a load has 16 bytes of depth, otherwise neighbouring threads load
// neighbouring pixels. AsyncLoader, for exact float32 whose channels are not innermost, uses cp.async (3 stages).
// Split-K: if there are too few tiles to fill the device, the steps are divided into `splits` parts, whose sums are
// stored in the workspace.
// Deterministic: one warp computes all of a sum, or of a split's part of it, and conv2d.cu adds the parts in order.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>

namespace gradus::cuda_detail {
namespace {

/// How the depth is divided into steps and splits, and the strides of the operands.
struct Steps {
  uint32_t chunks, count;  // steps of a tap, and of all taps
  uint32_t packed_rows;    // rows of a group in the packed weights
  uint32_t splits, per_split;
  uint32_t in_h, in_w, in_c, out_c;  // strides in bytes
};

/// The part of the product that a block computes.
template <class Tile>
struct GemmBlock {
  uint32_t group, split, first_step, end_step, first_row, first_position;

  __device__ explicit GemmBlock(const Steps& steps)
      : group(blockIdx.z / steps.splits), split(blockIdx.z % steps.splits), first_step(split * steps.per_split),
        end_step(min(first_step + steps.per_split, steps.count)), first_row(blockIdx.y * Tile::kRows),
        first_position(blockIdx.x * Tile::kColumns) {}
};

/// An output position of the tile: the offset of its input image, the row and column at which its taps begin, and the
/// offset of its result (negative if the position does not exist). Offsets are in bytes.
struct OutCoord {
  uint32_t image;
  int h, w, out;
};

/// Dynamic shared memory of a block.
template <class Tile, int kStages>
struct GemmShared {
  typename Tile::Shared stages[kStages];  // left: weights (BM, BK), right: input (BN, BK)
  OutCoord coords[Tile::kColumns];        // (BN)
  float biases[Tile::kRows];              // (BM)

  template <class T>
  __device__ void prepare(const ImplicitGemm& gemm, const GemmBlock<Tile>& block, const T* bias) {
    for (int i = threadIdx.x; i < Tile::kColumns; i += Tile::kThreads) {
      const uint32_t position = block.first_position + i;
      OutCoord coord{0, kOutside, kOutside, -1};
      if (position < gemm.positions) {
        const ImplicitGemm::Place at = gemm.place_of(position);
        const Tap corner = gemm.corner_of(at);
        coord = {u32(at.outer * gemm.in.n * sizeof(T)), corner.h, corner.w,
                 static_cast<int>(gemm.out_offset(at) * sizeof(T))};
      }
      coords[i] = coord;
    }
    for (int i = threadIdx.x; i < Tile::kRows; i += Tile::kThreads) {
      const uint32_t row = block.first_row + i, channel = block.group * gemm.rows + row;
      biases[i] = bias && row < gemm.rows ? static_cast<float>(bias[channel * gemm.bias_step]) : 0;
    }
    __syncthreads();
  }

  /// Stores the sums of a split in partial (splits, groups, rows, positions) or, if it is null, the results, with bias
  /// and ReLU, in `output`.
  template <class Mma, class T>
  __device__ void store_epilogue(const ImplicitGemm& gemm, const Steps& steps, const GemmBlock<Tile>& block,
                                 const Mma& mma, bool relu, T* output, float* partial) const {
    const uint32_t row_base = block.first_row + Tile::first_row();
    const OutCoord* const warp_coords = coords + Tile::first_column();
    if (partial) {
      const int64_t line = static_cast<int64_t>(block.split * (gridDim.z / steps.splits) + block.group) * gemm.rows;
      float* const to = partial + (line + row_base) * gemm.positions + block.first_position + Tile::first_column();
      mma.for_each([&](int row, int column, float sum) {
        if (row_base + row < gemm.rows && warp_coords[column].out >= 0) to[row * gemm.positions + column] = sum;
      });
      return;
    }
    const auto channel = static_cast<int64_t>(block.group * gemm.rows + row_base);
    char* const to = reinterpret_cast<char*>(output) + channel * steps.out_c;
    mma.for_each([&](int row, int column, float sum) {
      const int at = warp_coords[column].out;
      if (row_base + row >= gemm.rows || at < 0) return;
      sum += biases[Tile::first_row() + row];
      if (relu && sum < 0.0f) sum = 0.0f;
      *reinterpret_cast<T*>(to + (at + row * steps.out_c)) = static_cast<T>(sum);
    });
  }
};

/// The step that a loader loads next: a chunk of the channels at tap (r, s), and its weights.
template <class T, class BlockTile>
struct StepIterator {
  using Tile = BlockTile;
  using Element = T;
  const ImplicitGemm& gemm;
  const Steps& steps;
  const char* input;    // the input of the group
  const Vec16* packed;  // the weights of the step
  uint32_t chunk, r, s;

  __device__ StepIterator(const ImplicitGemm& gemm, const Steps& steps, const GemmBlock<Tile>& block, const T* input,
                          const Vec16* packed)
      : gemm(gemm), steps(steps),
        input(reinterpret_cast<const char*>(input + block.group * gemm.in_channels * gemm.in.c)),
        packed(packed + ((static_cast<int64_t>(block.group) * steps.count + block.first_step) * steps.packed_rows +
                         block.first_row) *
                            kRowVecs),
        chunk(block.first_step % steps.chunks) {
    const uint32_t tap = block.first_step / steps.chunks, width = gemm.tap_width.divisor;
    r = tap / width, s = tap % width;
  }
  __device__ int tap_h() const { return static_cast<int>(r) * gemm.tap_step[0]; }
  __device__ int tap_w() const { return static_cast<int>(s) * gemm.tap_step[1]; }
  __device__ uint32_t first_channel() const { return chunk * kRowDepth<T>; }
  __device__ void advance() {
    packed += steps.packed_rows * kRowVecs;
    if (++chunk < steps.chunks) return;
    chunk = 0;
    if (++s == gemm.tap_width.divisor) s = 0, ++r;
  }
};

/// A thread's share of a step, loaded through registers. A column (pixel) of the input has four vectors a step: with
/// kVector four neighbouring threads load one vector each, otherwise one thread loads all four.
template <MathMode kMode_, class T, class Tile, bool kVector>
struct RegisterLoader : StepIterator<T, Tile> {
  using Loop = RegisterLoop;
  static constexpr MathMode kMode = kMode_;
  static constexpr int kThreads = Tile::kThreads, kSize = kVec16Size<T>;
  static constexpr int kLeft = Tile::kRows * kRowVecs / kThreads, kRight = Tile::kColumns * kRowVecs / kThreads;
  static constexpr int kColumns = kVector ? kRight : Tile::kColumns / kThreads;  // columns that a thread loads
  static constexpr int kColumnStep = kVector ? kThreads / kRowVecs : kThreads;

  const OutCoord* coords;
  Vec16 left[kLeft];
  T right[kRight][kSize];

  __device__ RegisterLoader(const StepIterator<T, Tile>& first, const OutCoord* coords)
      : StepIterator<T, Tile>(first), coords(coords) {}

  static __device__ int column_of(int i) {
    return static_cast<int>(kVector ? threadIdx.x / kRowVecs : threadIdx.x) + i % kColumns * kColumnStep;
  }
  static __device__ int vec_of(int i) { return kVector ? static_cast<int>(threadIdx.x % kRowVecs) : i / kColumns; }

  __device__ void load_tile() {
    const ImplicitGemm& gemm = this->gemm;
    const Steps& steps = this->steps;
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      left[i] = load_global<Vec16>(reinterpret_cast<const char*>(this->packed + threadIdx.x + i * kThreads));
    const int tap_h = this->tap_h(), tap_w = this->tap_w();
    const uint32_t first_channel = this->first_channel();
    uint32_t offset[kColumns];  // where the tap reads the step's first channel
    bool exists[kColumns];      // the tap is inside the image
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const OutCoord coord = coords[column_of(i)];
      const int h = coord.h + tap_h, w = coord.w + tap_w;
      exists[i] = within(h, gemm.in_height) && within(w, gemm.in_width);
      offset[i] = coord.image + h * steps.in_h + w * steps.in_w + first_channel * steps.in_c;
    }
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      const int channel = vec_of(i) * kSize, column = i % kColumns;
      const bool inside = exists[column] && first_channel + channel < gemm.in_channels;
      const char* from = whole(this->input + (offset[column] + channel * steps.in_c));
      if constexpr (kVector) {
        Vec16 loaded{};
        if (inside) loaded = load_global<Vec16>(from);
        memcpy(right[i], &loaded, sizeof loaded);
      } else {
#pragma unroll
        for (int j = 0; j < kSize; ++j, from += steps.in_c) right[i][j] = inside ? load_global<T>(from) : T(0.0f);
      }
    }
    this->advance();
  }

  __device__ void store_tile(typename Tile::Shared& tile) const {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const int e = threadIdx.x + i * kThreads;
      tile.left[e / kRowVecs][e % kRowVecs] = left[i];
    }
#pragma unroll
    for (int i = 0; i < kRight; ++i) tile.right[column_of(i)][vec_of(i)] = make_vec16<kMode, T>(right[i]);
  }
};

/// A thread's share of a step, copied by cp.async. A warp copies BN / warps pixels, eight at a time: eight neighbouring
/// threads copy one channel of eight neighbouring pixels, the next eight threads the next channel, so that no two
/// threads of a warp store to the same bank.
template <class Tile>
struct AsyncLoader : StepIterator<float, Tile> {
  using Loop = AsyncLoop;
  static constexpr MathMode kMode = MathMode::fma;
  static constexpr int kThreads = Tile::kThreads, kWarpShare = Tile::kColumns / (kThreads / 32);
  static constexpr int kPixels = kWarpShare / 8, kLeft = Tile::kRows * kRowVecs;

  const int column = threadIdx.x / 32 * kWarpShare + threadIdx.x % 8, channel = threadIdx.x / 8 % 4;
  OutCoord coords[kPixels];  // their `image` is here the offset of the pixel (h, w)

  __device__ AsyncLoader(const StepIterator<float, Tile>& first, const OutCoord* block_coords)
      : StepIterator<float, Tile>(first) {
    this->input += channel * this->steps.in_c;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      coords[i] = block_coords[column + 8 * i];
      coords[i].image += coords[i].h * this->steps.in_h + coords[i].w * this->steps.in_w;
    }
  }

  __device__ void load_tile(typename Tile::Shared& tile) {
    const Steps& steps = this->steps;
#pragma unroll
    for (int i = 0; i < kLeft; i += kThreads) {
      const int e = i + threadIdx.x;
      if (kLeft % kThreads == 0 || e < kLeft)
        cp_async<16>(&tile.left[e / kRowVecs][e % kRowVecs], this->packed + e, true);
    }
    const int tap_h = this->tap_h(), tap_w = this->tap_w();
    const uint32_t offset = tap_h * steps.in_h + tap_w * steps.in_w + this->first_channel() * steps.in_c;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const OutCoord& at = coords[i];
      const bool inside = within(at.h + tap_h, this->gemm.in_height) && within(at.w + tap_w, this->gemm.in_width);
      const char* from = this->input + (inside ? at.image + offset : 0);
      auto* const to = reinterpret_cast<float*>(tile.right[column + 8 * i]) + channel;
#pragma unroll
      for (int c = 0; c < kRowDepth<float>; c += kRowVecs, from += int64_t{kRowVecs} * steps.in_c)
        cp_async<4>(to + c, from, inside);
    }
    this->advance();
  }
  __device__ void add_bias(const typename Tile::Shared&) const {}
};

template <class Loader, class Tile = typename Loader::Tile, class T = typename Loader::Element>
__global__ void __launch_bounds__(Tile::kThreads, implicit_blocks(Loader::kMode, Tile::kThreads / 32))
    implicit_gemm_kernel(ImplicitGemm gemm, Steps steps, const T* __restrict__ input, const Vec16* __restrict__ packed,
                         const T* __restrict__ bias, bool relu, T* __restrict__ output, float* __restrict__ partial) {
  extern __shared__ Vec16 memory[];
  auto& shared = *reinterpret_cast<GemmShared<Tile, Loader::Loop::kStages>*>(memory);
  const GemmBlock<Tile> block(steps);
  shared.prepare(gemm, block, bias);
  Loader loader({gemm, steps, block, input, packed}, shared.coords);
  MmaTile<Loader::kMode, T> mma;
  Loader::Loop::template run<Tile>(shared.stages, block.end_step - block.first_step, loader, mma);
  shared.store_epilogue(gemm, steps, block, mma, relu, output, partial);
}

/// packed[group][step][row][k] = the weight of channel chunk * kRowDepth + k at the step's tap, 0 beyond the last row
/// and channel. Neighbouring threads load neighbouring taps, then neighbouring rows or channels, in the memory order of
/// the weights. `total` is the number of packed vectors.
template <MathMode kMode, class T>
__global__ void __launch_bounds__(kThreads)
    pack_weights_kernel(ImplicitGemm gemm, Steps steps, Divisor chunks, Divisor rows, uint32_t total, const T* weight,
                        Vec16* packed) {
  for (uint32_t i = thread_index(); i < total; i += thread_count()) {
    uint32_t tap = i, row, chunk;
    uint32_t group = gemm.taps.split(tap), vec = group;
    if (gemm.weight.n < gemm.weight.c) {
      row = group, vec = rows.split(row), chunk = vec / kRowVecs;
      group = chunks.split(chunk);
    } else {
      chunk = vec / kRowVecs, row = chunks.split(chunk);
      group = rows.split(row);
    }
    vec %= kRowVecs;
    ImplicitGemm::Place at = gemm.place_of_tap(tap);
    T values[kVec16Size<T>];
#pragma unroll
    for (int j = 0; j < kVec16Size<T>; ++j) {
      at.outer = chunk * kRowDepth<T> + vec * kVec16Size<T> + j;
      const bool inside = row < gemm.rows && at.outer < gemm.in_channels;  // the last chunk may exceed the channels
      values[j] = inside ? weight[group * gemm.weight_group + gemm.weight_offset(row, at)] : T(0.0f);
    }
    const int64_t step = static_cast<int64_t>(group) * steps.count + tap * steps.chunks + chunk;
    packed[(step * steps.packed_rows + row) * kRowVecs + vec] = make_vec16<kMode, T>(values);
  }
}

/// Packs the weights and multiplies. With split-K, adds the parts in the workspace.
template <class Loader>
void run(const ConvCall& call, const Launch& launch) {
  using T = typename Loader::Element;
  using Tile = typename Loader::Tile;
  const ImplicitGemm& gemm = call.gemm;
  const auto bytes = [](int64_t stride) { return u32(stride * static_cast<int64_t>(sizeof(T))); };
  const uint32_t row_tiles = u32(ceil_div(gemm.rows, Tile::kRows));
  const uint32_t chunks = u32(ceil_div(gemm.in_channels, kRowDepth<T>)), splits = call.phase.split_k;
  const Steps steps{.chunks = chunks,
                    .count = chunks * (gemm.depth / gemm.in_channels),
                    .packed_rows = row_tiles * Tile::kRows,
                    .splits = splits,
                    .per_split = call.phase.per_split,
                    .in_h = bytes(gemm.in.h),
                    .in_w = bytes(gemm.in.w),
                    .in_c = bytes(gemm.in.c),
                    .out_c = bytes(gemm.out.c)};
  const uint32_t vecs = call.groups() * steps.count * steps.packed_rows * kRowVecs;
  const Address packed{call.workspace}, partial{splits > 1 ? call.workspace + call.plan.partial_offset : nullptr};
  if (vecs > 0)
    launch(pack_weights_kernel<Loader::kMode, T>, launch.blocks(vecs, kThreads), kThreads, gemm, steps, Divisor(chunks),
           Divisor(steps.packed_rows), vecs, call.weight, packed);
  launch.with({sizeof(GemmShared<Tile, Loader::Loop::kStages>)}, implicit_gemm_kernel<Loader>,
              dim3(u32(ceil_div(gemm.positions, Tile::kColumns)), row_tiles, call.groups() * splits), Tile::kThreads,
              gemm, steps, call.in, packed, call.bias, call.problem.relu, call.out, partial);
  if (splits > 1) add_parts(call, launch, true);
}

void implicit_gemm_async(const ConvCall& call, const Launch& launch) {
  visit_tiles<BlockTile<1, 3>, BlockTile<2, 1>, BlockTile<4, 1>>(
      call.plan.tile, [&]<class Tile>() { run<AsyncLoader<Tile>>(call, launch); });
}

void implicit_gemm(const ConvCall& call, const Launch& launch) {
  visit_math_mode(call.problem.dtype, call.plan.math_mode, [&]<MathMode kMode, class T>() {
    visit_tiles<BlockTile<1, 4>, BlockTile<2, 2>>(call.plan.tile, [&]<class Tile>() {
      if (call.tiling<ImplicitGemmTiling>().vectorized) run<RegisterLoader<kMode, T, Tile, true>>(call, launch);
      else run<RegisterLoader<kMode, T, Tile, false>>(call, launch);
    });
  });
}

}  // namespace

bool launch_implicit_gemm(const ConvOperands& call) {
  return launch_phases(call.problem.is_wgrad() ? implicit_gemm_wgrad : implicit_gemm, call);
}
bool launch_implicit_gemm_async(const ConvOperands& call) {
  return launch_phases(call.problem.is_wgrad() ? implicit_gemm_async_wgrad : implicit_gemm_async, call);
}

}  // namespace gradus::cuda_detail
