// Matrix products of integers: y[…, m, n] = sum over k of a[…, m, k] b[…, k, n], or y += that sum, in int64.
// Layout: any strides.  Grid: x = blocks of a grid-stride loop over y (for_each).  Block: 256 threads; a thread
// computes an element of y a step, in a loop over K.  Deterministic: integer arithmetic modulo 2^64 is exact.
#include <gradus/backends/cuda/gemm/select.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {
namespace {

template <class T>
struct IntegerDot {
  const T* a;
  int64_t a_step;
  const T* b;
  int64_t b_step;
  T* y;
  int64_t K;
  bool accumulate;

  __device__ void operator()(uint32_t, const int64_t (&at)[3]) const {  // offsets in y, and in a and b at k = 0
    int64_t sum = accumulate ? static_cast<int64_t>(y[at[0]]) : 0;
    for (int64_t k = 0; k < K; ++k)
      sum += static_cast<int64_t>(a[at[1] + k * a_step]) * static_cast<int64_t>(b[at[2] + k * b_step]);
    y[at[0]] = scalar::convert<T>(sum);
  }
};

}  // namespace

bool integer_matmul(const GemmPlan& plan, const GemmCall& call) {
  const auto& [name, a, b, bias, y, accumulate, workspace] = call;
  EventScope event(name, "cuda", plan.algorithm->name, {&a, &b}, call.flops(), plan.algorithm->reason);
  const int n = y.ndim();
  Strides a_strides = a.strides, b_strides = b.strides;
  a_strides[n - 1] = 0, b_strides[n - 2] = 0;
  const Nest<3> nest(y.shape, {&y.strides, &a_strides, &b_strides});
  visit(y.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>)
      for_each(Launch(y.device), nest, [&](const int64_t* base) {
        return IntegerDot<T>{a.as<T>() + base[1], a.strides[n - 1], b.as<T>() + base[2], b.strides[n - 2],
                             y.as<T>() + base[0], a.shape[n - 1],   accumulate};
      });
  });
  return true;
}

}  // namespace gradus::cuda_detail
