// Rows that a team of threads, a warp or a block, keeps in registers: the forward kernel reads x and writes y, with the
// mean first and then the moments about it; the backward kernel reads dy and x, takes both sums of a row and writes dx.
// A team of the latter walks over several rows and adds up its columns' part of dw and dbias on the way; a second
// launch joins the blocks' parts. normalize_backward.cu has the formulas.
#include <gradus/backends/cuda/norm/normalize_rows.h>
#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

#include <bit>

#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kRowThreads = 512;  // leave a thread 64 registers, of double 128

/// Calls body(k, i) for this thread's vectors of a row: the k-th begins at element i.
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
    rows_kernel(T* y, const T* x, compute_t<T>* means, compute_t<T>* variances, Either<T> weight, Either<T> bias,
                compute_t<T> eps, uint32_t rows, uint32_t size) {
  using C = compute_t<T>;
  __shared__ Sums<C> shared[32];
  const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // a warp as one; rows of several warps have a block each
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
  // What `about` lost by rounding, which is much where the mean is large.
  const C rest = distances.plain / static_cast<C>(size);
  const C difference = distances.along / static_cast<C>(size) - rest * rest;
  const C variance = difference < C(0) ? C(0) : difference;  // all alike: 0 but for rounding
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

constexpr int kTeams = kThreads / 32;  // of a block, where a warp has a row

// `partial`: of every block the sums of its rows' columns; null where no parameter's gradient is wanted.
template <int kWidth, int kSteps, class T>
__global__ void __launch_bounds__(kRowThreads, sizeof(T) == 8 ? 1 : 2)
    rows_backward_kernel(T* dx, const T* dy, const T* x, const compute_t<T>* means, const compute_t<T>* variances,
                         Either<T> weight, compute_t<T> eps, uint32_t rows, uint32_t size,
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
  partial += static_cast<int64_t>(blockIdx.x) * size;
  const auto put = [&](Sums<C>* to) {
    for_vectors<kWidth, kSteps>(
        size, [&](int k, uint32_t i) { *reinterpret_cast<Vec<Sums<C>, kWidth>*>(to + i) = columns[k]; });
  };
  if (blockDim.y == 1) return put(partial);
  extern __shared__ __align__(16) char dynamic[];  // as much as the teams of a block need
  Sums<C>* const of_teams = reinterpret_cast<Sums<C>*>(dynamic);
  put(of_teams + threadIdx.y * size);
  __syncthreads();
  for (uint32_t i = 32 * threadIdx.y + threadIdx.x; i < size; i += kThreads) {
    Sums<C> sums = of_teams[i];
    for (int other = 1; other < kTeams; ++other) sums = Sums<C>::join(sums, of_teams[other * size + i]);
    partial[i] = sums;
  }
}

/// x as rows of the last axes.
struct Rows {
  int64_t count = 0, size = 0;  // both 0 where x is none
  Shape row;                    // x's shape with size 1 at the other axes

  Rows(const View& x, uint32_t axes) : row(with_ones(x.shape, axes, /*at_the_others=*/true)) {
    const uint32_t others = ~axes & ((1u << x.ndim()) - 1);
    if (axes == 0 || (others & (others + 1)) != 0) return;  // the others are not the first ones
    size = 1;
    for (int64_t n : row) size *= n;
    count = x.numel() / size;
  }
};

bool contiguous(const View& view) {
  const Strides expected = contiguous_strides(view.shape);
  for (int i = 0; i < view.ndim(); ++i)
    if (view.shape[i] != 1 && view.strides[i] != expected[i]) return false;
  return true;
}

// True when a parameter that is broadcast to x's shape is one row, the same for all, or none.
bool one_row(const View* parameter, const Rows& rows) {
  if (!parameter) return true;
  const Strides expected = contiguous_strides(rows.row);
  for (int i = 0; i < parameter->ndim(); ++i)
    if (parameter->shape[i] != 1 && parameter->strides[i] != (rows.row[i] == 1 ? 0 : expected[i])) return false;
  return true;
}

// How a team keeps a row: vectors of 16 bytes where all arrays have them, else single elements.
struct Team {
  bool vectors;
  uint32_t threads;  // 0: the row is too long
  dim3 block;

  /// With at most `steps` vectors or `single_steps` elements in a thread.
  Team(int64_t size, size_t size_of_element, std::initializer_list<const void*> arrays, int steps, int single_steps) {
    const int width = static_cast<int>(16 / size_of_element);
    vectors = size % width == 0;
    for (const void* array : arrays) vectors = vectors && reinterpret_cast<uintptr_t>(array) % 16 == 0;
    const int64_t in_thread = vectors ? steps * width : single_steps, wanted = (size + in_thread - 1) / in_thread;
    threads = wanted > kRowThreads ? 0 : std::max(std::bit_ceil(static_cast<uint32_t>(wanted)), 32u);
    block = threads == 32 ? dim3(32, kTeams) : dim3(threads);
  }
  uint32_t blocks(int64_t teams) const { return static_cast<uint32_t>((teams + block.y - 1) / block.y); }
};

}  // namespace

bool normalize_rows(const NormalizeArgs& args) {
  constexpr int kSteps = 4, kSingleSteps = 8;
  const View& x = args.x;
  const MutableView &y = args.y, &mean = args.mean, &variance = args.variance;
  const View *const weight = if_present(args.weight), *const bias = if_present(args.bias);
  const Rows rows(x, args.axes);
  if (rows.size == 0 || !contiguous(x) || !contiguous(y) || !one_row(weight, rows) || !one_row(bias, rows))
    return false;
  return visit_floating(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const auto fits = [](const View& view) { return view.dtype == dtype_of<C> && contiguous(view); };
    const Team team(rows.size, sizeof(T), {x.data, y.data, args.weight.data, args.bias.data}, kSteps, kSingleSteps);
    if (team.threads == 0 || !fits(mean) || !fits(variance)) return false;
    const Launch launch(x.device);
    launch(team.vectors ? rows_kernel<16 / sizeof(T), kSteps, T> : rows_kernel<1, kSingleSteps, T>,
           team.blocks(rows.count), team.block, y.as<T>(), x.as<T>(), mean.as<C>(), variance.as<C>(), Either<T>(weight),
           Either<T>(bias), static_cast<C>(args.eps), static_cast<uint32_t>(rows.count),
           static_cast<uint32_t>(rows.size));
    return true;
  });
}

bool normalize_rows_backward(const NormalizeBackwardArgs& args) {
  const View &dy = args.dy, &x = args.x, &mean = args.mean, &variance = args.variance;
  const MutableView &dx = args.dx, *const dweight = if_present(args.dweight), *const dbias = if_present(args.dbias);
  const View* const weight = if_present(args.weight);
  const Rows rows(x, args.axes);
  if (rows.size == 0 || !contiguous(x) || !contiguous(dy) || !contiguous(dx) || !one_row(weight, rows)) return false;
  for (const MutableView* gradient : {dweight, dbias})
    if (gradient && !(gradient->shape == rows.row)) return false;
  return visit_floating(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    // A thread has eight elements, of four registers or more each; more of them would leave fewer threads.
    constexpr int kWidth = 16 / sizeof(T), kSteps = 8 / kWidth, kSingleSteps = 4;
    const auto fits = [](const View& view) { return view.dtype == dtype_of<C> && contiguous(view); };
    const Team team(rows.size, sizeof(T), {x.data, dy.data, dx.data, args.weight.data}, kSteps, kSingleSteps);
    if (team.threads == 0 || !fits(mean) || !fits(variance)) return false;
    const Launch launch(x.device);
    // As many teams as are in flight at once, but two rows or more for each block: its columns' sums are to be joined.
    const int64_t in_flight = int64_t{1024} * launch.multiprocessors() / team.threads;
    const int64_t wanted = team.block.y > 1 ? rows.count : rows.count / 2;
    const uint32_t blocks = team.blocks(std::clamp<int64_t>(wanted, 1, in_flight));
    const auto run = [&](Sums<C>* partial) {
      const size_t shared = partial && team.block.y > 1 ? sizeof(Sums<C>) * kTeams * static_cast<size_t>(rows.size) : 0;
      launch.with_shared(
          team.vectors ? rows_backward_kernel<kWidth, kSteps, T> : rows_backward_kernel<1, kSingleSteps, T>, blocks,
          team.block, shared, dx.as<T>(), dy.as<T>(), x.as<T>(), mean.as<C>(), variance.as<C>(), Either<T>(weight),
          static_cast<C>(args.eps), static_cast<uint32_t>(rows.count), static_cast<uint32_t>(rows.size), partial);
    };
    if (!dweight && !dbias) return run(nullptr), true;
    const MutableView &plain = dbias ? *dbias : *dweight, &along = dweight ? *dweight : *dbias;
    const Strides columns = contiguous_strides(rows.row);  // the order of the partial sums
    const Nest<3> outer(StridedLoop<3>(rows.row, {&columns, &plain.strides, &along.strides}));
    join_parts<Sums<C>>(x.device, outer, blocks, SumResults(dbias, dweight), run);
    return true;
  });
}

}  // namespace gradus::cuda_detail
