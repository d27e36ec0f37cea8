// fill: y = value; copy: y = x, converted to the type of y; arange: y[i] = start + i step.
// Layout, grid, block and order: device/map.cuh.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/map.cuh>

namespace gradus {
namespace {

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

template <class To, class From>
struct Convert {
  __device__ To operator()(From x) const { return scalar::convert<To>(x); }
};

// Computes in the same type as the backend "naive": double for floating types, int64 for integers.
template <class T>
struct Progression {
  using A = std::conditional_t<is_floating(dtype_of<T>), double, int64_t>;
  A start, step;
  __device__ void begin() {}
  __device__ T operator()(uint64_t i) const {
    return scalar::convert<T>(static_cast<A>(start + static_cast<A>(i) * step));
  }
};

}  // namespace

void CudaBackend::fill(const MutableView& y, const Scalar& value) {
  EventScope event("fill", "cuda", "map", {});
  visit(y.dtype, [&]<class T>() { cuda_detail::map<T>(Constant<T>{value.cast<T>()}, y); });
}

// Views of the same type are copied as integers of the same size, so that there are kernels only for these integers and
// for conversions between types.
void CudaBackend::copy(const View& x, const MutableView& y) {
  EventScope event("copy", "cuda", "map", {&x});
  if (x.dtype == y.dtype)
    return visit_bits(x.dtype, [&]<class Bits>() { cuda_detail::map<Bits, Bits>(Convert<Bits, Bits>(), y, x); });
  visit(x.dtype, [&]<class From>() {
    visit(y.dtype, [&]<class To>() {
      if constexpr (!std::is_same_v<From, To>) cuda_detail::map<To, From>(Convert<To, From>(), y, x);
    });
  });
}

void CudaBackend::arange(const MutableView& y, const Scalar& start, const Scalar& step) {
  EventScope event("arange", "cuda", "generate", {});
  visit(y.dtype, [&]<class T>() {
    using A = typename Progression<T>::A;
    cuda_detail::generate<T>(Progression<T>{start.cast<A>(), step.cast<A>()}, y);
  });
}

}  // namespace gradus
