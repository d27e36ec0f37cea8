// y = op(a, b), of two arrays or of an array and a number, and y = condition ? a : b, element by element. The formulas
// are in core/formulas/scalar_binary.h.  Layout, grid, block and order: device/map.cuh.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/scalar_binary.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/map.cuh>

namespace gradus {
namespace {

// Which operand is a number instead of an array.
enum class ScalarSide : int { none, left, right };

// Two arrays, and an array and a number, use the same kernel. With a number, the kernel loads the array's element as a
// and as b, and then replaces one of them by the number.
template <BinaryOp op, class T>
struct Binary {
  using C = compute_t<T>;
  using Result = std::conditional_t<is_predicate(op), bool, T>;
  ScalarSide side;
  C number;
  __device__ Result operator()(T a, T b) const {
    const C left = side == ScalarSide::left ? number : static_cast<C>(a);
    const C right = side == ScalarSide::right ? number : static_cast<C>(b);
    return static_cast<Result>(scalar::Binary<op>::apply(left, right));
  }
};

template <class T>
struct Choose {
  __device__ T operator()(bool condition, T a, T b) const { return condition ? a : b; }
};

void run(BinaryOp op, const View& a, const View& b, ScalarSide side, const Scalar& number, const MutableView& y) {
  visit(op, [&]<BinaryOp kOp>() {
    visit(a.dtype, [&]<class T>() {
      if constexpr (!is_defined<kOp, T>) {
        detail::bad_dtype(a.dtype, needs_integral(kOp) ? "an integer type" : "a floating-point type");
      } else {
        using F = Binary<kOp, T>;
        // If the array has a half type, the number is not rounded to this type, except for comparisons.
        const F f{side,
                  static_cast<typename F::C>(number.cast<std::conditional_t<is_predicate(kOp), T, typename F::C>>())};
        cuda_detail::map<typename F::Result, T, T>(f, y, a, b);
      }
    });
  });
}

}  // namespace

void CudaBackend::binary(BinaryOp op, const View& a, const View& b, const MutableView& y) {
  EventScope event(gradus::name(op), "cuda", "map", {&a, &b}, y.numel());
  run(op, a, b, ScalarSide::none, Scalar(), y);
}

void CudaBackend::binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first,
                                const MutableView& y) {
  EventScope event(gradus::name(op), "cuda", "map", {&a}, y.numel());
  run(op, a, a, scalar_first ? ScalarSide::left : ScalarSide::right, scalar, y);
}

void CudaBackend::where(const View& condition, const View& a, const View& b, const MutableView& y) {
  EventScope event("where", "cuda", "map", {&condition, &a, &b}, y.numel());
  visit(y.dtype, [&]<class T>() { cuda_detail::map<T, bool, T, T>(Choose<T>(), y, condition, a, b); });
}

}  // namespace gradus
