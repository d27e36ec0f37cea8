// Layer, group and instance norm, and other normalisation of contiguous rows, and its gradients (formulas:
// normalize.cu).
// Layout: x, y, dy, dx: rows of `size` neighbouring elements, which may have any distances; weight and bias (groups,
// size / plane), dense: RowTiling. A float32 row has at most 16,384 elements, in backward 8,192.
// Grid: forward: x = a team of threads for each row; backward: x = as many teams as are resident at once, each of which
// loops over rows with the same parameters.  Block: a team of 32 to 512 threads, or eight teams of one warp. A thread
// keeps up to four vectors of 16 bytes (backward: eight elements in vectors), or eight (backward: four) single
// elements, of its row in registers, so that each array is read once; of rows that are too long for this it keeps twice
// as much.
// Phases: forward computes the mean, then the moments about it, which correct the rounding error of the mean. Backward
// also sums each team's part of dw and dbias; a second launch adds the parts.
// Deterministic: sums over threads are fixed trees, and parts are added in a fixed order.
#include <gradus/backends/cuda/device/warp.cuh>
#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kRowThreads = 512;  // maximum of a block

/// Resident blocks of a multiprocessor: with one, a thread may use 128 registers, with two 64.
template <class T, int kTimes>
inline constexpr int kRowBlocks = sizeof(T) == 8 || kTimes > 1 ? 1 : 2;

/// How parameters of rows vary (RowTiling).
struct RowParameters {
  Divisor groups, plane;
  uint32_t of_group;  // size / plane

  explicit RowParameters(const RowTiling& rows)
      : groups(rows.groups), plane(rows.plane), of_group(rows.size / rows.plane.divisor) {}
  /// The first parameter of a row.
  __device__ uint32_t first(uint32_t row) const {
    groups.split(row);
    return row * of_group;
  }
  /// Loads those of elements i, i + 1, … of a row.
  template <class T, int kWidth>
  __device__ void load(compute_t<T> (&values)[kWidth], const Parameter<T>& from, uint32_t first, uint32_t i) const {
    if (plane.divisor == 1) return from.load(values, first + i);
    compute_t<T> value[1];
    from.load(value, first + plane.quotient(i));
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = value[0];
  }
};

/// Calls body(k, i) for this thread's vectors of a row, where vector k begins at element i.
template <int kWidth, int kSteps, class Body>
__device__ void for_vectors(uint32_t size, Body&& body) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const uint32_t i = kWidth * (threadIdx.x + k * blockDim.x);
    if (i < size) body(k, i);
  }
}

template <int kWidth, int kTimes, class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<T, kTimes>)
    rows_kernel(T* y, const T* x, compute_t<T>* means, compute_t<T>* variances, Parameter<T> weight, Parameter<T> bias,
                RowParameters parameters, compute_t<T> eps, Geometry<2> rows, uint32_t size) {
  using C = compute_t<T>;
  constexpr int kSteps = kTimes * (kWidth > 1 ? 4 : 8);
  __shared__ Sums<C> shared[32];
  const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows.numel) return;  // only whole warps return, because a team is a warp or a whole block
  int64_t at[2];                  // where the row is in x and y
  rows.offsets(row, at);
  C values[kSteps][kWidth] = {}, sum = 0;
  for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t i) { load_dense<kWidth>(values[k], x + at[0] + i); });
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
  const uint32_t first = parameters.first(row);
  for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t i) {
    C scale[kWidth], shift[kWidth];
    if (weight.data) parameters.load(scale, weight, first, i);
    if (bias.data) parameters.load(shift, bias, first, i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      values[k][j] = (values[k][j] - rest) * (weight.data ? s * scale[j] : s) + (bias.data ? shift[j] : C(0));
    store_dense<kWidth>(y + at[1] + i, values[k]);
  });
}

// `partial` (teams, size) receives the column sums of every team's rows. It is null if the gradients of the parameters
// are not needed.
template <int kWidth, int kTimes, class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<T, kTimes>)
    rows_backward_kernel(T* dx, const T* dy, const T* x, const compute_t<T>* means, const compute_t<T>* variances,
                         Parameter<T> weight, RowParameters parameters, compute_t<T> eps, Geometry<3> rows,
                         uint32_t size, Sums<compute_t<T>>* partial) {
  using C = compute_t<T>;
  constexpr int kSteps = kTimes * (kWidth > 1 ? 8 / kWidth : 4);
  __shared__ Sums<C> shared[32];
  const uint32_t team = blockIdx.x * blockDim.y + threadIdx.y, teams = gridDim.x * blockDim.y;
  const uint32_t first = parameters.first(team);  // the same for all rows, as the groups divide the number of teams
  Vec<Sums<C>, kWidth> columns[kSteps] = {};
  for (uint32_t row = team; row < rows.numel; row += teams) {
    int64_t at[3];  // where the row is in x, dy and dx
    rows.offsets(row, at);
    Vec<T, kWidth> dy_vectors[kSteps], x_vectors[kSteps];
    for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t i) {
      dy_vectors[k] = *reinterpret_cast<const Vec<T, kWidth>*>(dy + at[1] + i);
      x_vectors[k] = *reinterpret_cast<const Vec<T, kWidth>*>(x + at[0] + i);
    });
    const C mean = means[row], s = C(1) / ::sqrt(variances[row] + eps);
    C g[kSteps][kWidth], h[kSteps][kWidth];
    Sums<C> total{0, 0};
    for_vectors<kWidth, kSteps>(size, [&](int k, uint32_t i) {
      C factor[kWidth];
      if (weight.data) parameters.load(factor, weight, first, i);
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
      store_dense<kWidth>(dx + at[2] + i, g[k]);
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

  __device__ void store(const int64_t (&at)[2], const Sums<C>& sums) const {
    if (plain) plain[at[1]] = sums.plain;
    if (along) along[at[1]] = sums.along;
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
  const auto rows = Nest<2>::logical(p.mean.shape, {&p.x.strides, &p.y.strides});
  visit_floating(p.x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    constexpr int kWidth = 16 / sizeof(T);
    const auto run = [&](auto kernel) {
      launch(kernel, tiling.blocks, dim3(tiling.threads, tiling.teams), p.y.as<T>(), p.x.as<T>(), p.mean.as<C>(),
             p.variance.as<C>(), Parameter<T>(p.weight), Parameter<T>(p.bias), RowParameters(tiling),
             static_cast<C>(p.eps), rows.geometry(), tiling.size);
    };
    if (!tiling.twice) run(tiling.vectorized ? rows_kernel<kWidth, 1, T> : rows_kernel<1, 1, T>);
    else if constexpr (sizeof(T) < 8) run(tiling.vectorized ? rows_kernel<kWidth, 2, T> : rows_kernel<1, 2, T>);
  });
}

void normalize_rows(const NormalizeBackwardArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  const RowTiling& tiling = plan.rows;
  const auto rows = Nest<3>::logical(p.mean.shape, {&p.x.strides, &p.dy.strides, &p.dx.strides});
  visit_floating(p.x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    // A thread keeps fewer elements than in forward, because each of them needs four or more registers: with more
    // elements, fewer threads would be resident.
    constexpr int kWidth = 16 / sizeof(T);
    Sums<C>* const partial = static_cast<Sums<C>*>(workspace);
    const auto run = [&](auto kernel) {
      launch(kernel, tiling.blocks, dim3(tiling.threads, tiling.teams), p.dx.as<T>(), p.dy.as<T>(), p.x.as<T>(),
             p.mean.as<C>(), p.variance.as<C>(), Parameter<T>(p.weight), RowParameters(tiling), static_cast<C>(p.eps),
             rows.geometry(), tiling.size, partial);
    };
    if (!tiling.twice) run(tiling.vectorized ? rows_backward_kernel<kWidth, 1, T> : rows_backward_kernel<1, 1, T>);
    else if constexpr (sizeof(T) < 8)
      run(tiling.vectorized ? rows_backward_kernel<kWidth, 2, T> : rows_backward_kernel<1, 2, T>);
    if (!partial) return;
    const int64_t size = tiling.size, plane = tiling.plane.divisor, groups = tiling.groups.divisor;
    const Strides in_partial{size, plane}, in_results{size / plane, 1}, terms{groups * size, 1};
    reduce<AddSums<C>, AddSums<C>>(p.x.device, static_cast<const Sums<C>*>(partial),
                                   Nest<2>({groups, size / plane}, {&in_partial, &in_results}),
                                   Nest<1>({tiling.blocks * tiling.teams / groups, plane}, {&terms}),
                                   SumResults<C>{p.dbias.as<C>(), p.dweight.as<C>()});
  });
}

}  // namespace gradus::cuda_detail
