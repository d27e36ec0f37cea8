// Running totals y[k] = y[k - 1] + x[k] (or times) along an axis, and the linear recurrence y[k] = b[k] + a[k] y[k -
// 1]. Rows of any strides, in either direction. Half types accumulate in float, integers in int64.
// A thread for each row, 256 a block, where rows are short or neighbours in memory, and for recurrences, which are not
// cut: products of their a could overflow where they do not. Else a block of 256 threads for each row, 256 elements at
// a time, whose totals it finds in eight rounds. Grids loop over rows.
// Deterministic: the order of the sums depends on shapes and device alone.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::Geometry;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Nest;

template <ScanOp op, class A>
__device__ A fold(A a, A b) {
  return op == ScanOp::sum ? a + b : a * b;
}

// Elements of a row; steps in memory are those of y and the inputs.
struct Row {
  int64_t size;
  int64_t steps[3];
  bool reverse;
  __device__ int64_t place(int64_t k) const { return reverse ? size - 1 - k : k; }
};

// Views of `rows`: y, x, x.
template <ScanOp op, class T>
__global__ void __launch_bounds__(kThreads) thread_rows_kernel(Geometry<3> rows, Row row, const T* x, T* y) {
  using A = compute_t<T>;
  for (uint32_t i = cuda_detail::thread_index(); i < rows.numel; i += cuda_detail::thread_count()) {
    int64_t at[3];
    rows.offsets(i, at);
    A total = op == ScanOp::sum ? 0 : 1;
    for (int64_t k = 0; k < row.size; ++k) {
      const int64_t place = row.place(k);
      total = fold<op, A>(total, static_cast<A>(x[at[1] + place * row.steps[1]]));
      y[at[0] + place * row.steps[0]] = static_cast<T>(total);
    }
  }
}

template <ScanOp op, class T>
__global__ void __launch_bounds__(kThreads) block_rows_kernel(Geometry<3> rows, Row row, const T* x, T* y) {
  using A = compute_t<T>;
  __shared__ A totals[2][kThreads];
  for (uint32_t i = blockIdx.x; i < rows.numel; i += gridDim.x) {
    int64_t at[3];
    rows.offsets(i, at);
    A before = op == ScanOp::sum ? 0 : 1;  // of the elements so far
    for (int64_t begin = 0; begin < row.size; begin += kThreads) {
      const int64_t k = begin + threadIdx.x, place = row.place(k);
      A total = op == ScanOp::sum ? 0 : 1;
      if (k < row.size) total = static_cast<A>(x[at[1] + place * row.steps[1]]);
      int now = 0;
      totals[now][threadIdx.x] = total;
      // After each round a thread has the total of twice as many elements (Hillis and Steele, 1986).
      for (uint32_t reach = 1; reach < kThreads; reach *= 2, now = 1 - now) {
        __syncthreads();
        if (threadIdx.x >= reach) total = fold<op, A>(totals[now][threadIdx.x - reach], total);
        totals[1 - now][threadIdx.x] = total;
      }
      __syncthreads();
      if (k < row.size) y[at[0] + place * row.steps[0]] = static_cast<T>(fold<op, A>(before, total));
      before = fold<op, A>(before, totals[now][kThreads - 1]);
      __syncthreads();  // the next round writes what has just been read
    }
  }
}

// Views of `rows`: y, a, b.
template <class T>
__global__ void __launch_bounds__(kThreads) recurrence_kernel(Geometry<3> rows, Row row, const T* a, const T* b, T* y) {
  using A = compute_t<T>;
  for (uint32_t i = cuda_detail::thread_index(); i < rows.numel; i += cuda_detail::thread_count()) {
    int64_t at[3];
    rows.offsets(i, at);
    A total = 0;
    for (int64_t k = 0; k < row.size; ++k) {
      const int64_t place = row.place(k);
      const A start = static_cast<A>(b[at[2] + place * row.steps[2]]);
      total = k == 0 ? start : start + static_cast<A>(a[at[1] + place * row.steps[1]]) * total;
      y[at[0] + place * row.steps[0]] = static_cast<T>(total);
    }
  }
}

// The rows along `axis` of y and two inputs of its shape.
struct Rows {
  Row row;
  Nest<3> nest;

  Rows(const MutableView& y, const View& first, const View& second, int axis, bool reverse)
      : row{1, {0, 0, 0}, reverse},
        nest(StridedLoop<3>(without(y.shape, axis), {&y.strides, &first.strides, &second.strides})) {
    if (y.ndim()) row = {y.shape[axis], {y.strides[axis], first.strides[axis], second.strides[axis]}, reverse};
    GRADUS_CHECK(nest.numel <= cuda_detail::kMaxChunk, ShapeError, "cuda scans at most ", cuda_detail::kMaxChunk,
                 " rows at once, got ", nest.numel, "; scan parts of the other dimensions");
  }
  // Neighbouring threads on neighbouring rows read neighbouring elements.
  bool side_by_side() const { return nest.ndim > 0 && nest.strides[0][nest.ndim - 1] == 1; }

 private:
  static Shape without(Shape shape, int axis) {
    if (shape.size()) shape[axis] = 1;
    return shape;
  }
};

// f.template operator()<T>() for the types that are scanned: floating ones and int64.
template <class F>
void visit_scanned(DType dtype, F&& f) {
  if (dtype == DType::i64) f.template operator()<int64_t>();
  else visit_floating(dtype, f);
}

}  // namespace

void CudaBackend::scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) {
  EventScope event(op == ScanOp::sum ? "cumsum" : "cumprod", "cuda", "rows", {&x, &y}, x.numel());
  if (y.numel() == 0) return;
  const DType wide = is_floating(x.dtype) ? x.dtype : DType::i64;
  if (x.dtype != wide || y.dtype != wide) {  // by way of scratch memory
    const Array from = Array::empty(x.shape, wide, x.device), to = Array::empty(x.shape, wide, x.device);
    copy(x, from);
    scan(op, from, axis, reverse, to);
    return copy(to, y);
  }
  const Rows rows(y, x, x, axis, reverse);
  const Launch launch(y.device);
  const int64_t count = rows.nest.numel;
  const bool by_threads = rows.row.size < 32 || (rows.side_by_side() && count >= 32 * launch.multiprocessors());
  visit_scanned(wide, [&]<class T>() {
    const auto kernel = op == ScanOp::sum
                            ? (by_threads ? thread_rows_kernel<ScanOp::sum, T> : block_rows_kernel<ScanOp::sum, T>)
                            : (by_threads ? thread_rows_kernel<ScanOp::prod, T> : block_rows_kernel<ScanOp::prod, T>);
    launch(kernel, launch.blocks(count, by_threads ? kThreads : 1), kThreads, rows.nest.geometry(), rows.row, x.as<T>(),
           y.as<T>());
  });
}

void CudaBackend::linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) {
  if (!is_floating(y.dtype)) return Backend::linear_recurrence(a, b, axis, reverse, y);
  EventScope event("linear_recurrence", "cuda", "rows", {&a, &b, &y}, 2 * y.numel());
  if (y.numel() == 0) return;
  const Rows rows(y, a, b, axis, reverse);
  const Launch launch(y.device);
  visit_floating(y.dtype, [&]<class T>() {
    launch(recurrence_kernel<T>, launch.blocks(rows.nest.numel, kThreads), kThreads, rows.nest.geometry(), rows.row,
           a.as<T>(), b.as<T>(), y.as<T>());
  });
}

}  // namespace gradus
