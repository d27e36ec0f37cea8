// Cross-entropy of logits x (N, C) with targets t (N):
//   p = log_softmax(x);  loss_i = -p[i, t_i];  loss = sum or mean of the loss_i that are not ignored
//   dx = (exp(p) - onehot(t)) dloss / count
// A target outside [0, C) makes the loss and the gradient of its row NaN.  Layout: any strides.
// Forward, up to 256 rows and 64 classes: one block of up to 1,024 threads; eight lanes share a row, and a lane keeps
//   two or eight elements in registers. The losses are summed by a tree over the block.
// Forward, otherwise: log_softmax by softmax.cu, then one block of 1,024 threads, which loop over the rows, for the
//   losses and their sum.
// Backward: a thread for each element (grid-stride loop) or, above 1,024 classes, a block of 256 or 1,024 threads for
//   each row, which it reads in vectors of 16 bytes.
// Deterministic: sums are fixed trees.
//
// pick: an element of each row, y[i] = x[i, target[i]], and the gradient: dx = 0 except dx[i, target[i]] = dy[i].
// Ignored rows give 0. A target that is no class gives NaN (0 for integers). It is no error, because the host would
// have to wait for the targets to check them.
// Layout: any strides.  Grid: x = blocks of a grid-stride loop over y, or dx (for_each).  Block: 256 threads; a thread
// computes one element a step.  Deterministic: there are no sums.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/row.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// A matrix or a vector with any strides.
template <class T>
struct Matrix {
  T* data;
  int64_t row, column;
  __device__ T& operator()(int64_t i, int64_t j = 0) const { return data[i * row + j * column]; }
  __device__ Row<T> row_at(int64_t i) const { return {data + i * row, column}; }
};

struct Sizes {
  int64_t rows, classes, ignore_index;
  Reduction reduction;
};

template <class T, class C>
__device__ void store_sum(const Sizes& sizes, C sum, C counted, T* loss, T* weight_sum) {
  *weight_sum = static_cast<T>(counted);
  if (sizes.reduction == Reduction::sum) *loss = static_cast<T>(sum);
  if (sizes.reduction == Reduction::mean) *loss = static_cast<T>(sum / counted);
}

// The losses of p = log_softmax(x), their sum, and the number of rows that are not ignored, by one block.
template <class T, class C>
__global__ void __launch_bounds__(1024)
    losses_kernel(Sizes sizes, Matrix<const T> p, Matrix<const int64_t> target, Matrix<T> losses, T* weight_sum) {
  __shared__ C shared[32];
  __shared__ int64_t shared_count[32];
  C sum = 0;
  int64_t counted = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < sizes.rows; i += blockDim.x) {
    const int64_t t = target(i);
    const bool valid = t >= 0 && t < sizes.classes, counts = t != sizes.ignore_index;
    const C at_target = static_cast<C>(p(i, valid ? t : 0));  // loaded without a branch, so that no later load waits
    const C loss = !counts ? C(0) : valid ? -at_target : C(NAN);
    if (sizes.reduction == Reduction::none) losses(i) = static_cast<T>(loss);
    sum += loss, counted += counts;
  }
  sum = block_reduce(sum, shared, Add());
  counted = block_reduce(counted, shared_count, Add());
  if (threadIdx.x == 0) store_sum(sizes, sum, static_cast<C>(counted), losses.data, weight_sum);
}

// Log-softmax, the losses and their sum by one block. kLanes lanes share a row; a lane keeps at most kValues elements.
constexpr int kLanes = 8;
constexpr int64_t kSmallRows = 256, kSmallClasses = 64;
template <int kValues, class T, class C>
__global__ void __launch_bounds__(1024) small_kernel(Sizes sizes, Matrix<const T> x, Matrix<const int64_t> target,
                                                     Matrix<T> p, Matrix<T> losses, T* weight_sum) {
  __shared__ C shared[32];
  const int lane = threadIdx.x % kLanes;
  C total = 0;
  int counted = 0;
  for (int64_t first = 0; first < sizes.rows; first += blockDim.x / kLanes) {
    const bool inside = first + threadIdx.x / kLanes < sizes.rows;
    const int64_t i = inside ? first + threadIdx.x / kLanes : 0;
    const int64_t t = target(i);
    C values[kValues], max = -C(INFINITY), sum = 0;
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      const int j = lane + k * kLanes;
      values[k] = j < sizes.classes ? static_cast<C>(x(i, j)) : -C(INFINITY);
      max = LargerNumber()(values[k], max);
    }
    max = group_reduce<kLanes>(max, LargerNumber());
#pragma unroll
    for (int k = 0; k < kValues; ++k) sum += rough_exponential(values[k] -= max);
    const C log_sum = ::log(group_reduce<kLanes>(sum, Add()));
    const bool valid = t >= 0 && t < sizes.classes, counts = inside && t != sizes.ignore_index;
    C loss = counts && !valid ? C(NAN) : C(0);
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      const int j = lane + k * kLanes;
      const T log_probability = static_cast<T>(values[k] - log_sum);
      if (inside && j < sizes.classes) p(i, j) = log_probability;
      if (counts && j == t) loss = -static_cast<C>(log_probability);
    }
    const bool owner = inside && lane == (valid ? t % kLanes : 0);
    if (owner && sizes.reduction == Reduction::none) losses(i) = static_cast<T>(loss);
    total += owner ? loss : C(0);
    counted += __syncthreads_count(owner && counts);
  }
  total = block_reduce(total, shared, Add());
  if (threadIdx.x == 0) store_sum(sizes, total, static_cast<C>(counted), losses.data, weight_sum);
}

template <class T, class C>
struct Backward {
  Sizes sizes;
  Matrix<const T> dloss, p;
  Matrix<const int64_t> target;
  const T* weight_sum;
  Matrix<T> dx;

  // Returns dx[i, j] as a function of j and p[i, j].
  __device__ auto row(int64_t i) const {
    const int64_t t = target(i);
    const bool ignored = t == sizes.ignore_index, valid = t >= 0 && t < sizes.classes;
    C scale = static_cast<C>(dloss(i));
    if (sizes.reduction == Reduction::mean) scale /= static_cast<C>(*weight_sum);
    return [=](int64_t j, C p) {
      return ignored ? C(0) : valid ? (exponential<T>(p) - (j == t ? C(1) : C(0))) * scale : C(NAN);
    };
  }
};

// Computes dx. A thread computes one element a step.
template <class T, class C>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward<T, C> task, Divisor classes, uint32_t numel) {
  for (uint32_t e = thread_index(); e < numel; e += thread_count()) {
    uint32_t j = e;
    const uint32_t i = classes.split(j);
    task.dx(i, j) = static_cast<T>(task.row(i)(j, static_cast<C>(task.p(i, j))));
  }
}

// Computes dx for long rows. A block computes one row a step.
template <class T, class C>
__global__ void __launch_bounds__(1024, sizeof(T) == 8 ? 1 : 2) long_rows_backward_kernel(Backward<T, C> task) {
  for (int64_t i = blockIdx.x; i < task.sizes.rows; i += gridDim.x) {
    const Row<const T> from = task.p.row_at(i);
    const Row<T> to = task.dx.row_at(i);
    map_row(VectorizedRows(task.sizes.classes, from, to), to, task.row(i), from);
  }
}

template <class T>
auto matrix(const auto& view) {
  using Element = std::remove_pointer_t<decltype(view.template as<T>())>;
  return Matrix<Element>{view.template as<T>(), view.ndim() > 0 ? view.strides[0] : 0,
                         view.ndim() > 1 ? view.strides[1] : 0};
}

}  // namespace

void CudaBackend::cross_entropy(const CrossEntropyArgs& args) {
  const auto& [x, target, ignore_index, reduction, p, loss, weight_sum] = args;
  const Sizes sizes{x.shape[0], x.shape[1], ignore_index, reduction};
  const bool small = sizes.rows <= kSmallRows && sizes.classes <= kSmallClasses;
  if (!small) softmax(x, 1, SoftmaxKind::log_softmax, p);
  EventScope event("cross_entropy", "cuda", small ? "fused" : "losses", {&x, &target}, small ? 5 * x.numel() : 0);
  const Launch launch(x.device);
  visit_floating(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    if (!small)
      return launch(losses_kernel<T, C>, 1, 1024, sizes, matrix<T>(View(p)), matrix<int64_t>(target), matrix<T>(loss),
                    weight_sum.as<T>());
    const auto threads = u32(std::clamp<int64_t>(ceil_div(sizes.rows * kLanes, 32) * 32, 32, 1024));
    launch(sizes.classes <= 2 * kLanes ? small_kernel<2, T, C> : small_kernel<kSmallClasses / kLanes, T, C>, 1, threads,
           sizes, matrix<T>(x), matrix<int64_t>(target), matrix<T>(p), matrix<T>(loss), weight_sum.as<T>());
  });
}

void CudaBackend::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  const auto& [dloss, p, target, ignore_index, reduction, weight_sum, dx] = args;
  EventScope event("cross_entropy_backward", "cuda", "fused", {&p, &target}, 3 * dx.numel());
  if (dx.numel() == 0) return;
  const Sizes sizes{dx.shape[0], dx.shape[1], ignore_index, reduction};
  const Launch launch(dx.device);
  visit_floating(dx.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Backward<T, C> task{sizes,        matrix<T>(dloss), matrix<T>(p), matrix<int64_t>(target), weight_sum.as<T>(),
                              matrix<T>(dx)};
    if (sizes.classes > kWarpRow || dx.numel() > kMaxChunk)
      return launch(long_rows_backward_kernel<T, C>, launch.blocks(sizes.rows, 1), row_threads(sizes.classes), task);
    launch(backward_kernel<T, C>, launch.blocks(dx.numel(), kThreads), kThreads, task, Divisor(sizes.classes),
           u32(dx.numel()));
  });
}

// ---- pick ----

namespace {

template <class T>
__device__ T no_class() {
  if constexpr (std::is_floating_point_v<compute_t<T>>) return static_cast<T>(static_cast<compute_t<T>>(NAN));
  else return T(0);
}

// With t = target[i], sets y[i] = x[i, t] or, in backward, y[i, t] = x[i]. `at` has the offsets of y, of the row of x,
// of the target and, in backward, the class of the element of y.
template <bool kBackward, class T>
struct Pick {
  int64_t classes, ignore_index, step, first;  // step: x's stride along classes; first: first class of the launch
  const T* x;
  const int64_t* target;
  T* y;
  __device__ void operator()(uint32_t, const int64_t (&at)[4]) const {
    const int64_t t = target[at[2]];
    const bool ignored = t == ignore_index, valid = t >= 0 && t < classes, other = kBackward && first + at[3] != t;
    y[at[0]] = ignored ? T(0) : !valid ? no_class<T>() : other ? T(0) : x[at[1] + t * step];
  }
};

template <bool kBackward>
void pick_classes(const View& x, const View& target, int64_t ignore_index, const MutableView& y) {
  const int64_t classes = kBackward ? y.shape[1] : x.shape[1], step = kBackward ? 0 : x.strides[1];
  const Strides y_steps{y.strides[0], kBackward ? y.strides[1] : 0}, x_rows{x.strides[0], 0};
  const Strides target_rows{target.strides[0], 0}, columns{0, 1};
  const Nest<4> nest({y.shape[0], kBackward ? classes : 1}, {&y_steps, &x_rows, &target_rows, &columns});
  visit(y.dtype, [&]<class T>() {
    for_each(Launch(y.device), nest, [&](const int64_t* base) {
      const auto targets = target.as<int64_t>() + base[2];
      return Pick<kBackward, T>{classes, ignore_index,       step, base[3], x.as<T>() + base[1],
                                targets, y.as<T>() + base[0]};
    });
  });
}

}  // namespace

void CudaBackend::pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) {
  EventScope event("pick", "cuda", "gather", {&x, &target});
  pick_classes<false>(x, target, ignore_index, y);
}

void CudaBackend::pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) {
  EventScope event("pick_backward", "cuda", "gather", {&dy, &target});
  pick_classes<true>(dy, target, ignore_index, dx);
}

}  // namespace gradus
