// RGB to grayscale: y (…, 1, H, W) = 0.2989 R + 0.5870 G + 0.1140 B of x (…, 3, H, W). Integers are computed in double
// and truncated.
// Layout: any strides; grid, block and order: device/map.cuh, with three operands, the channels of x.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/map.cuh>

namespace gradus {
namespace {

template <class T>
struct Luma {
  __device__ T operator()(T red, T green, T blue) const {
    using C = std::conditional_t<std::is_same_v<compute_t<T>, float>, float, double>;
    return scalar::convert<T>(C(0.2989) * static_cast<C>(red) + C(0.5870) * static_cast<C>(green) +
                              C(0.1140) * static_cast<C>(blue));
  }
};

}  // namespace

void CudaBackend::rgb_to_grayscale(const View& x, const MutableView& y) {
  EventScope event("rgb_to_grayscale", "cuda", "map", {&x}, 5 * y.numel());
  const int axis = x.ndim() - 3;
  visit_numeric(y.dtype, [&]<class T>() {
    View channels[3] = {x, x, x};
    for (int c = 0; c < 3; ++c) {
      channels[c].data = x.as<T>() + c * x.strides[axis];
      channels[c].shape[axis] = 1;
    }
    cuda_detail::map<T, T, T, T>(Luma<T>(), y, channels[0], channels[1], channels[2]);
  });
}

}  // namespace gradus
