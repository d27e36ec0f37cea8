// y = sum, mean, max, min, all, any or prod of x over some axes. Half types are summed in float32, integers in int64.
// Layout, grid, block, pipeline and order: device/reduce_kernel.cuh.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/scalar_binary.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/reduce_kernel.cuh>

namespace gradus {
namespace {

using cuda_detail::Nest;

template <class T>
using accumulate_t = std::conditional_t<is_floating(dtype_of<T>), compute_t<T>, int64_t>;

// The Op (reduce_kernel.cuh) of a reduction: its neutral element, the contribution of an element, and the fold of two
// values.
template <BinaryOp op, class T>
struct Fold {
  using A = accumulate_t<T>;
  static __device__ A neutral() {
    if constexpr (op == BinaryOp::add || op == BinaryOp::mul) return op == BinaryOp::mul;
    else if constexpr (std::is_floating_point_v<A>) return op == BinaryOp::maximum ? -A(INFINITY) : A(INFINITY);
    else return op == BinaryOp::maximum ? INT64_MIN : INT64_MAX;
  }
  static __device__ A load(T x, int64_t) { return static_cast<A>(x); }
  static __device__ A fold(A a, A b) { return scalar::Binary<op>::apply(a, b); }
};
// `all` is the minimum of the truth values, `any` their maximum.
template <BinaryOp op, class T>
struct Logical : Fold<op, int64_t> {
  static __device__ int64_t neutral() { return op == BinaryOp::minimum; }
  static __device__ int64_t load(T x, int64_t) { return scalar::convert<bool>(x); }
};

// Stores the results. `at` has the offsets in x and y. The types of x and y may differ: a sum of booleans is an int64.
template <class A>
struct Results {
  void* y;
  DType dtype;
  double divisor;  // 0: the total is not divided; only floating-point types have means
  __device__ void store(const int64_t (&at)[2], A total) const {
    if (divisor != 0) store_as(at[1], total / static_cast<A>(divisor));
    else store_as(at[1], total);
  }
  __device__ void store_as(int64_t at, auto value) const {
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
};

template <class Op, class T, class Second>
void run(const View& x, uint32_t axes, double divisor, const MutableView& y) {
  const Nest<2> outer(reduced_shape(x.shape, axes, true), {&x.strides, &y.strides});
  if (outer.numel == 0) return;
  cuda_detail::reduce<Op, Second>(y.device, x.as<T>(), outer,
                                  Nest<1>(reduced_shape(x.shape, ~axes, true), {&x.strides}),
                                  Results<typename Op::A>{y.data, y.dtype, divisor});
}

}  // namespace

void CudaBackend::reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) {
  EventScope event(gradus::name(op), "cuda", "tree", {&x}, x.numel());
  using enum BinaryOp;
  const int64_t outputs = y.numel();
  const double count = outputs ? static_cast<double>(x.numel() / outputs) : 0;
  visit(x.dtype, [&]<class T>() {
    const auto fold = [&]<BinaryOp kOp>(double divisor) {
      run<Fold<kOp, T>, T, Fold<kOp, accumulate_t<T>>>(x, axes, divisor, y);
    };
    switch (op) {
      case ReduceOp::sum: return fold.template operator()<add>(0);
      case ReduceOp::mean: return fold.template operator()<add>(count == 0 ? NAN : count);
      case ReduceOp::max: return fold.template operator()<maximum>(0);
      case ReduceOp::min: return fold.template operator()<minimum>(0);
      case ReduceOp::prod: return fold.template operator()<mul>(0);
      case ReduceOp::all: return run<Logical<minimum, T>, T, Logical<minimum, int64_t>>(x, axes, 0, y);
      case ReduceOp::any: return run<Logical<maximum, T>, T, Logical<maximum, int64_t>>(x, axes, 0, y);
    }
  });
}

}  // namespace gradus
