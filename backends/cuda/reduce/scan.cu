// Scans along an axis: running sums y[k] = y[k - 1] + x[k] and products y[k] = y[k - 1] x[k], and the linear recurrence
// y[k] = b[k] + a[k] y[k - 1]. Half types are summed in float32, integers in int64.
// Layout: rows of any strides, in either direction.
// thread_rows_kernel: rows that are short or adjacent in memory, and all recurrences, whose rows threads cannot share
//   because products of several a could overflow.  Grid: x = blocks of a grid-stride loop over rows.  Block: 256
//   threads; a thread computes one row a step.
// block_rows_kernel: other rows.  Grid: x = blocks that loop over rows.  Block: 256 threads, which scan 256 elements of
//   the row at a time with CUB's BlockScan.
// Deterministic: the order of the sums depends only on shapes and device.
#include <cub/block/block_scan.cuh>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// The size of a row, and its strides in y and the inputs.
struct Row {
  int64_t size;
  int64_t steps[3];
  bool reverse;
  __device__ int64_t place(int64_t k) const { return reverse ? size - 1 - k : k; }
};

// Fold and Recurrence have a function next(), which computes y[k] from y[k - 1] and element k of the input. Recurrence
// also has a second input, b, whose element k is at the offset `at`.
template <ScanOp op, class T>
struct Fold {
  using A = compute_t<T>;
  static constexpr A kNeutral = op == ScanOp::sum ? 0 : 1;
  __device__ A operator()(A a, A b) const { return op == ScanOp::sum ? a + b : a * b; }
  __device__ A next(A total, A x, int64_t, int64_t) const { return (*this)(total, x); }
};
template <class T>
struct Recurrence {
  using A = compute_t<T>;
  static constexpr A kNeutral = 0;
  const T* b;
  __device__ A next(A total, A a, int64_t k, int64_t at) const {
    const A start = static_cast<A>(b[at]);
    return k == 0 ? start : start + a * total;
  }
};

// A thread computes one row a step. rows.offsets() returns the offsets of a row in y, x and b.
template <class Op, class T>
__global__ void __launch_bounds__(kThreads) thread_rows_kernel(Geometry<3> rows, Row row, Op op, const T* x, T* y) {
  using A = typename Op::A;
  for (uint32_t i = thread_index(); i < rows.numel; i += thread_count()) {
    int64_t at[3];
    rows.offsets(i, at);
    A total = Op::kNeutral;
    for (int64_t k = 0; k < row.size; ++k) {
      const int64_t place = row.place(k);
      total = op.next(total, static_cast<A>(x[at[1] + place * row.steps[1]]), k, at[2] + place * row.steps[2]);
      y[at[0] + place * row.steps[0]] = static_cast<T>(total);
    }
  }
}

template <class Op, class T>
__global__ void __launch_bounds__(kThreads) block_rows_kernel(Geometry<3> rows, Row row, Op op, const T* x, T* y) {
  using A = typename Op::A;
  using Scan = cub::BlockScan<A, kThreads>;
  __shared__ typename Scan::TempStorage shared;
  for (uint32_t i = blockIdx.x; i < rows.numel; i += gridDim.x) {
    int64_t at[3];
    rows.offsets(i, at);
    A before = Op::kNeutral;  // the total of the row's elements in previous rounds
    for (int64_t begin = 0; begin < row.size; begin += kThreads) {
      const int64_t k = begin + threadIdx.x, place = row.place(k);
      A total = k < row.size ? static_cast<A>(x[at[1] + place * row.steps[1]]) : Op::kNeutral, all;
      Scan(shared).InclusiveScan(total, total, op, all);
      if (k < row.size) y[at[0] + place * row.steps[0]] = static_cast<T>(op(before, total));
      before = op(before, all);
      __syncthreads();  // the next round overwrites the shared memory that this round reads
    }
  }
}

// The rows along `axis` of y and of two inputs that have y's shape.
struct Rows {
  Row row;
  Nest<3> nest;

  Rows(const MutableView& y, const View& first, const View& second, int axis, bool reverse)
      : row{1, {0, 0, 0}, reverse},
        nest(reduced_shape(y.shape, 1u << axis, true), {&y.strides, &first.strides, &second.strides}) {
    if (y.ndim()) row = {y.shape[axis], {y.strides[axis], first.strides[axis], second.strides[axis]}, reverse};
    GRADUS_CHECK(nest.numel <= kMaxChunk, ShapeError, "cuda scans at most ", kMaxChunk, " rows at once, got ",
                 nest.numel, "; scan parts of the other dimensions");
  }
  template <class Op, class T>
  void run(const Launch& launch, void (*kernel)(Geometry<3>, Row, Op, const T*, T*), int64_t rows_of_block,
           const Op& op, const View& x, const MutableView& y) const {
    launch(kernel, launch.blocks(nest.numel, rows_of_block), kThreads, nest.geometry(), row, op, x.as<T>(), y.as<T>());
  }
  // Returns true if threads that process neighbouring rows access neighbouring elements.
  bool side_by_side() const { return nest.ndim > 0 && nest.strides[0][nest.ndim - 1] == 1; }
};

}  // namespace

void CudaBackend::scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) {
  EventScope event(op == ScanOp::sum ? "cumsum" : "cumprod", "cuda", "rows", {&x, &y}, x.numel());
  if (y.numel() == 0) return;
  const DType wide = is_floating(x.dtype) ? x.dtype : DType::i64;
  if (x.dtype != wide || y.dtype != wide) {  // scans copies in the wide type
    const Array from = Array::empty(x.shape, wide, x.device), to = Array::empty(x.shape, wide, x.device);
    copy(x, from);
    scan(op, from, axis, reverse, to);
    return copy(to, y);
  }
  const Rows rows(y, x, x, axis, reverse);
  const Launch launch(y.device);
  const bool by_threads =
      rows.row.size < 32 || (rows.side_by_side() && rows.nest.numel >= 32 * launch.multiprocessors());
  const auto run = [&]<class T>(auto fold) {
    if (by_threads) rows.run(launch, thread_rows_kernel<decltype(fold), T>, kThreads, fold, x, y);
    else rows.run(launch, block_rows_kernel<decltype(fold), T>, 1, fold, x, y);
  };
  const auto of_type = [&]<class T>() {
    if (op == ScanOp::sum) run.template operator()<T>(Fold<ScanOp::sum, T>());
    else run.template operator()<T>(Fold<ScanOp::prod, T>());
  };
  if (wide == DType::i64) of_type.template operator()<int64_t>();
  else visit_floating(wide, of_type);
}

void CudaBackend::linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) {
  if (!is_floating(y.dtype)) return Backend::linear_recurrence(a, b, axis, reverse, y);
  EventScope event("linear_recurrence", "cuda", "rows", {&a, &b, &y}, 2 * y.numel());
  if (y.numel() == 0) return;
  visit_floating(y.dtype, [&]<class T>() {
    Rows(y, a, b, axis, reverse)
        .run(Launch(y.device), thread_rows_kernel<Recurrence<T>, T>, kThreads, Recurrence<T>{b.as<T>()}, a, y);
  });
}

}  // namespace gradus
