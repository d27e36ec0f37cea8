// y = sum, mean, max, min, all, any or prod of x over some axes. Block: 256 threads, of which some share an output; the
// kernel, and how it is spread over threads: reduce_kernel.cuh. Half types accumulate in float, integers in int64.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/reduce/reduce_kernel.cuh>

namespace gradus {
namespace {

using cuda_detail::Nest;

template <class T>
using accumulate_t = std::conditional_t<is_floating(dtype_of<T>), compute_t<T>, int64_t>;

// What a reduction folds with: its neutral element, an element's contribution, and the fold.
template <class T>
struct Sum {
  using A = accumulate_t<T>;
  static __device__ A neutral() { return A(0); }
  static __device__ A load(T x, int64_t) { return static_cast<A>(x); }
  static __device__ A fold(A a, A b) { return a + b; }
};
template <class T>
struct Product {
  using A = accumulate_t<T>;
  static __device__ A neutral() { return A(1); }
  static __device__ A load(T x, int64_t) { return static_cast<A>(x); }
  static __device__ A fold(A a, A b) { return a * b; }
};
template <BinaryOp op, class T>
struct Extreme {
  using A = accumulate_t<T>;
  static __device__ A neutral() {
    if constexpr (std::is_floating_point_v<A>) return op == BinaryOp::maximum ? -A(INFINITY) : A(INFINITY);
    else return op == BinaryOp::maximum ? INT64_MIN : INT64_MAX;
  }
  static __device__ A load(T x, int64_t) { return static_cast<A>(x); }
  static __device__ A fold(A a, A b) { return scalar::Binary<op>::apply(a, b); }
};
// all is the minimum of the truth values, any their maximum.
template <BinaryOp op, class T>
struct Logical : Extreme<op, int64_t> {
  static __device__ int64_t neutral() { return op == BinaryOp::minimum; }
  static __device__ int64_t load(T x, int64_t) { return scalar::convert<bool>(x); }
};

// Views of the outputs: x, y. The result's type need not be x's: a sum of booleans is an int64.
template <class A>
struct Results {
  void* y;
  DType dtype;
  double divisor;  // 0: none
  __device__ void store(const int64_t (&at)[2], A total) const {
    if (divisor != 0) cuda_detail::store_as(y, dtype, at[1], static_cast<double>(total) / divisor);
    else cuda_detail::store_as(y, dtype, at[1], total);
  }
};

template <class Op, class T, class Second>
void run(const View& x, uint32_t axes, double divisor, const MutableView& y) {
  Shape inner_shape = x.shape, outer_shape = x.shape;
  for (int i = 0; i < x.ndim(); ++i) (axes >> i & 1 ? outer_shape : inner_shape)[i] = 1;
  const Nest<2> outer(StridedLoop<2>(outer_shape, {&x.strides, &y.strides}));
  if (outer.numel == 0) return;
  cuda_detail::reduce<Op, Second>(y.device, x.as<T>(), outer, Nest<1>(StridedLoop<1>(inner_shape, {&x.strides})),
                                  Results<typename Op::A>{y.data, y.dtype, divisor});
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
