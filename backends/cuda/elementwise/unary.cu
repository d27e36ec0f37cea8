// y = op(x) and dx = dy op'(saved), element by element; formulas in core/scalar_ops.h. Any strides.
// Blocks of 256 threads; one for four neighbours, or for an element of strided views (device/map.cuh). Deterministic.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/map.cuh>

namespace gradus {
namespace {

template <UnaryOp op, class T>
struct Forward {
  UnaryArgs args;
  using Result = std::conditional_t<is_predicate(op), bool, T>;
  __device__ Result operator()(T x) const {
    return static_cast<Result>(scalar::Unary<op>::apply(static_cast<compute_t<T>>(x), args));
  }
};

template <UnaryOp op, class T>
struct Backward {
  UnaryArgs args;
  __device__ T operator()(T dy, T saved) const {
    using C = compute_t<T>;
    return static_cast<T>(static_cast<C>(dy) * scalar::Unary<op>::derivative(static_cast<C>(saved), args));
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
