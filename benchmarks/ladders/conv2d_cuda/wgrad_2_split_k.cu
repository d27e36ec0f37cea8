// Gradient of filters, rung 2, split-K: dw (K, 9 C) is the product of dy (K, N H W) and x (9 C, N H W), whose row
// (r,s,c) is x[., . + r - 1, . + s - 1, c]. The result has few tiles, but the depth is all pixels. Therefore several
// blocks share the depth, and a second kernel adds their parts in order. Atomic additions would give different bits in
// each run.
// Tiles of 64 filters x 128 of the 9 C columns; a step has a depth of 16 (float32) or 32 (bfloat16) pixels.
// Grid: x = tiles of columns, y = tiles of filters, z = splits.  Block: 128 threads; a warp has 32 x 64 results.
// Pipeline: none. The depth is not contiguous in memory, so elements are loaded one by one and stored transposed.
#include <algorithm>

#include <gradus/benchmarks/ladders/conv2d_cuda/implicit_gemm.cuh>

namespace gradus::ladders {
namespace {

using cuda_detail::MathMode;

template <class T>
__device__ void load_tile(const Wgrad<T>& conv, int first_pixel, Tile::Shared& tile) {
  const auto [N, H, W, C, K] = conv.size;
  const int first_k = static_cast<int>(blockIdx.y) * Tile::kRows;
  const int first_column = static_cast<int>(blockIdx.x) * Tile::kColumns;
  for (int i = threadIdx.x; i < Tile::kRows * kDepth<T>; i += Tile::kThreads) {
    const int row = i % Tile::kRows, k = first_k + row, pixel = first_pixel + i / Tile::kRows;
    const bool exists = k < K && pixel < N * H * W;
    reinterpret_cast<T*>(tile.left[row])[i / Tile::kRows] = exists ? conv.dy[int64_t{pixel} * K + k] : T(0.0f);
  }
  const int column = first_column + threadIdx.x % Tile::kColumns, c = column % C, rs = column / C;
  static_assert(Tile::kThreads == Tile::kColumns);  // so each thread loads one column
  for (int i = 0; i < kDepth<T>; ++i) {
    const int pixel = first_pixel + i, h = pixel / W % H + rs / 3 - 1, w = pixel % W + rs % 3 - 1, n = pixel / W / H;
    const bool inside = rs < 9 && n < N && h >= 0 && h < H && w >= 0 && w < W;
    reinterpret_cast<T*>(tile.right[threadIdx.x])[i] = inside ? conv.x[(int64_t{n * H + h} * W + w) * C + c] : T(0.0f);
  }
}

template <MathMode kMode, class T>
__global__ void __launch_bounds__(Tile::kThreads) wgrad_kernel(Wgrad<T> conv, int pixels) {
  __shared__ Tile::Shared tile;
  cuda_detail::MmaTile<kMode, T> mma;
  const int first = static_cast<int>(blockIdx.z) * pixels;
  for (int pixel = first; pixel < first + pixels; pixel += kDepth<T>) {
    __syncthreads();
    load_tile(conv, pixel, tile);
    __syncthreads();
    mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
  }
  const int C = conv.size.C, K = conv.size.K;
  const int first_k = static_cast<int>(blockIdx.y) * Tile::kRows + Tile::first_row();
  const int first_column = static_cast<int>(blockIdx.x) * Tile::kColumns + Tile::first_column();
  mma.for_each([&](int row, int column, float sum) {
    const int k = first_k + row, at = first_column + column;
    if (k < K && at < 9 * C) conv.partials[(int64_t{blockIdx.z} * K + k) * 9 * C + at] = sum;
  });
}

template <class T>
__global__ void sum_kernel(Wgrad<T> conv, int splits) {
  const int i = static_cast<int>(cuda_detail::thread_index()), count = 9 * conv.size.C * conv.size.K;
  if (i >= count) return;
  float sum = 0;
  for (int split = 0; split < splits; ++split) sum += conv.partials[int64_t{split} * count + i];
  conv.dw[i] = static_cast<T>(sum);
}

template <MathMode kMode, class T>
void run(const Wgrad<T>& conv, Device device) {
  const auto [N, H, W, C, K] = conv.size;
  const cuda_detail::Launch launch(device);
  const int columns = static_cast<int>(ceil_div(9 * C, Tile::kColumns)),
            rows = static_cast<int>(ceil_div(K, Tile::kRows));
  const int wanted = std::clamp(4 * launch.multiprocessors() / (columns * rows), 1, kMostSplits);
  const int pixels = round_up(ceil_div(N * H * W, wanted), kDepth<T>);  // pixels in a split
  const int splits = ceil_div(N * H * W, pixels);
  launch(wgrad_kernel<kMode, T>, dim3(columns, rows, splits), Tile::kThreads, conv, pixels);
  launch(sum_kernel<T>, ceil_div(9 * C * K, 128), 128, conv, splits);
}

}  // namespace

void wgrad_split_k(const Wgrad<float>& conv, Device device) { run<MathMode::fma>(conv, device); }
void wgrad_split_k(const Wgrad<BFloat16>& conv, Device device) { run<MathMode::half>(conv, device); }

}  // namespace gradus::ladders
