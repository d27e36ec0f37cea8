// y = reduction of x over some axes. A block makes `outputs` results with `lanes` threads each: every thread folds a
// fixed part of the elements, then a tree in shared memory folds the threads. A long reduction is cut into splits whose
// partial results a second launch folds. The order depends on shapes and device alone. Half types accumulate in float,
// integers in int64.
#include <bit>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::Geometry;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Nest;

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

struct Plan {
  uint32_t outputs = 1, lanes = kThreads;  // per block; outputs * lanes = kThreads
  bool outputs_adjacent = false;           // neighbouring threads make neighbouring outputs, else fold neighbours
  uint32_t splits = 1, per_split = 0;      // elements of the reduction in a split
};

// The result's type need not be x's: a sum of booleans is an int64.
__device__ void store_as(void* y, DType dtype, int64_t at, auto value) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(y)[at] = scalar::convert<float>(value); break;
    case DType::f64: static_cast<double*>(y)[at] = scalar::convert<double>(value); break;
    case DType::f16: static_cast<Half*>(y)[at] = scalar::convert<Half>(value); break;
    case DType::bf16: static_cast<BFloat16*>(y)[at] = scalar::convert<BFloat16>(value); break;
    case DType::i64: static_cast<int64_t*>(y)[at] = scalar::convert<int64_t>(value); break;
    case DType::i32: static_cast<int32_t*>(y)[at] = scalar::convert<int32_t>(value); break;
    case DType::u8: static_cast<uint8_t*>(y)[at] = scalar::convert<uint8_t>(value); break;
    case DType::boolean: static_cast<bool*>(y)[at] = scalar::convert<bool>(value); break;
  }
}

// Views of `outer`: x, y; of `inner`: x. With `partial` the results of the splits go there, else to y, over `divisor`.
template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(const T* x, Geometry<2> outer, Geometry<1> inner, Plan plan, typename Op::A* partial, void* y,
                  DType y_dtype, double divisor) {
  using A = typename Op::A;
  __shared__ A shared[kThreads];
  const uint32_t thread = threadIdx.x;
  const uint32_t lane = plan.outputs_adjacent ? thread / plan.outputs : thread % plan.lanes;
  const uint32_t output =
      blockIdx.x * plan.outputs + (plan.outputs_adjacent ? thread % plan.outputs : thread / plan.lanes);
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
  const uint32_t step = plan.outputs_adjacent ? plan.outputs : 1;  // from lane to lane
  shared[thread] = total;
  for (uint32_t width = plan.lanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (lane < width) shared[thread] = Op::fold(shared[thread], shared[thread + width * step]);
  }
  if (lane != 0 || output >= outer.numel) return;
  const A result = shared[thread];
  if (partial) {
    partial[static_cast<int64_t>(blockIdx.y) * outer.numel + output] = result;
  } else if (divisor != 0) {
    store_as(y, y_dtype, base[1], static_cast<double>(result) / divisor);
  } else {
    store_as(y, y_dtype, base[1], result);
  }
}

// Threads of a block follow the direction in which x is contiguous.
Plan make_plan(const Nest<2>& outer, const Nest<1>& inner, int multiprocessors) {
  Plan plan;
  const int64_t inner_step = inner.ndim ? inner.strides[0][inner.ndim - 1] : INT64_MAX;
  const int64_t outer_step = outer.ndim ? outer.strides[0][outer.ndim - 1] : INT64_MAX;
  plan.outputs_adjacent = outer_step < inner_step;
  const auto enough = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(inner.numel / 4, 1)));
  // A warp reads 32 neighbours; 8 where there are too few outputs to fill the device otherwise.
  const int64_t adjacent = !plan.outputs_adjacent                ? 1
                           : outer.numel >= 32 * multiprocessors ? 32
                                                                 : std::min<int64_t>(outer.numel, 8);
  plan.lanes = static_cast<uint32_t>(std::min(enough, kThreads / std::bit_ceil(static_cast<uint64_t>(adjacent))));
  plan.outputs = kThreads / plan.lanes;
  const int64_t blocks = (outer.numel + plan.outputs - 1) / plan.outputs;
  const int64_t wanted = std::max<int64_t>(2 * multiprocessors / blocks, 1), at_most = inner.numel / (8 * plan.lanes);
  plan.splits = static_cast<uint32_t>(std::clamp<int64_t>(std::min(wanted, at_most), 1, 1024));
  plan.per_split = static_cast<uint32_t>((inner.numel + plan.splits - 1) / plan.splits);
  return plan;
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
  const Plan plan = make_plan(outer, inner, launch.multiprocessors());
  const auto blocks = static_cast<uint32_t>((outer.numel + plan.outputs - 1) / plan.outputs);
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
  Plan second = make_plan(results, splits, launch.multiprocessors());
  second.splits = 1, second.per_split = plan.splits;
  launch(reduce_kernel<Second, A>, static_cast<uint32_t>((outer.numel + second.outputs - 1) / second.outputs), kThreads,
         static_cast<const A*>(partial.as<A>()), results.geometry(), splits.geometry(), second,
         static_cast<A*>(nullptr), y.data, y.dtype, divisor);
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
