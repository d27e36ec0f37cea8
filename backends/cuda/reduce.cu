// y = reduction of x over some axes. A block makes `outputs` results with `lanes` threads each: every thread folds a
// fixed part of the elements, then a tree in shared memory folds the threads. A long reduction is cut into splits whose
// partial results a second launch folds. The order depends on shapes and device alone. Half types accumulate in float,
// integers in int64.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/reduce_plan.cuh>

namespace gradus {
namespace {

using cuda_detail::Geometry;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Nest;
using cuda_detail::ReducePlan;

template <class T>
using accumulate_t = std::conditional_t<is_floating(dtype_of<T>), compute_t<T>, int64_t>;

// What a reduction folds with: its neutral element, an element's contribution, and the fold.
template <class T>
struct Sum {
  using A = accumulate_t<T>;
  static __device__ A neutral() { return A(0); }
  static __device__ A load(T x) { return static_cast<A>(x); }
  static __device__ A fold(A a, A b) { return a + b; }
};
template <class T>
struct Product {
  using A = accumulate_t<T>;
  static __device__ A neutral() { return A(1); }
  static __device__ A load(T x) { return static_cast<A>(x); }
  static __device__ A fold(A a, A b) { return a * b; }
};
template <BinaryOp op, class T>
struct Extreme {
  using A = accumulate_t<T>;
  static __device__ A neutral() {
    if constexpr (std::is_floating_point_v<A>) return op == BinaryOp::maximum ? -A(INFINITY) : A(INFINITY);
    else return op == BinaryOp::maximum ? INT64_MIN : INT64_MAX;
  }
  static __device__ A load(T x) { return static_cast<A>(x); }
  static __device__ A fold(A a, A b) { return scalar::Binary<op>::apply(a, b); }
};
// all is the minimum of the truth values, any their maximum.
template <BinaryOp op, class T>
struct Logical : Extreme<op, int64_t> {
  static __device__ int64_t neutral() { return op == BinaryOp::minimum; }
  static __device__ int64_t load(T x) { return scalar::convert<bool>(x); }
};

// Views of `outer`: x, y; of `inner`: x. With `partial` the results of the splits go there, else to y, over `divisor`.
template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(const T* x, Geometry<2> outer, Geometry<1> inner, ReducePlan plan, typename Op::A* partial, void* y,
                  DType y_dtype, double divisor) {
  using A = typename Op::A;
  __shared__ A shared[kThreads];
  const uint32_t lane = plan.lane(), output = plan.output();
  int64_t base[2] = {};
  A total = Op::neutral();
  if (output < outer.numel) {
    outer.offsets(output, base);
    const uint32_t begin = blockIdx.y * plan.per_split, end = min(begin + plan.per_split, inner.numel);
    if (inner.ndim <= 1) {  // without divisions several loads are under way at once
      const int64_t step = inner.strides[0][0];
#pragma unroll 8
      for (uint32_t i = begin + lane; i < end; i += plan.lanes)
        total = Op::fold(total, Op::load(x[base[0] + i * step]));
    } else {
#pragma unroll 4
      for (uint32_t i = begin + lane; i < end; i += plan.lanes) {
        int64_t at[1];
        inner.offsets(i, at);
        total = Op::fold(total, Op::load(x[base[0] + at[0]]));
      }
    }
  }
  const A result = cuda_detail::fold_lanes(plan, total, shared, [](A a, A b) { return Op::fold(a, b); });
  if (lane != 0 || output >= outer.numel) return;
  if (partial) {
    partial[static_cast<int64_t>(blockIdx.y) * outer.numel + output] = result;
  } else if (divisor != 0) {
    cuda_detail::store_as(y, y_dtype, base[1], static_cast<double>(result) / divisor);
  } else {
    cuda_detail::store_as(y, y_dtype, base[1], result);
  }
}

template <class Op, class T, class Second>
void run(const View& x, uint32_t axes, double divisor, const MutableView& y) {
  Shape inner_shape = x.shape, outer_shape = x.shape;
  for (int i = 0; i < x.ndim(); ++i) (axes >> i & 1 ? outer_shape : inner_shape)[i] = 1;
  const Nest<2> outer(StridedLoop<2>(outer_shape, {&x.strides, &y.strides}));
  const Nest<1> inner(StridedLoop<1>(inner_shape, {&x.strides}));
  if (outer.numel == 0) return;
  GRADUS_CHECK(outer.numel <= cuda_detail::kMaxChunk && inner.numel <= cuda_detail::kMaxChunk, ShapeError,
               "cuda reduces at most ", cuda_detail::kMaxChunk, " elements to as many results at once, got ",
               inner.numel, " to ", outer.numel, "; reduce one axis after the other");
  using A = typename Op::A;
  const Launch launch(y.device);
  const ReducePlan plan(outer, inner, launch.multiprocessors());
  const uint32_t blocks = plan.blocks(outer.numel);
  if (plan.splits == 1) {
    launch(reduce_kernel<Op, T>, blocks, kThreads, x.as<T>(), outer.geometry(), inner.geometry(), plan,
           static_cast<A*>(nullptr), y.data, y.dtype, divisor);
    return;
  }
  const cuda_detail::Scratch partial(sizeof(A) * plan.splits * static_cast<size_t>(outer.numel), y.device);
  launch(reduce_kernel<Op, T>, dim3(blocks, plan.splits), kThreads, x.as<T>(), outer.geometry(), inner.geometry(), plan,
         partial.as<A>(), static_cast<void*>(nullptr), y.dtype, 0.0);
  Nest<2> results = outer;  // the same outputs, now lying in a row
  int64_t step = 1;
  for (int axis = results.ndim - 1; axis >= 0; --axis) results.strides[0][axis] = step, step *= results.shape[axis];
  const Nest<1> splits(StridedLoop<1>({plan.splits}, {&static_cast<const Strides&>(Strides{outer.numel})}));
  ReducePlan second(results, splits, launch.multiprocessors());
  second.splits = 1, second.per_split = plan.splits;
  launch(reduce_kernel<Second, A>, second.blocks(outer.numel), kThreads, static_cast<const A*>(partial.as<A>()),
         results.geometry(), splits.geometry(), second, static_cast<A*>(nullptr), y.data, y.dtype, divisor);
}

}  // namespace

void CudaBackend::reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) {
  EventScope event(gradus::name(op), "cuda", "tree", {&x}, x.numel());
  using enum BinaryOp;
  const int64_t outputs = y.numel();
  const double count = outputs ? static_cast<double>(x.numel() / outputs) : 0;
  visit(x.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    switch (op) {
      case ReduceOp::sum: return run<Sum<T>, T, Sum<A>>(x, axes, 0, y);
      case ReduceOp::mean: return run<Sum<T>, T, Sum<A>>(x, axes, count == 0 ? NAN : count, y);
      case ReduceOp::max: return run<Extreme<maximum, T>, T, Extreme<maximum, A>>(x, axes, 0, y);
      case ReduceOp::min: return run<Extreme<minimum, T>, T, Extreme<minimum, A>>(x, axes, 0, y);
      case ReduceOp::all: return run<Logical<minimum, T>, T, Logical<minimum, int64_t>>(x, axes, 0, y);
      case ReduceOp::any: return run<Logical<maximum, T>, T, Logical<maximum, int64_t>>(x, axes, 0, y);
      case ReduceOp::prod: return run<Product<T>, T, Product<A>>(x, axes, 0, y);
    }
  });
}

}  // namespace gradus
