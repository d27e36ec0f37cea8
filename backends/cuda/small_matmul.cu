// y (M, N) = a (M, K) b (K, N) + bias for products that are bound by latency, as in the linear layers of small nets. A
// block makes a tile of 16 x 32 results; its eight warps share K among them, each with tiles in shared memory of its
// own, so that no warp waits for another until their sums are added, in order, at the end.
#include <gradus/backends/cuda/small_matmul.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/launch.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kRows = 16, kColumns = 32, kWarps = 8, kPad = 4;

// Steps are in elements; all offsets fit in 31 bits.
struct Sizes {
  int M, N, K;
  int a_row, a_column, b_row, b_column, y_row, y_column, bias_step;
};

template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    small_matmul_kernel(Sizes sizes, const T* a, const T* b, const T* bias, T* y, bool accumulate) {
  using C = compute_t<T>;
  constexpr int kDepth = sizeof(C) == 8 ? 8 : 16;  // of a warp's tiles
  struct Tiles {
    alignas(16) C a[kDepth][kRows + kPad], b[kDepth][kColumns + kPad];
  };
  __shared__ union Shared {
    Tiles tiles[kWarps];
    C sums[kWarps][kRows][kColumns];
    __device__ Shared() {}
  } shared;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = blockIdx.y * kRows, first_column = blockIdx.x * kColumns;
  Tiles& tiles = shared.tiles[warp];

  // Which elements of its warp's tiles a lane fetches: neighbouring lanes, neighbours in memory.
  const bool a_by_depth = sizes.a_column == 1, b_by_depth = sizes.b_column != 1;
  constexpr int kA = kDepth * kRows / 32, kB = kDepth * kColumns / 32;
  auto place = [&](int i, int size, bool by_depth, int& depth, int& index) {
    const int e = lane + 32 * i;
    depth = by_depth ? e % kDepth : e / size;
    index = by_depth ? e / kDepth : e % size;
  };
  C a_next[kA], b_next[kB];
  auto fetch = [&](int k) {
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      int depth, row;
      place(i, kRows, a_by_depth, depth, row);
      const bool inside = first_row + row < sizes.M && k + depth < sizes.K;
      const C value = static_cast<C>(a[inside ? (first_row + row) * sizes.a_row + (k + depth) * sizes.a_column : 0]);
      a_next[i] = inside ? value : C(0);
    }
#pragma unroll
    for (int i = 0; i < kB; ++i) {
      int depth, column;
      place(i, kColumns, b_by_depth, depth, column);
      const bool inside = first_column + column < sizes.N && k + depth < sizes.K;
      const C value =
          static_cast<C>(b[inside ? (first_column + column) * sizes.b_column + (k + depth) * sizes.b_row : 0]);
      b_next[i] = inside ? value : C(0);
    }
  };

  const int row = lane / 8 * 4, column = lane % 8 * 4;  // of this lane's 4 x 4 results
  C sums[4][4] = {};
  int k = warp * kDepth;
  if (k < sizes.K) fetch(k);
  for (; k < sizes.K; k += kWarps * kDepth) {
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      int depth, at;
      place(i, kRows, a_by_depth, depth, at);
      tiles.a[depth][at] = a_next[i];
    }
#pragma unroll
    for (int i = 0; i < kB; ++i) {
      int depth, at;
      place(i, kColumns, b_by_depth, depth, at);
      tiles.b[depth][at] = b_next[i];
    }
    __syncwarp();
    if (k + kWarps * kDepth < sizes.K) fetch(k + kWarps * kDepth);
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += tiles.a[depth][row + i] * tiles.b[depth][column + j];
    __syncwarp();
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) shared.sums[warp][row + i][column + j] = sums[i][j];
  __syncthreads();
  for (int e = threadIdx.x; e < kRows * kColumns; e += 32 * kWarps) {
    const int m = first_row + e / kColumns, n = first_column + e % kColumns;
    if (m >= sizes.M || n >= sizes.N) continue;
    C sum = 0;
#pragma unroll
    for (int part = 0; part < kWarps; ++part) sum += shared.sums[part][e / kColumns][e % kColumns];
    T& out = y[m * sizes.y_row + n * sizes.y_column];
    if (bias) sum += static_cast<C>(bias[n * sizes.bias_step]);
    if (accumulate) sum += static_cast<C>(out);
    out = static_cast<T>(sum);
  }
}

int64_t tiles_of(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

// True when offsets within the view fit in 31 bits.
bool spans_little(const View& view) {
  int64_t last = 0;
  for (int i = 0; i < view.ndim(); ++i) last += (view.shape[i] - 1) * view.strides[i];
  return last < int64_t{1} << 31;
}

}  // namespace

bool is_small_matmul(const View& a, const View& b, const View& y) {
  if (a.ndim() != 2 || b.ndim() != 2 || !is_floating(a.dtype)) return false;
  const int64_t M = a.shape[0], N = b.shape[1], K = a.shape[1];
  // cuBLAS splits long sums, and has tensor cores; yet for less its workspace is no good bargain.
  if (K >= 1024 || (size_of(a.dtype) == 2 && M * N * K >= int64_t{1} << 24)) return false;
  const int64_t tiles = tiles_of(M, kRows) * tiles_of(N, kColumns);
  return tiles <= 2 * multiprocessor_count(a.device.index) && spans_little(a) && spans_little(b) && spans_little(y);
}

void small_matmul(const View& a, const View& b, const View* bias, const MutableView& y, bool accumulate) {
  EventScope event(bias ? "linear" : "matmul", "cuda", "small_tiles", {&a, &b}, 2 * y.numel() * a.shape[1]);
  if (y.numel() == 0) return;
  auto step = [](const View& view, int axis) { return static_cast<int>(view.strides[axis]); };
  const Sizes sizes{.M = static_cast<int>(a.shape[0]),
                    .N = static_cast<int>(b.shape[1]),
                    .K = static_cast<int>(a.shape[1]),
                    .a_row = step(a, 0),
                    .a_column = step(a, 1),
                    .b_row = step(b, 0),
                    .b_column = step(b, 1),
                    .y_row = step(y, 0),
                    .y_column = step(y, 1),
                    .bias_step = bias ? step(*bias, 0) : 0};
  const dim3 grid(static_cast<uint32_t>(tiles_of(sizes.N, kColumns)), static_cast<uint32_t>(tiles_of(sizes.M, kRows)));
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    launch(small_matmul_kernel<T>, grid, 32 * kWarps, sizes, a.as<T>(), b.as<T>(),
           bias ? bias->as<T>() : static_cast<const T*>(nullptr), y.as<T>(), accumulate);
  });
}

}  // namespace gradus::cuda_detail
