#include "../common/exercise.cuh"

constexpr int kThreads = 256;          // of a block
constexpr int kWarps = kThreads / 32;  // of a block
constexpr int kTile = 16;              // rows and columns of a tile
// [hole]

/// The sum, or the largest, of the values of a warp's lanes, in every lane.
__device__ inline float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, step));
  return value;
}
// [end]

/// y[i] = sum over j of x[i, j]; x: (rows, columns).  Grid: rows.  Block: kThreads threads, which share a row.
__global__ void block_sums(int columns, const float* x, float* y) {
  // [hole] block_sums: a sum for each thread, then a tree in shared memory
  __shared__ float sums[kThreads];
  float sum = 0;
  for (int j = threadIdx.x; j < columns; j += kThreads) sum += x[blockIdx.x * columns + j];
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) y[blockIdx.x] = sums[0];
  // [end]
}

/// The same sums.  Grid: rows / kWarps, rounded up.  Block: kWarps warps; each has a row, where there is one for it.
__global__ void warp_sums(int rows, int columns, const float* x, float* y) {
  // [hole] warp_sums: a sum for each lane, then shuffles
  const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0;
  for (int j = lane; j < columns; j += 32) sum += x[row * columns + j];
  sum = warp_sum(sum);
  if (lane == 0) y[row] = sum;
  // [end]
}

/// y[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]); x, y: (rows, columns).  Grid and block: as of warp_sums.
__global__ void row_softmax(int rows, int columns, const float* x, float* y) {
  // [hole] row_softmax: the row's maximum, the sum of exp(x - maximum), the quotients
  const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  x += row * columns, y += row * columns;
  float largest = -INFINITY, sum = 0;
  for (int j = lane; j < columns; j += 32) largest = fmaxf(largest, x[j]);
  largest = warp_max(largest);
  for (int j = lane; j < columns; j += 32) sum += expf(x[j] - largest);
  sum = warp_sum(sum);
  for (int j = lane; j < columns; j += 32) y[j] = expf(x[j] - largest) / sum;
  // [end]
}

/// C = A B; A: (m, k), B: (k, n), C: (m, n).
/// Grid: x = n / kTile, y = m / kTile, rounded up.  Block: (kTile, kTile) threads; each makes a number of a tile of C.
__global__ void product(int m, int n, int k, const float* A, const float* B, float* C) {
  // [hole] product: tile by tile along k, each loaded once by the block
  __shared__ float a[kTile][kTile], b[kTile][kTile];
  const int tx = threadIdx.x, ty = threadIdx.y, column = blockIdx.x * kTile + tx, row = blockIdx.y * kTile + ty;
  float sum = 0;
  for (int first = 0; first < k; first += kTile) {
    a[ty][tx] = row < m && first + tx < k ? A[row * k + first + tx] : 0;
    b[ty][tx] = first + ty < k && column < n ? B[(first + ty) * n + column] : 0;
    __syncthreads();  // the tiles are there
    for (int i = 0; i < kTile; ++i) sum += a[ty][i] * b[i][tx];
    __syncthreads();  // no thread reads the tiles any more
  }
  if (row < m && column < n) C[row * n + column] = sum;
  // [end]
}
