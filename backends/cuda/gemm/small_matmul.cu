// Products of matrices too small to fill the device by cuBLAS's tiles: those of the layers of small nets. The warps of
// a block share K among them, and their sums are added in order at the end, so that no warp waits for another before.
// Where both operands lie along K in memory, as in y = x wᵀ, and the results are few, a lane multiplies what it loaded
// (dot_kernel). Else a warp goes through tiles in shared memory (tile_kernel), and where these are few and K is long,
// the blocks of a cluster share K too.
#include <cooperative_groups.h>

#include <gradus/backends/cuda/gemm/small_matmul.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kRows = 16, kColumns = 32, kWarps = 8;  // of a block's tile
constexpr int kDepth = 8, kPad = 4;                   // of a warp's panels in shared memory
constexpr int kVec = 4;                               // elements that a lane loads at once where it can

// Steps are in elements; all offsets fit in 31 bits.
struct Sizes {
  int M, N, K;
  int a_row, a_column, b_row, b_column, y_row, y_column, bias_step;
  bool a_vectorized, b_vectorized;  // along a unit step, whole vectors, aligned
};

// To where the sum over K goes.
template <class T, class C>
__device__ void finish(const Sizes& sizes, int m, int n, C sum, const T* bias, T* y, bool accumulate) {
  T& out = y[m * sizes.y_row + n * sizes.y_column];
  if (bias) sum += static_cast<C>(bias[n * sizes.bias_step]);
  if (accumulate) sum += static_cast<C>(out);
  out = static_cast<T>(sum);
}

// A block makes a tile of 8 x 4 results. Its lanes take the K of a round among them, a vector each, and keep the sums
// of all 32 results for it; exchanges then leave lane i of a warp with the warp's sum of result i.
constexpr int kDotRows = 8, kDotColumns = 4, kDotWarps = 8;

template <int kWidth, class T>
__global__ void __launch_bounds__(32 * kDotWarps)
    dot_kernel(Sizes sizes, const T* a, const T* b, const T* bias, T* y, bool accumulate) {
  using C = compute_t<T>;
  __shared__ C parts[kDotWarps][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int first_row = blockIdx.y * kDotRows, first_column = blockIdx.x * kDotColumns;
  // What is outside is read again where it is inside, and not written.
  const T *a_rows[kDotRows], *b_columns[kDotColumns];
#pragma unroll
  for (int i = 0; i < kDotRows; ++i) a_rows[i] = a + min(first_row + i, sizes.M - 1) * sizes.a_row;
#pragma unroll
  for (int j = 0; j < kDotColumns; ++j) b_columns[j] = b + min(first_column + j, sizes.N - 1) * sizes.b_column;
  C sums[32] = {};
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
  warp_reduce_scatter<16, 1, 16>(sums, lane);
  C sum = sums[0];
  if (warps > 1) {
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp > 0) return;
    for (int part = 1; part < warps; ++part) sum += parts[part][lane];
  }
  const int m = first_row + lane / kDotColumns, n = first_column + lane % kDotColumns;
  if (m < sizes.M && n < sizes.N) finish(sizes, m, n, sum, bias, y, accumulate);
}

// kDepth rows of K of a (transposed) or b, kSize elements each, as a warp brings them to its shared memory.
template <class T, int kSize>
class Panel {
 public:
  using C = compute_t<T>;
  struct alignas(16) Tile {
    C value[kDepth][kSize + kPad];
  };

  // `data`: its first element, `size`: how many there are in a row of K from there.
  __device__ Panel(const T* data, int depth_step, int step, int K, int size, bool packed)
      : K_(K), size_(size), packed_(packed), along_tile_(depth_step != 1), depth_step_(depth_step) {
    // Neighbouring lanes take neighbours in memory.
    const int width = packed ? kVec : 1, e = width * (threadIdx.x % 32);
    depth_ = along_tile_ ? e / kSize : e % kDepth, index_ = along_tile_ ? e % kSize : e / kDepth;
    next_depth_ = along_tile_ ? 32 * width / kSize : 0, next_index_ = along_tile_ ? 0 : 32 * width / kDepth;
    from_ = data + depth_ * depth_step + index_ * step;
    jump_ = next_depth_ * depth_step + next_index_ * step;
  }
  __device__ void fetch(int k) {
    const T* from = from_ + k * depth_step_;
    const auto inside = [&](int i) { return k + depth_ + i * next_depth_ < K_ && index_ + i * next_index_ < size_; };
    if (packed_) {
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
  __device__ void put(Tile& tile) const {
    C* to = &tile.value[depth_][index_];
    const int jump = next_depth_ * (kSize + kPad) + next_index_;
    if (!packed_) {
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
  static constexpr int kValues = kDepth * kSize / 32;  // of a lane

  int K_, size_;
  bool packed_, along_tile_;
  int depth_step_, depth_, index_, next_depth_, next_index_, jump_;
  const T* from_;
  C values_[kValues];
};

template <class T>
__global__ void __launch_bounds__(32 * kWarps, 2)
    tile_kernel(Sizes sizes, const T* a, const T* b, const T* bias, T* y, bool accumulate) {
  using C = compute_t<T>;
  using Left = Panel<T, kRows>;
  using Right = Panel<T, kColumns>;
  struct Tiles {
    typename Left::Tile a;
    typename Right::Tile b;
  };
  __shared__ union Shared {
    Tiles tiles[kWarps];
    C sums[kWarps][kRows][kColumns];
    __device__ Shared() {}
  } shared;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = blockIdx.y * kRows, first_column = blockIdx.x * kColumns;
  Tiles& tiles = shared.tiles[warp];
  Left left(a + first_row * sizes.a_row, sizes.a_column, sizes.a_row, sizes.K, sizes.M - first_row, sizes.a_vectorized);
  Right right(b + first_column * sizes.b_column, sizes.b_row, sizes.b_column, sizes.K, sizes.N - first_column,
              sizes.b_vectorized);

  const int row = lane / 8 * 4, column = lane % 8 * 4;  // of this lane's 4 x 4 results
  C sums[4][4] = {};
  const int parts = static_cast<int>(gridDim.z),
            round = parts * kWarps * kDepth;  // parts of K, a block of a cluster each
  int k = (static_cast<int>(blockIdx.z) * kWarps + warp) * kDepth;
  if (k < sizes.K) left.fetch(k), right.fetch(k);
  for (; k < sizes.K; k += round) {
    left.put(tiles.a), right.put(tiles.b);
    __syncwarp();
    if (const int next = k + round; next < sizes.K) left.fetch(next), right.fetch(next);
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += tiles.a.value[depth][row + i] * tiles.b.value[depth][column + j];
    __syncwarp();
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) shared.sums[warp][row + i][column + j] = sums[i][j];
  __syncthreads();
  const auto sum_of_warps = [&](int e) {
    C sum = 0;
#pragma unroll
    for (int part = 0; part < kWarps; ++part) sum += shared.sums[part][e / kColumns][e % kColumns];
    return sum;
  };
  const auto put = [&](int e, C sum) {
    const int m = first_row + e / kColumns, n = first_column + e % kColumns;
    if (m < sizes.M && n < sizes.N) finish(sizes, m, n, sum, bias, y, accumulate);
  };
  constexpr int kThreadsOfBlock = 32 * kWarps;
  if (parts == 1) {
    for (int e = threadIdx.x; e < kRows * kColumns; e += kThreadsOfBlock) put(e, sum_of_warps(e));
    return;
  }
#if __CUDA_ARCH__ >= 900
  const auto cluster = cooperative_groups::this_cluster();
  for (int e = threadIdx.x; e < kRows * kColumns; e += kThreadsOfBlock)
    shared.sums[0][e / kColumns][e % kColumns] = sum_of_warps(e);
  cluster.sync();
  for (int e = kThreadsOfBlock * blockIdx.z + threadIdx.x; e < kRows * kColumns; e += kThreadsOfBlock * parts) {
    C sum = 0;
    for (int part = 0; part < parts; ++part)
      sum += *cluster.map_shared_rank(&shared.sums[0][e / kColumns][e % kColumns], part);
    put(e, sum);
  }
  cluster.sync();  // nobody leaves while others read its sums
#endif
}

int64_t tiles_of(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

// True when offsets within the view fit in 31 bits.
bool spans_little(const View& view) {
  int64_t last = 0;
  for (int i = 0; i < view.ndim(); ++i) last += (view.shape[i] - 1) * view.strides[i];
  return last < int64_t{1} << 31;
}

// True when the axis has a unit step and rows along it consist of aligned vectors.
bool can_vectorize(const View& view, int axis) {
  return view.strides[axis] == 1 && view.shape[axis] % kVec == 0 && view.strides[1 - axis] % kVec == 0 &&
         reinterpret_cast<uintptr_t>(view.data) % (kVec * size_of(view.dtype)) == 0;
}

// Into how many parts, a block of a cluster each, K is cut where the tiles leave much of the device idle. The barriers
// of a cluster cost a microsecond, which a shorter K does not repay.
uint32_t parts_of(int64_t K, int64_t tiles, Device device) {
  if (K < 512 || !has_clusters(tile_kernel<float>, device)) return 1;
  uint32_t parts = 1;
  while (parts < 8 && 256 * parts <= K && 2 * parts * tiles <= 128) parts *= 2;
  return parts;
}

// How many tiles of rows x columns y has.
dim3 grid_of(const View& y, int rows, int columns) {
  return dim3(static_cast<uint32_t>(tiles_of(y.shape[1], columns)), static_cast<uint32_t>(tiles_of(y.shape[0], rows)));
}

// A block of dot_kernel reads twelve rows of K for its 32 results, one of tile_kernel 48 for 512: that is for few
// results or a short K, and tensor cores take over earlier.
bool by_dots(const View& a, const View& b, const View& y) {
  const dim3 dots = grid_of(y, kDotRows, kDotColumns);
  const int64_t K = a.shape[1], most = size_of(a.dtype) == 2 ? int64_t{1} << 18 : int64_t{1} << 19;
  return a.strides[1] == 1 && b.strides[0] == 1 && K <= 4096 && dots.x * dots.y * K <= most;
}

}  // namespace

bool is_small_matmul(const View& a, const View& b, const View& y) {
  if (a.ndim() != 2 || b.ndim() != 2 || !is_floating(a.dtype)) return false;
  const int64_t M = a.shape[0], N = b.shape[1], K = a.shape[1];
  const int64_t tiles = tiles_of(M, kRows) * tiles_of(N, kColumns);
  if (tiles > 2 * device_properties(a.device.index).multiprocessors) return false;
  if (!by_dots(a, b, y)) {
    // cuBLAS splits long sums, and has tensor cores; yet for less its workspace is no good bargain.
    if (size_of(a.dtype) == 2 && M * N * K >= int64_t{1} << 23) return false;
    if (K >= 1024 && K > 512 * parts_of(K, tiles, a.device)) return false;
  }
  return spans_little(a) && spans_little(b) && spans_little(y);
}

void small_matmul(const View& a, const View& b, const View* bias, const MutableView& y, bool accumulate) {
  const bool as_dots = by_dots(a, b, y);
  EventScope event(bias ? "linear" : "matmul", "cuda", as_dots ? "small_dots" : "small_tiles", {&a, &b},
                   2 * y.numel() * a.shape[1]);
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
                    .bias_step = bias ? step(*bias, 0) : 0,
                    .a_vectorized = can_vectorize(a, a.strides[1] == 1 ? 1 : 0),
                    .b_vectorized = can_vectorize(b, b.strides[1] == 1 ? 1 : 0)};
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    const T *left = a.as<T>(), *right = b.as<T>(), *added = bias ? bias->as<T>() : nullptr;
    if (as_dots) {
      const dim3 dots = grid_of(y, kDotRows, kDotColumns);
      const bool packed = sizes.a_vectorized && sizes.b_vectorized;
      // Of many blocks each has fewer warps, so that all are in flight at once.
      const int64_t rounds = tiles_of(sizes.K, packed ? 32 * kVec : 32);
      const int64_t warps = std::min<int64_t>(rounds, dots.x * dots.y > 256 ? kDotWarps / 2 : kDotWarps);
      return launch(packed ? dot_kernel<kVec, T> : dot_kernel<1, T>, dots, static_cast<uint32_t>(32 * warps), sizes,
                    left, right, added, y.as<T>(), accumulate);
    }
    dim3 tiles = grid_of(y, kRows, kColumns);
    tiles.z = parts_of(sizes.K, tiles.x * tiles.y, y.device);
    if (tiles.z == 1)
      return launch(tile_kernel<T>, tiles, 32 * kWarps, sizes, left, right, added, y.as<T>(), accumulate);
    launch.in_clusters(tile_kernel<T>, dim3(1, 1, tiles.z), tiles, 32 * kWarps, sizes, left, right, added, y.as<T>(),
                       accumulate);
  });
}

}  // namespace gradus::cuda_detail
