// Matrix products that are too small to fill the device with the tiles of cuBLAS:
//   y[m,n] = sum over k of a[m,k] b[k,n] (+ bias[n], + y[m,n]: optional).  a (M, K), b (K, N), y (M, N): any strides.
//
// small_dots: few results, with both operands contiguous along K, as in y = x wᵀ.
//   Grid: x = N / 4, y = M / 8.  Block: 32 to 256 threads for 8 x 4 results; a thread sums its share of K for all 32
//   results, and loads a vector of each of the 12 rows a round.  Warps reduce by shuffles, and their sums are added in
//   order.
// small_tiles: results that do not fill the device.
//   Grid: x = N / 32, y = M / 16, z = split-K, the blocks of a cluster.  Block: 256 threads for 16 x 32 results; each
//   warp multiplies its share of K, in rounds of 8 elements along K, and a thread computes 4 x 4 sums.
//   Pipeline: registers hold the tiles of the next round while the warp multiplies its tiles in shared memory. No warp
//   waits for another before the end, where the sums of the warps, then of the cluster's blocks, are added.
// Deterministic: all sums are added in an order that depends only on the plan.
#include <cooperative_groups.h>

#include <gradus/backends/cuda/gemm/select.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kRows = kSmallTile.rows, kColumns = kSmallTile.columns, kVec = kGemmVec, kWarps = kGemmWarps;
constexpr int kDepth = 8, kPad = 4;  // depth and padding of a warp's tiles in shared memory
constexpr int kDotRows = kDotTile.rows, kDotColumns = kDotTile.columns;

// The strides of a matrix in elements; all offsets fit in 31 bits.
struct Steps {
  int row, column;

  explicit Steps(const StridedLayout& view)
      : row(static_cast<int>(view.strides[0])), column(static_cast<int>(view.strides[1])) {}
};
struct Sizes {
  int M, N, K;
  Steps a, b, y;
  int bias_step;
  bool a_vectorized, b_vectorized;
};

template <class T>
struct Operands {
  Sizes sizes;
  const T *a, *b, *bias;  // bias may be null
  T* y;
  bool accumulate;

  __device__ void store_epilogue(int m, int n, compute_t<T> sum) const {
    using C = compute_t<T>;
    if (m >= sizes.M || n >= sizes.N) return;
    T& out = y[m * sizes.y.row + n * sizes.y.column];
    if (bias) sum += static_cast<C>(bias[n * sizes.bias_step]);
    if (accumulate) sum += static_cast<C>(out);
    out = static_cast<T>(sum);
  }
};

template <int kWidth, class T>
__global__ void __launch_bounds__(32 * kWarps) dot_kernel(Operands<T> operands) {
  using C = compute_t<T>;
  const Sizes& sizes = operands.sizes;
  __shared__ C parts[kWarps][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int first_row = blockIdx.y * kDotRows, first_column = blockIdx.x * kDotColumns;
  // Rows and columns outside of the matrices are replaced by the last row or column; their results are not stored.
  const T *a_rows[kDotRows], *b_columns[kDotColumns];
#pragma unroll
  for (int i = 0; i < kDotRows; ++i) a_rows[i] = operands.a + min(first_row + i, sizes.M - 1) * sizes.a.row;
#pragma unroll
  for (int j = 0; j < kDotColumns; ++j) b_columns[j] = operands.b + min(first_column + j, sizes.N - 1) * sizes.b.column;
  C sums[kDotRows * kDotColumns] = {};
  for (int k = static_cast<int>(threadIdx.x) * kWidth; k < sizes.K; k += static_cast<int>(blockDim.x) * kWidth) {
    Vec<T, kWidth> left[kDotRows], right[kDotColumns];
#pragma unroll
    for (int i = 0; i < kDotRows; ++i) left[i] = load<kWidth>(a_rows[i] + k);
#pragma unroll
    for (int j = 0; j < kDotColumns; ++j) right[j] = load<kWidth>(b_columns[j] + k);
#pragma unroll
    for (int w = 0; w < kWidth; ++w)
#pragma unroll
      for (int i = 0; i < kDotRows; ++i)
#pragma unroll
        for (int j = 0; j < kDotColumns; ++j)
          sums[i * kDotColumns + j] += static_cast<C>(left[i].value[w]) * static_cast<C>(right[j].value[w]);
  }
  warp_reduce_scatter<16, 1, 16>(sums, lane);  // lane i keeps the warp's sum of result i
  C sum = sums[0];
  if (warps > 1) {
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp > 0) return;
    for (int part = 1; part < warps; ++part) sum += parts[part][lane];
  }
  operands.store_epilogue(first_row + lane / kDotColumns, first_column + lane % kDotColumns, sum);
}

// Loads a tile into the shared memory of a warp: kDepth elements along K of kSize rows of a or kSize columns of b.
template <class T, int kSize>
class TileLoader {
 public:
  using C = compute_t<T>;
  struct alignas(16) Tile {
    C value[kDepth][kSize + kPad];
  };

  // `data` points to the first element of the block's tile. From there on, the matrix has `size` rows or columns.
  __device__ TileLoader(const T* data, int depth_step, int step, int K, int size, bool vectorized)
      : K_(K), size_(size), vectorized_(vectorized), along_tile_(depth_step != 1), depth_step_(depth_step) {
    // Neighbouring lanes load neighbours in memory.
    const int width = vectorized ? kVec : 1, e = width * (threadIdx.x % 32);
    depth_ = along_tile_ ? e / kSize : e % kDepth, index_ = along_tile_ ? e % kSize : e / kDepth;
    next_depth_ = along_tile_ ? 32 * width / kSize : 0, next_index_ = along_tile_ ? 0 : 32 * width / kDepth;
    from_ = data + depth_ * depth_step + index_ * step;
    jump_ = next_depth_ * depth_step + next_index_ * step;
  }
  // Loads the tile from depth k on into registers, with zeros outside of the matrix.
  __device__ void load_tile(int k) {
    const T* from = from_ + k * depth_step_;
    const auto inside = [&](int i) { return k + depth_ + i * next_depth_ < K_ && index_ + i * next_index_ < size_; };
    if (vectorized_) {
#pragma unroll
      for (int i = 0; i < kValues / kVec; ++i) {
        Vec<T, kVec> vec{};
        if (inside(i)) vec = load<kVec>(from + i * jump_);
#pragma unroll
        for (int j = 0; j < kVec; ++j) values_[i * kVec + j] = static_cast<C>(vec.value[j]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kValues; ++i) values_[i] = inside(i) ? static_cast<C>(from[i * jump_]) : C(0);
    }
  }
  // Stores in shared memory what load_tile() loaded.
  __device__ void store_tile(Tile& tile) const {
    C* to = &tile.value[depth_][index_];
    const int jump = next_depth_ * (kSize + kPad) + next_index_;
    if (!vectorized_) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) to[i * jump] = values_[i];
    } else if (along_tile_) {
#pragma unroll
      for (int i = 0; i < kValues / kVec; ++i) {
        Vec<C, kVec> vec;
#pragma unroll
        for (int j = 0; j < kVec; ++j) vec.value[j] = values_[i * kVec + j];
        *reinterpret_cast<Vec<C, kVec>*>(to + i * jump) = vec;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kValues; ++i) to[i / kVec * jump + i % kVec * (kSize + kPad)] = values_[i];
    }
  }

 private:
  static constexpr int kValues = kDepth * kSize / 32;  // values of a lane

  int K_, size_;
  bool vectorized_, along_tile_;
  int depth_step_, depth_, index_, next_depth_, next_index_, jump_;
  const T* from_;
  C values_[kValues];
};

template <class T>
union SmallTileShared {
  struct Tiles {
    typename TileLoader<T, kRows>::Tile a;     // (depth, rows)
    typename TileLoader<T, kColumns>::Tile b;  // (depth, columns)
  };
  Tiles tiles[kWarps];
  compute_t<T> sums[kWarps][kRows][kColumns];
  __device__ SmallTileShared() {}

  __device__ compute_t<T> sum_of_warps(int e) const {
    compute_t<T> sum = 0;
#pragma unroll
    for (int part = 0; part < kWarps; ++part) sum += sums[part][e / kColumns][e % kColumns];
    return sum;
  }
};

// Adds the products of this warp's share of K to the lane's 4 x 4 sums.
template <class T, class C>
__device__ void multiply_tiles(const Operands<T>& operands, typename SmallTileShared<T>::Tiles& tiles,
                               C (&sums)[4][4]) {
  const Sizes& sizes = operands.sizes;
  const int lane = threadIdx.x % 32, row = lane / 8 * 4, column = lane % 8 * 4;
  const int first_row = blockIdx.y * kRows, first_column = blockIdx.x * kColumns;
  TileLoader<T, kRows> left(operands.a + first_row * sizes.a.row, sizes.a.column, sizes.a.row, sizes.K,
                            sizes.M - first_row, sizes.a_vectorized);
  TileLoader<T, kColumns> right(operands.b + first_column * sizes.b.column, sizes.b.row, sizes.b.column, sizes.K,
                                sizes.N - first_column, sizes.b_vectorized);
  const int round = static_cast<int>(gridDim.z) * kWarps * kDepth;
  int k = (static_cast<int>(blockIdx.z) * kWarps + static_cast<int>(threadIdx.x / 32)) * kDepth;
  if (k < sizes.K) left.load_tile(k), right.load_tile(k);
  for (; k < sizes.K; k += round) {
    left.store_tile(tiles.a), right.store_tile(tiles.b);
    __syncwarp();
    if (const int next = k + round; next < sizes.K) left.load_tile(next), right.load_tile(next);
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += tiles.a.value[depth][row + i] * tiles.b.value[depth][column + j];
    __syncwarp();
  }
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps, 2) tile_kernel(Operands<T> operands) {
  using C = compute_t<T>;
  __shared__ SmallTileShared<T> shared;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 8 * 4, column = lane % 8 * 4;
  C sums[4][4] = {};
  multiply_tiles(operands, shared.tiles[warp], sums);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) shared.sums[warp][row + i][column + j] = sums[i][j];
  __syncthreads();
  const auto store = [&](int e, C sum) {
    operands.store_epilogue(blockIdx.y * kRows + e / kColumns, blockIdx.x * kColumns + e % kColumns, sum);
  };
  constexpr int kThreadsOfBlock = 32 * kWarps;
  const int parts = static_cast<int>(gridDim.z);
  if (parts == 1) {
    for (int e = threadIdx.x; e < kRows * kColumns; e += kThreadsOfBlock) store(e, shared.sum_of_warps(e));
    return;
  }
#if __CUDA_ARCH__ >= 900
  const auto cluster = cooperative_groups::this_cluster();
  for (int e = threadIdx.x; e < kRows * kColumns; e += kThreadsOfBlock)
    shared.sums[0][e / kColumns][e % kColumns] = shared.sum_of_warps(e);
  cluster.sync();
  for (int e = kThreadsOfBlock * blockIdx.z + threadIdx.x; e < kRows * kColumns; e += kThreadsOfBlock * parts) {
    C sum = 0;
    for (int part = 0; part < parts; ++part)
      sum += *cluster.map_shared_rank(&shared.sums[0][e / kColumns][e % kColumns], part);
    store(e, sum);
  }
  cluster.sync();  // a block may not end while other blocks read its sums
#endif
}

}  // namespace

bool small_matmul(const GemmPlan& plan, const GemmCall& call) {
  const auto& [name, a, b, bias, y, accumulate, workspace] = call;
  EventScope event(name, "cuda", plan.algorithm->name, {&a, &b}, call.flops(), plan.algorithm->reason);
  const int M = static_cast<int>(y.shape[0]), N = static_cast<int>(y.shape[1]), K = static_cast<int>(a.shape[1]);
  const int bias_step = bias ? static_cast<int>(bias->strides[0]) : 0;
  const Sizes sizes{M, N, K, Steps(a), Steps(b), Steps(y), bias_step, plan.a_vectorized, plan.b_vectorized};
  const dim3 grid(ceil_div(N, plan.tile.columns), ceil_div(M, plan.tile.rows), plan.split_k);
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    const Operands<T> operands{sizes, a.as<T>(), b.as<T>(), bias ? bias->as<T>() : nullptr, y.as<T>(), accumulate};
    if (plan.algorithm == &kSmallTiles)
      launch.with({.cluster = dim3(1, 1, plan.split_k)}, tile_kernel<T>, grid, plan.threads, operands);
    else
      launch(sizes.a_vectorized && sizes.b_vectorized ? dot_kernel<kVec, T> : dot_kernel<1, T>, grid, plan.threads,
             operands);
  });
  return true;
}

}  // namespace gradus::cuda_detail
