// conv2d wgrad, implicit GEMM, in any math mode (FMA, TF32, half types).
// dw[k, (r,s,c)] = sum over (n,p,q) of dy[k, (n,p,q)] x[n, c, p, q shifted by (r,s)];  dbias[k] = sum of dy[k].
// Layout: any strides. The columns (r,s,c) of the product have the channels innermost; its depth is N P Q.
// Grid: x = tiles of K x tiles of C R S, y = groups, z = split-K.  Block: 96 to 192 threads; a warp computes 32 x 64
// results, a thread 64 of them, in steps of 16 (float32) or 32 (half types) pixels of the depth.
// Pipeline: RegisterLoader loads the next step into registers while the current step is multiplied (2 stages of shared
// memory). AsyncLoader, for exact float32 with dy in whole aligned vectors of pixels, uses cp.async (3 stages).
// Deterministic: one warp computes all of a split's sum, and conv2d.cu adds the splits in order.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>

namespace gradus::cuda_detail {
namespace {

/// What a block computes: a tile of filters x columns, summed over the pixels of its split.
struct WgradBlock {
  const ImplicitGemm& g;
  const Divisor &channels, &image;  // channels of a group; pixels of an image
  uint32_t group = blockIdx.y, split = blockIdx.z;
  uint32_t first_row, first_column;
  uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);

  __device__ WgradBlock(const ImplicitGemm& g, const Divisor& channels, const Divisor& image, uint32_t rows,
                        uint32_t columns)
      : g(g), channels(channels), image(image) {
    const uint32_t row_tiles = ceil_div(g.rows, rows);
    first_row = blockIdx.x % row_tiles * rows, first_column = blockIdx.x / row_tiles * columns;
  }
  /// The address of dy at the block's first filter, and that of x at the first channel of its group.
  template <class T>
  __device__ const char* gradients(const T* dy) const {
    return reinterpret_cast<const char*>(dy + (static_cast<int64_t>(group) * g.rows + first_row) * g.out.c);
  }
  template <class T>
  __device__ const char* images(const T* x) const {
    return reinterpret_cast<const char*>(x + static_cast<int64_t>(group) * g.in_channels * g.in.c);
  }
  __device__ bool sums_bias() const { return first_column == 0 && g.columns > g.depth; }
};

/// A pixel of the depth: the offsets in bytes of dy and of the window's corner in x, and which taps are inside the
/// image. Offsets in x are increased by RegisterLoader::before, so that they are not negative with padding.
struct PixelCoord {
  uint32_t dy, x, taps;
};
constexpr uint32_t kNowhere = ~uint32_t{0};  // PixelCoord::dy of a pixel beyond the end
/// A column: the distance in bytes of its channel and tap from the window's corner, and the bit of its tap in
/// PixelCoord::taps (0 beyond the last column).
struct ColumnCoord {
  uint32_t x, bit;
};

/// The kCount elements of a tile of kSize rows that a thread loads: element i is at row(i), depth(i). Neighbouring
/// threads load neighbours in memory. A warp loads the depth of one row (float32: of two rows that are four apart, and
/// so in different banks) or, where channels are innermost (kByChannel), 32 rows at one depth; there a thread loads the
/// depths of whole vectors.
template <class T, class Tile, int kSize, bool kByChannel>
struct Share {
  static constexpr int kWarps = Tile::kThreads / 32, kDepth = kRowDepth<T>, kVec = kVec16Size<T>;
  static constexpr int kPasses = ceil_div(kSize * kRowVecs, Tile::kThreads);  // vectors of a thread
  static constexpr int kLines = kDepth == 32 ? 1 : 8;  // rows of a warp in a round; float32 loads them two at a time
  static constexpr int kRounds = ceil_div(kSize, kLines* kWarps);
  static constexpr int kCount = kByChannel ? kPasses * kVec : kRounds * (kDepth == 32 ? 1 : 4);

  static __device__ int row(int i) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (kByChannel) return (threadIdx.x + i / kVec * Tile::kThreads) % kSize;
    else if constexpr (kDepth == 32) return i * kWarps + warp;
    else return i / 4 * (8 * kWarps) + warp * 8 + lane / 16 * 4 + i % 4;
  }
  static __device__ int depth(int i) {
    if constexpr (kByChannel) return (threadIdx.x + i / kVec * Tile::kThreads) / kSize * kVec + i % kVec;
    else return threadIdx.x % kDepth;
  }
  /// Returns true if element i is inside the tile.
  static __device__ bool inside(int i) {
    if constexpr (kByChannel) return threadIdx.x + i / kVec * Tile::kThreads < kSize * kRowVecs;
    else return row(i) < kSize;
  }
  template <MathMode kMode>
  static __device__ void store(const T (&elements)[kCount], TileRow* tile) {
    if constexpr (kByChannel) {
#pragma unroll
      for (int i = 0; i < kCount; i += kVec) {
        T vec[kVec];
#pragma unroll
        for (int j = 0; j < kVec; ++j) vec[j] = elements[i + j];
        if (inside(i)) tile[row(i)][depth(i) / kVec] = make_vec16<kMode, T>(vec);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (inside(i)) reinterpret_cast<T*>(tile[row(i)])[depth(i)] = multiplicand<kMode>(elements[i]);
    }
  }
};

/// A thread's share of a step, loaded through registers; meanwhile the coordinates of the step after it are computed. A
/// bit mask, which a block computes once for each pixel, tells which taps of the pixel are inside the image. dbias is
/// summed from the dy that a thread loads anyway.
template <MathMode kMode_, class T, class Tile_, bool kByChannel>
struct RegisterLoader {
  using Tile = Tile_;
  using Element = T;
  using Loop = RegisterLoop;
  static constexpr MathMode kMode = kMode_;
  static constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns;  // left is dy, right is x
  static constexpr int kDepth = kRowDepth<T>, kBlocks = 2;
  static constexpr bool kColumnsFirst = false;
  using Left = Share<T, Tile, kRows, kByChannel>;
  using Right = Share<T, Tile, kColumns, kByChannel>;
  struct Shared {
    PixelCoord pixels[2][kDepth];  // of the current step and the next
    ColumnCoord columns[kColumns];
  };

  const WgradBlock& block;
  Shared& shared;
  const char *gradients, *images;
  uint32_t next, row_step, rows;  // next pixel to load; bytes from row to row of dy; rows that exist
  int64_t before;                 // bytes from the first pixel of x back to the first pixel of its padding
  int stage = 0;
  T left[Left::kCount], right[Right::kCount];
  float bias[Left::kCount] = {};

  __device__ RegisterLoader(const WgradBlock& block, Shared& shared, const T* dy, const T* x)
      : block(block), shared(shared), gradients(block.gradients(dy)), images(block.images(x)), next(block.begin),
        row_step(u32(block.g.out.c * static_cast<int64_t>(sizeof(T)))), rows(block.g.rows - block.first_row) {
    const ImplicitGemm& g = block.g;
    before = -(g.origin[0] * g.in.h + g.origin[1] * g.in.w) * static_cast<int64_t>(sizeof(T));
    images -= before;
    for (int i = threadIdx.x; i < kColumns; i += Tile::kThreads) shared.columns[i] = column_at(block.first_column + i);
    prepare(0);
    __syncthreads();
  }
  __device__ ColumnCoord column_at(uint32_t column) const {
    const ImplicitGemm& g = block.g;
    if (column >= g.depth) return {0, 0};
    uint32_t c = column, s = block.channels.split(c);
    const uint32_t tap = s, r = g.tap_width.split(s);
    return {u32((c * g.in.c + r * g.tap_step[0] * g.in.h + s * g.tap_step[1] * g.in.w) * sizeof(T)),
            uint32_t{1} << tap};
  }
  __device__ PixelCoord pixel_at(uint32_t position) const {
    const ImplicitGemm& g = block.g;
    if (position >= block.end) return {kNowhere, 0, 0};
    const ImplicitGemm::Place place = g.place_of(position);
    const Tap at = g.corner_of(place);
    const int width = static_cast<int>(g.tap_width.divisor);
    const int count = static_cast<int>(g.taps.divisor);
    uint32_t inside = 0, taps = 0;  // bits of one row of taps, and of all taps
    for (int s = 0, w = at.w; s < width; ++s, w += g.tap_step[1]) inside |= u32(within(w, g.in_width)) << s;
    for (int tap = 0, h = at.h; tap < count; tap += width, h += g.tap_step[0])
      if (within(h, g.in_height)) taps |= inside << tap;
    return {u32(g.out_offset(place) * sizeof(T)), u32(at.offset * static_cast<int64_t>(sizeof(T)) + before), taps};
  }
  /// Computes the coordinates of the step that begins at `next`.
  __device__ void prepare(int stage) {
    if (threadIdx.x < kDepth) shared.pixels[stage][threadIdx.x] = pixel_at(next + threadIdx.x);
  }

  __device__ void load_tile() {
    const PixelCoord* const pixels = shared.pixels[stage];
#pragma unroll
    for (int i = 0; i < Left::kCount; ++i) {
      const uint32_t row = Left::row(i), at = pixels[Left::depth(i)].dy;
      const bool counts = Left::inside(i) && row < rows && at != kNowhere;
      left[i] = counts ? load_global<T>(gradients + at + row * row_step) : T(0.0f);
    }
#pragma unroll
    for (int i = 0; i < Right::kCount; ++i) {
      const ColumnCoord column = shared.columns[Right::row(i)];
      const PixelCoord pixel = pixels[Right::depth(i)];
      // The offset that is the same for neighbouring elements, that of the column or of the pixel, is added only once.
      const char* const from = kByChannel ? whole(images + column.x) + pixel.x : whole(images + pixel.x) + column.x;
      right[i] = pixel.taps & column.bit ? load_global<T>(from) : T(0.0f);
    }
    next += kDepth, stage ^= 1;
    prepare(stage);
  }
  __device__ void store_tile(typename Tile::Shared& tile) {
    Left::template store<kMode>(left, tile.left);
    Right::template store<kMode>(right, tile.right);
#pragma unroll
    for (int i = 0; i < Left::kCount; ++i) bias[i] += static_cast<float>(left[i]);
  }
  /// Stores dbias in `to`, where neighbouring rows are g.columns elements apart. `memory` is the memory of the stages,
  /// which are no longer used.
  __device__ void store_bias(float* to, void* memory) {
    auto* sums = reinterpret_cast<float(*)[kDepth + 1]>(memory);  // (kRows, kDepth)
#pragma unroll
    for (int i = 0; i < Left::kCount; ++i)
      if (Left::inside(i)) sums[Left::row(i)][Left::depth(i)] = bias[i];
    __syncthreads();
    for (int row = threadIdx.x; row < kRows && row < rows; row += Tile::kThreads) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < kDepth; ++k) sum += sums[row][k];
      to[static_cast<int64_t>(row) * block.g.columns] = sum;
    }
  }
};

/// A thread's share of a step, copied by cp.async: dy in vectors of four pixels, x element by element, because taps
/// shift it. The columns that a warp copies belong to one tap, so that one test per step decides what is outside the
/// image. A multiprocessor runs 12 warps: with 16, a thread would not have the registers to overlap multiplications.
template <class Tile_>
struct AsyncLoader {
  using Tile = Tile_;
  using Element = float;
  using Loop = AsyncLoop;
  static constexpr MathMode kMode = MathMode::fma;
  static constexpr int kRows = Tile::kColumns, kColumns = Tile::kRows;  // left is x, right is dy
  static constexpr int kDepth = kRowDepth<float>, kWarps = Tile::kThreads / 32,
                       kBlocks = implicit_blocks(kMode, kWarps);
  static constexpr bool kColumnsFirst = true;
  static constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  // x: each half of a warp copies a column, one pixel a lane. The two columns are four rows apart, in different banks.
  static constexpr int kWarpShare = kColumns / kWarps, kLoaded = kWarpShare / 2;
  // dy: four neighbouring threads copy a row.
  static constexpr int kRowStep = Tile::kThreads / kRowVecs, kPasses = ceil_div(kRows, kRowStep);
  struct Shared {};

  const WgradBlock& block;
  const int warp = threadIdx.x / 32, half = threadIdx.x / kDepth % 2, pixel = threadIdx.x % kDepth;
  const int vec = threadIdx.x % kRowVecs, row = threadIdx.x / kRowVecs;
  const char *gradients, *images;
  uint32_t next, rows;  // next pixel to load; rows that exist
  bool exists;          // the warp's columns exist
  int tap_h, tap_w;     // the tap of the warp's columns
  float bias[kPasses] = {};

  __device__ AsyncLoader(const WgradBlock& block, Shared&, const float* dy, const float* x)
      : block(block), next(block.begin), rows(block.g.rows - block.first_row) {
    const ImplicitGemm& g = block.g;
    uint32_t channel = block.first_column + warp * kWarpShare;
    exists = channel < g.depth;
    uint32_t s = block.channels.split(channel);
    const int r = static_cast<int>(g.tap_width.split(s));
    tap_h = r * g.tap_step[0] + g.origin[0], tap_w = static_cast<int>(s) * g.tap_step[1] + g.origin[1];
    images = block.images(x) + (static_cast<int64_t>(channel) + 4 * half) * g.in.c * kFloat;
    gradients = block.gradients(dy) + row * g.out.c * kFloat;
  }
  /// Returns true if the row of this pass is in the tile.
  __device__ bool in_tile(int pass) const { return kRows % kRowStep == 0 || row + pass * kRowStep < kRows; }

  __device__ void load_tile(typename Tile::Shared& tile) {
    load_images(tile.left);
    load_gradients(tile.right);
    next += kDepth;
  }
  __device__ void load_images(TileRow* to) const {
    const ImplicitGemm& g = block.g;
    const bool counts = exists && next + pixel < block.end;
    const ImplicitGemm::Place at = g.place_of(next + pixel);
    const int h = static_cast<int>(at.h) * g.step[0] + tap_h;
    const int w = static_cast<int>(at.w) * g.step[1] + tap_w;
    const bool inside = counts && within(h, g.in_height) && within(w, g.in_width);
    const int offset = static_cast<int>(at.outer) * static_cast<int>(g.in.n) + h * static_cast<int>(g.in.h) +
                       w * static_cast<int>(g.in.w);
    const char* from = images + (inside ? int64_t{offset} * kFloat : 0);
    to += warp * kWarpShare + 4 * half;
#pragma unroll
    for (int i = 0; i < kLoaded; ++i) {  // the first half warp copies the rows 0 to 3, 8 to 11, … of the warp's share
      cp_async<4>(reinterpret_cast<float*>(to[i / 4 * 8 + i % 4]) + pixel, from, inside);
      from += (i % 4 == 3 ? 5 : 1) * g.in.c * kFloat;
    }
  }
  __device__ void load_gradients(TileRow* to) const {
    const ImplicitGemm& g = block.g;
    uint32_t at = next + vec * kVec16Size<float>;
    const bool counts = at < block.end;
    const uint32_t n = block.image.split(at);
    const char* from = gradients + (counts ? (n * g.out.n + at) * kFloat : 0);
#pragma unroll
    for (int i = 0; i < kPasses; ++i, from += kRowStep * g.out.c * kFloat) {
      const bool has_row = counts && row + i * kRowStep < rows;
      if (in_tile(i)) cp_async<16>(&to[row + i * kRowStep][vec], has_row ? from : gradients, has_row);
    }
  }
  __device__ void add_bias(const typename Tile::Shared& tile) {
    if (!block.sums_bias()) return;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (!in_tile(i)) break;
      const auto& four = reinterpret_cast<const float4&>(tile.right[row + i * kRowStep][vec]);
      bias[i] += (four.x + four.y) + (four.z + four.w);
    }
  }
  __device__ void store_bias(float* to, void*) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      for (int other = 1; other < kRowVecs; other *= 2) bias[i] += __shfl_xor_sync(0xffffffffu, bias[i], other);
      if (vec == 0 && in_tile(i) && row + i * kRowStep < rows)
        to[static_cast<int64_t>(row + i * kRowStep) * block.g.columns] = bias[i];
    }
  }
};

/// Dynamic shared memory of a block.
template <class Loader>
struct WgradShared {
  typename Loader::Tile::Shared stages[Loader::Loop::kStages];
  typename Loader::Shared of_loader;
};

template <class Loader, class Tile = typename Loader::Tile, class T = typename Loader::Element>
__global__ void __launch_bounds__(Tile::kThreads, Loader::kBlocks)
    implicit_gemm_wgrad_kernel(ImplicitGemm g, Divisor channels, Divisor image, const T* __restrict__ dy,
                               const T* __restrict__ x, float* __restrict__ partial) {
  extern __shared__ Vec16 memory[];
  auto& shared = *reinterpret_cast<WgradShared<Loader>*>(memory);
  const WgradBlock block(g, channels, image, Loader::kRows, Loader::kColumns);
  Loader loader(block, shared.of_loader, dy, x);
  MmaTile<Loader::kMode, T> mma;
  const uint32_t steps = block.begin < block.end ? ceil_div(block.end - block.begin, Loader::kDepth) : 0;
  Loader::Loop::template run<Tile>(shared.stages, steps, loader, mma);

  float* const out = g.partial_of(partial, block.split, block.group);
  mma.for_each([&](int left, int right, float sum) {
    left += Tile::first_row(), right += Tile::first_column();
    const uint32_t row = block.first_row + (Loader::kColumnsFirst ? right : left);
    const uint32_t column = block.first_column + (Loader::kColumnsFirst ? left : right);
    if (row < g.rows && column < g.depth) out[static_cast<int64_t>(row) * g.columns + column] = sum;
  });
  if (block.sums_bias()) loader.store_bias(out + static_cast<int64_t>(block.first_row) * g.columns + g.depth, memory);
}

template <class Loader>
void run(const ConvCall& call, const Launch& launch) {
  const ImplicitGemm& g = call.gemm;
  launch.with({sizeof(WgradShared<Loader>)}, implicit_gemm_wgrad_kernel<Loader>,
              dim3(call.tiles(g.depth), call.groups(), call.phase.split_k), Loader::Tile::kThreads, g,
              Divisor(g.in_channels), Divisor(int64_t{g.out_height.divisor} * g.out_width.divisor), call.out, call.in,
              call.partial());
  add_parts(call, launch, true);
}

}  // namespace

void implicit_gemm_async_wgrad(const ConvCall& call, const Launch& launch) {
  const auto [rows, columns] = call.plan.tile;  // AsyncLoader exchanges them in shared memory
  visit_tiles<BlockTile<3, 2>, BlockTile<3, 1>>({columns, rows},
                                                [&]<class Tile>() { run<AsyncLoader<Tile>>(call, launch); });
}

void implicit_gemm_wgrad(const ConvCall& call, const Launch& launch) {
  visit_math_mode(call.problem.dtype, call.plan.math_mode, [&]<MathMode kMode, class T>() {
    visit_tiles<BlockTile<1, 5>, BlockTile<2, 3>>(call.plan.tile, [&]<class Tile>() {
      if (call.tiling<ImplicitGemmTiling>().vectorized) run<RegisterLoader<kMode, T, Tile, true>>(call, launch);
      else run<RegisterLoader<kMode, T, Tile, false>>(call, launch);
    });
  });
}

}  // namespace gradus::cuda_detail
