// y = op(x) and dx = dy op'(saved), element by element. The formulas are in core/formulas/scalar_unary.h.
// Layout, grid, block and order: device/map.cuh.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/formulas/scalar_unary.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/map.cuh>

namespace gradus {
namespace {

// The distribution function of the normal distribution with an absolute error of 2^-24. The probability of a value
// above |x| is computed as 2^L(|x|), where L is a polynomial (scripts/fit_erfc.py). This takes half the instructions of
// erf, which limit the speed of gelu, and for negative x nothing cancels, because the result is that probability.
__device__ float normal_distribution(float x) {
  constexpr float L[] = {-0.9999999783f,   -1.151105723f,    -0.4592049072f,  -0.05250502993f, 0.007075474671f,
                         -1.458730081e-4f, -1.825462004e-4f, 3.862041824e-5f, -2.77201964e-6f};
  const float size = ::fabsf(x);
  float power = L[8];
#pragma unroll
  for (int k = 7; k >= 0; --k) power = ::fmaf(power, size, L[k]);
  float beyond;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(beyond) : "f"(power));
  return x > 0 ? 1 - beyond : beyond;
}

template <UnaryOp op, class C>
__device__ C apply(C x, const UnaryArgs& args) {
  if constexpr (op == UnaryOp::gelu && std::is_same_v<C, float>) return x * normal_distribution(x);
  else return scalar::Unary<op>::apply(x, args);
}
template <UnaryOp op, class C>
__device__ C backward(C dy, C saved, const UnaryArgs& args) {
  if constexpr (op == UnaryOp::gelu && std::is_same_v<C, float>)
    return dy * (normal_distribution(saved) + saved * scalar::normal_density(saved));
  else return scalar::backward<op>(dy, saved, args);
}

template <UnaryOp op, class T>
struct Forward {
  UnaryArgs args;
  using Result = std::conditional_t<is_predicate(op), bool, T>;
  __device__ Result operator()(T x) const { return static_cast<Result>(apply<op>(static_cast<compute_t<T>>(x), args)); }
};

template <UnaryOp op, class T>
struct Backward {
  UnaryArgs args;
  __device__ T operator()(T dy, T saved) const {
    using C = compute_t<T>;
    return static_cast<T>(backward<op>(static_cast<C>(dy), static_cast<C>(saved), args));
  }
};

}  // namespace

void CudaBackend::unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) {
  EventScope event(gradus::name(op), "cuda", "map", {&x}, x.numel());
  visit(op, [&]<UnaryOp kOp>() {
    visit(x.dtype, [&]<class T>() {
      if constexpr (needs_floating(kOp) && !is_floating(dtype_of<T>)) {
        detail::bad_dtype(x.dtype, "a floating-point type");
      } else {
        using F = Forward<kOp, T>;
        cuda_detail::map<typename F::Result, T>(F{args}, y, x);
      }
    });
  });
}

void CudaBackend::unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                                 const UnaryArgs& args) {
  EventScope event("unary_backward", "cuda", "map", {&dy, &saved}, 2 * dy.numel());
  visit(op, [&]<UnaryOp kOp>() {
    if constexpr (has_derivative(kOp)) {
      visit_floating(dx.dtype, [&]<class T>() { cuda_detail::map<T, T, T>(Backward<kOp, T>{args}, dx, dy, saved); });
    } else {
      GRADUS_FAIL(AutogradError, gradus::name(op), " has no derivative");
    }
  });
}

}  // namespace gradus
