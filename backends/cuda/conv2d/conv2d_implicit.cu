// The gather of conv2d.cuh tap by tap: for one (r, s) after the other, weights (rows, channels) times the input
// elements that this tap meets (channels, positions). Whether a position meets the image is decided once for many
// channels, and a thread fetches four floats or eight halves of depth at a time: with one load where channels lie side
// by side, else with neighbouring threads at neighbouring positions. The weights are packed for this beforehand.
// Products by mma_tile.cuh.
#include <gradus/backends/cuda/conv2d/conv2d_implicit.cuh>

namespace gradus::cuda_detail {
namespace {

template <MathMode kMode, class Tile>
inline constexpr uint32_t kBlocks = implicit_blocks(kMode, Tile::kThreads / 32);

/// A position of the tile: where it reads before the tap is added, and where its result goes (negative: nowhere), in
/// bytes.
struct Place {
  uint32_t in;
  int h, w, out;
};

/// A position under a tap: where its first channel of the step lies, and whether the image has it.
struct Spot {
  uint32_t offset;
  bool inside;
};

// Grid: tiles of positions, tiles of rows, groups x splits. The next step is fetched into registers while this one is
// multiplied. kVector: channels lie side by side, in pieces of 16 aligned bytes. With `partial` (splits, groups, rows,
// positions) each split of the steps leaves its sums there.
template <MathMode kMode, class T, class Tile, bool kVector>
__global__ void __launch_bounds__(Tile::kThreads, kBlocks<kMode, Tile>)
    implicit_kernel(Gather gather, Steps steps, const T* __restrict__ input, const Vec16* __restrict__ packed,
                    const T* __restrict__ bias, bool relu, T* __restrict__ output, float* __restrict__ partial) {
  constexpr int kThreads = Tile::kThreads, kSize = kVec16Size<T>;
  constexpr int kLeft = Tile::kRows * kRowVecs / kThreads, kRight = Tile::kColumns * kRowVecs / kThreads;
  extern __shared__ Vec16 memory[];
  auto* tiles = reinterpret_cast<typename Tile::Shared*>(memory);  // two of them
  auto* places = reinterpret_cast<Place*>(tiles + 2);
  auto* biases = reinterpret_cast<float*>(places + Tile::kColumns);

  const uint32_t group = blockIdx.z / steps.splits, split = blockIdx.z % steps.splits;
  const uint32_t first_step = split * steps.per_split, end_step = min(first_step + steps.per_split, steps.count);
  const uint32_t first_row = blockIdx.y * Tile::kRows, first_position = blockIdx.x * Tile::kColumns;
  input += group * gather.in_channels * gather.in.c;
  packed += ((static_cast<int64_t>(group) * steps.count + first_step) * steps.packed_rows + first_row) * kRowVecs;
  for (int i = threadIdx.x; i < Tile::kColumns; i += kThreads) {
    uint32_t w = first_position + i;
    Place place{0, kOutside, kOutside, -1};
    if (w < gather.positions) {
      uint32_t h = gather.out_width.split(w);
      const uint32_t n = gather.out_height.split(h);
      place = {static_cast<uint32_t>(n * gather.in.n * sizeof(T)),
               static_cast<int>(h) * gather.step[0] + gather.origin[0],
               static_cast<int>(w) * gather.step[1] + gather.origin[1],
               static_cast<int>((n * gather.out.n + h * gather.out.h + w * gather.out.w) * sizeof(T))};
    }
    places[i] = place;
  }
  for (int i = threadIdx.x; i < Tile::kRows; i += kThreads)
    biases[i] = bias && first_row + i < gather.rows ? static_cast<float>(bias[group * gather.rows + first_row + i]) : 0;
  __syncthreads();

  // Vector i of a thread: where channels lie side by side the four of a column go to neighbouring threads, else each
  // thread takes all four of its columns.
  constexpr int kSpots = kVector ? kRight : Tile::kColumns / kThreads,
                kSpotStep = kVector ? kThreads / kRowVecs : kThreads;
  const auto column_of = [](int i) {
    return static_cast<int>(kVector ? threadIdx.x / kRowVecs : threadIdx.x) + i % kSpots * kSpotStep;
  };
  const auto piece_of = [](int i) { return kVector ? static_cast<int>(threadIdx.x % kRowVecs) : i / kSpots; };
  Vec16 left[kLeft];
  T right[kRight][kSize];
  uint32_t chunk = first_step % steps.chunks, s = first_step / steps.chunks;  // of the step that is fetched next
  uint32_t r = s / steps.tap_columns;
  s %= steps.tap_columns;
  auto fetch = [&] {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) left[i] = packed[threadIdx.x + i * kThreads];
    packed += steps.packed_rows * kRowVecs;
    const int tap_h = static_cast<int>(r) * gather.tap_step[0], tap_w = static_cast<int>(s) * gather.tap_step[1];
    Spot spots[kSpots];  // of the columns that this thread fetches
#pragma unroll
    for (int i = 0; i < kSpots; ++i) {
      const Place place = places[column_of(i)];
      int h = place.h + tap_h, w = place.w + tap_w;
      bool inside = true;
      if (gather.stride[0] > 1 || gather.stride[1] > 1) {  // backward: only multiples of the stride were read
        const int p = static_cast<int>(gather.stride_h.quotient(max(h, 0)));
        const int q = static_cast<int>(gather.stride_w.quotient(max(w, 0)));
        inside = p * gather.stride[0] == h && q * gather.stride[1] == w;
        h = p, w = q;
      }
      spots[i].inside = inside && within(h, gather.in_height) && within(w, gather.in_width);
      spots[i].offset = place.in + h * steps.in_h + w * steps.in_w + chunk * kRowDepth<T> * steps.in_c;
    }
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      const int piece = piece_of(i);
      const Spot spot = spots[i % kSpots];
      const bool inside = spot.inside && chunk * kRowDepth<T> + piece * kSize < gather.in_channels;
      const char* from = whole(reinterpret_cast<const char*>(input) + (spot.offset + piece * kSize * steps.in_c));
      if constexpr (kVector) {
        Vec16 loaded{};
        if (inside) loaded = load_global<Vec16>(from);
        memcpy(right[i], &loaded, sizeof loaded);
      } else {
#pragma unroll
        for (int j = 0; j < kSize; ++j, from += steps.in_c) right[i][j] = inside ? load_global<T>(from) : T(0.0f);
      }
    }
    if (++chunk == steps.chunks) {
      chunk = 0;
      if (++s == steps.tap_columns) s = 0, ++r;
    }
  };
  auto put = [&](typename Tile::Shared& tile) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const int e = threadIdx.x + i * kThreads;
      tile.left[e / kRowVecs][e % kRowVecs] = left[i];
    }
#pragma unroll
    for (int i = 0; i < kRight; ++i) tile.right[column_of(i)][piece_of(i)] = make_vec16<kMode, T>(right[i]);
  };

  MmaTile<kMode, T> engine;
  fetch();
  put(tiles[0]);
  __syncthreads();
  int buffer = 0;
  for (uint32_t step = first_step; step < end_step; ++step, buffer ^= 1) {
    const bool more = step + 1 < end_step;
    if (more) fetch();
    const typename Tile::Shared& tile = tiles[buffer];
    engine.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    if (more) put(tiles[buffer ^ 1]);
    __syncthreads();
  }
  const uint32_t row_base = first_row + Tile::first_row();
  const Place* const warp_places = places + Tile::first_column();
  if (partial) {
    const int64_t line = static_cast<int64_t>(split * (gridDim.z / steps.splits) + group) * gather.rows + row_base;
    float* const to = partial + line * gather.positions + first_position + Tile::first_column();
    engine.for_each([&](int row, int column, float sum) {
      if (row_base + row < gather.rows && warp_places[column].out >= 0) to[row * gather.positions + column] = sum;
    });
  } else {
    const uint32_t channel_base = group * gather.rows + row_base;
    char* const to = reinterpret_cast<char*>(output) + static_cast<int64_t>(channel_base) * steps.out_c;
    engine.for_each([&](int row, int column, float sum) {
      const int at = warp_places[column].out;
      if (row_base + row >= gather.rows || at < 0) return;
      sum += biases[Tile::first_row() + row];
      if (relu && sum < 0.0f) sum = 0.0f;
      *reinterpret_cast<T*>(to + (at + row * steps.out_c)) = static_cast<T>(sum);
    });
  }
}

}  // namespace

void implicit_gather(const GatherCall& call, const Launch& launch) {
  const ConvPlan& plan = call.plan;
  visit_math_mode(call.problem.dtype, plan.math_mode, [&]<MathMode kMode, class T>() {
    visit_tiles<BlockTile<1, 4>, BlockTile<2, 2>>(plan.tile, [&]<class Tile>() {
      constexpr size_t kShared =
          2 * sizeof(typename Tile::Shared) + Tile::kColumns * sizeof(Place) + Tile::kRows * sizeof(float);
      const auto kernel =
          plan.vectorized ? implicit_kernel<kMode, T, Tile, true> : implicit_kernel<kMode, T, Tile, false>;
      const auto gemm = [&](const Steps& steps, dim3 grid, const Vec16* packed, float* partial) {
        launch.with_shared(kernel, grid, Tile::kThreads, kShared, call.gather, steps, call.input, packed, call.bias,
                           call.problem.relu, call.output, partial);
      };
      run_packed<kMode, T>(call, call.gather, call.weight, call.output, plan.split_k, plan.per_split, launch, gemm);
    });
  });
}

}  // namespace gradus::cuda_detail
