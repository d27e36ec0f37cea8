// Layer norm, and other normalisation of contiguous rows, and its gradients (formulas: normalize.cu).
// Layout: x, y, dy, dx (rows, size), weight and bias (size), dense. A float32 row has at most 8,192 elements, in
// backward 4,096.
// Grid: forward: x = a team of threads for each row; backward: x = as many teams as are resident at once, each of which
// loops over rows.  Block: a team of 32 to 512 threads, or eight teams of one warp. A thread keeps up to four vectors
// of 16 bytes (backward: eight elements in vectors), or eight (backward: four) single elements, of its row in
// registers, so that each array is read once.
// Phases: forward computes the mean, then the moments about it, which correct the rounding error of the mean. Backward
// also sums each team's part of dw and dbias; a second launch adds the parts.
// Deterministic: sums over threads are fixed trees, and parts are added in a fixed order.
#include <gradus/backends/cuda/device/warp.cuh>
#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kRowThreads = 512;  // maximum of a block; each thread may use 64 registers, for float64 128

/// Calls body(k, i) for this thread's vectors of a row, where vector k begins at element i.
template <int kWidth, int kSteps, class Body>
__device__ void for_vectors(uint32_t size, Body&& body) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const uint32_t i = kWidth * (threadIdx.x + k * blockDim.x);
    if (i < size) body(k, i);
  }
}

template <int kWidth, int kSteps, class T>
__global__ void __launch_bounds__(kRowThreads, sizeof(T) == 8 ? 1 : 2)
    rows_kernel(T* y, const T* x, compute_t<T>* means, compute_t<T>* variances, Parameter<T> weight, Parameter<T> bias,
                compute_t<T> eps, uint32_t rows, uint32_t size) {
  using C = compute_t<T>;
  __shared__ Sums<C> shared[32];
  const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // only whole warps return, because a team is a warp or a whole block
  const int64_t begin = static_cast<int64_t>(row) * size;
  C values[kSteps][kWidth] = {}, sum = 0;
  for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t i) { load_dense<kWidth>(values[k], x + begin + i); });
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += values[k][j];
  const C about = block_reduce(Sums<C>{sum, 0}, shared, Sums<C>::join).plain / static_cast<C>(size);
  Sums<C> distances{0, 0};
  for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      values[k][j] -= about;
      distances = Sums<C>::join(distances, {values[k][j], values[k][j] * values[k][j]});
    }
  });
  distances = block_reduce(distances, shared, Sums<C>::join);
  // `rest` is the rounding error of the mean `about`, which is large if the mean is large.
  const C rest = distances.plain / static_cast<C>(size);
  const C difference = distances.along / static_cast<C>(size) - rest * rest;
  const C variance = difference < C(0) ? C(0) : difference;  // rounding can make it negative if all elements are equal
  if (threadIdx.x == 0) means[row] = about + rest, variances[row] = variance;
  const C s = C(1) / ::sqrt(variance + eps);
  for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t i) {
    C scale[kWidth], shift[kWidth];
    if (weight.data) weight.load(scale, i);
    if (bias.data) bias.load(shift, i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      values[k][j] = (values[k][j] - rest) * (weight.data ? s * scale[j] : s) + (bias.data ? shift[j] : C(0));
    store_dense<kWidth>(y + begin + i, values[k]);
  });
}

// `partial` (teams, size) receives the column sums of every team's rows. It is null if the gradients of the parameters
// are not needed.
template <int kWidth, int kSteps, class T>
__global__ void __launch_bounds__(kRowThreads, sizeof(T) == 8 ? 1 : 2)
    rows_backward_kernel(T* dx, const T* dy, const T* x, const compute_t<T>* means, const compute_t<T>* variances,
                         Parameter<T> weight, compute_t<T> eps, uint32_t rows, uint32_t size,
                         Sums<compute_t<T>>* partial) {
  using C = compute_t<T>;
  __shared__ Sums<C> shared[32];
  const uint32_t team = blockIdx.x * blockDim.y + threadIdx.y, teams = gridDim.x * blockDim.y;
  Vec<Sums<C>, kWidth> columns[kSteps] = {};
  for (uint32_t row = team; row < rows; row += teams) {
    const int64_t begin = static_cast<int64_t>(row) * size;
    Vec<T, kWidth> dy_vectors[kSteps], x_vectors[kSteps];
    for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t i) {
      dy_vectors[k] = *reinterpret_cast<const Vec<T, kWidth>*>(dy + begin + i);
      x_vectors[k] = *reinterpret_cast<const Vec<T, kWidth>*>(x + begin + i);
    });
    const C mean = means[row], s = C(1) / ::sqrt(variances[row] + eps);
    C g[kSteps][kWidth], h[kSteps][kWidth];
    Sums<C> total{0, 0};
    for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t i) {
      C factor[kWidth];
      if (weight.data) weight.load(factor, i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        g[k][j] = static_cast<C>(dy_vectors[k].value[j]);
        h[k][j] = (static_cast<C>(x_vectors[k].value[j]) - mean) * s;
        columns[k].value[j] = Sums<C>::join(columns[k].value[j], {g[k][j], g[k][j] * h[k][j]});
        if (weight.data) g[k][j] *= factor[j];
        total = Sums<C>::join(total, {g[k][j], g[k][j] * h[k][j]});
      }
    });
    total = block_reduce(total, shared, Sums<C>::join);
    const C g_average = total.plain / static_cast<C>(size), h_average = total.along / static_cast<C>(size);
    for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t i) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) g[k][j] = s * (g[k][j] - g_average - h[k][j] * h_average);
      store_dense<kWidth>(dx + begin + i, g[k]);
    });
  }
  if (!partial) return;
  partial += static_cast<int64_t>(team) * size;
  for_vectors<kWidth, kSteps>(
      size, [&](int k, uint32_t i) { *reinterpret_cast<Vec<Sums<C>, kWidth>*>(partial + i) = columns[k]; });
}

/// Where the column sums are stored: `plain` is dbias, `along` is dw. Either may be null.
template <class C>
struct SumResults {
  C *plain, *along;

  __device__ void store(const int64_t (&at)[1], const Sums<C>& sums) const {
    if (plain) plain[at[0]] = sums.plain;
    if (along) along[at[0]] = sums.along;
  }
};

/// The Op of reduce() that adds pairs of sums.
template <class C>
struct AddSums {
  using A = Sums<C>;
  static __device__ A neutral() { return {0, 0}; }
  static __device__ A load(const A& sums, int64_t) { return sums; }
  static __device__ A fold(const A& a, const A& b) { return A::join(a, b); }
};

}  // namespace

void normalize_rows(const NormalizeArgs& p, const NormPlan& plan, const Launch& launch, void*) {
  const RowTiling& tiling = plan.rows;
  visit_floating(p.x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    launch(tiling.vectorized ? rows_kernel<16 / sizeof(T), 4, T> : rows_kernel<1, 8, T>, tiling.blocks,
           dim3(tiling.threads, tiling.teams), p.y.as<T>(), p.x.as<T>(), p.mean.as<C>(), p.variance.as<C>(),
           Parameter<T>(p.weight), Parameter<T>(p.bias), static_cast<C>(p.eps), tiling.rows, tiling.size);
  });
}

void normalize_rows(const NormalizeBackwardArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  const RowTiling& tiling = plan.rows;
  visit_floating(p.x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    // A thread keeps at most eight elements, because each of them needs four or more registers: with more elements,
    // fewer threads would be resident.
    constexpr int kWidth = 16 / sizeof(T);
    Sums<C>* const partial = static_cast<Sums<C>*>(workspace);
    launch(tiling.vectorized ? rows_backward_kernel<kWidth, 8 / kWidth, T> : rows_backward_kernel<1, 4, T>,
           tiling.blocks, dim3(tiling.threads, tiling.teams), p.dx.as<T>(), p.dy.as<T>(), p.x.as<T>(), p.mean.as<C>(),
           p.variance.as<C>(), Parameter<T>(p.weight), static_cast<C>(p.eps), tiling.rows, tiling.size, partial);
    if (!partial) return;
    const Strides columns{1}, between{tiling.size};
    reduce<AddSums<C>, AddSums<C>>(p.x.device, static_cast<const Sums<C>*>(partial), Nest<1>({tiling.size}, {&columns}),
                                   Nest<1>({tiling.blocks * tiling.teams}, {&between}),
                                   SumResults<C>{p.dbias.as<C>(), p.dweight.as<C>()});
  });
}

}  // namespace gradus::cuda_detail
