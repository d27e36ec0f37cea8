// Picks an element of each row: y[i] = x[i, target[i]], and the gradient: dx = 0 except dx[i, target[i]] = dy[i].
// Ignored rows give 0. A target that is no class gives NaN (0 for integers), because the host does not wait for the
// targets to check them.
// Layout: any strides.  Grid: x = blocks of a grid-stride loop over y, or dx (for_each).  Block: 256 threads; a thread
// computes one element a step.  Deterministic: there are no sums.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

template <class T>
__device__ T no_class() {
  if constexpr (std::is_floating_point_v<compute_t<T>>) return static_cast<T>(static_cast<compute_t<T>>(NAN));
  else return T(0);
}

// With t = target[i], sets y[i] = x[i, t] or, in backward, y[i, t] = x[i]. The offsets `at` are those of y, the row of
// x, the target and, in backward, the class of the element of y.
template <bool kBackward, class T>
struct Pick {
  int64_t classes, ignore_index, step, first;  // step: stride of x's classes; first: the launch's first class
  const T* x;
  const int64_t* target;
  T* y;
  __device__ void operator()(uint32_t, const int64_t (&at)[4]) const {
    const int64_t t = target[at[2]];
    const bool ignored = t == ignore_index, valid = t >= 0 && t < classes, other = kBackward && first + at[3] != t;
    y[at[0]] = ignored ? T(0) : !valid ? no_class<T>() : other ? T(0) : x[at[1] + t * step];
  }
};

template <bool kBackward>
void pick_classes(const View& x, const View& target, int64_t ignore_index, const MutableView& y) {
  const int64_t classes = kBackward ? y.shape[1] : x.shape[1], step = kBackward ? 0 : x.strides[1];
  const Strides y_steps{y.strides[0], kBackward ? y.strides[1] : 0}, x_rows{x.strides[0], 0};
  const Strides target_rows{target.strides[0], 0}, columns{0, 1};
  const Nest<4> nest({y.shape[0], kBackward ? classes : 1}, {&y_steps, &x_rows, &target_rows, &columns});
  visit(y.dtype, [&]<class T>() {
    for_each(Launch(y.device), nest, [&](const int64_t* base) {
      const auto targets = target.as<int64_t>() + base[2];
      return Pick<kBackward, T>{classes, ignore_index,       step, base[3], x.as<T>() + base[1],
                                targets, y.as<T>() + base[0]};
    });
  });
}

}  // namespace

void CudaBackend::pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) {
  EventScope event("pick", "cuda", "gather", {&x, &target});
  pick_classes<false>(x, target, ignore_index, y);
}

void CudaBackend::pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) {
  EventScope event("pick_backward", "cuda", "gather", {&dy, &target});
  pick_classes<true>(dy, target, ignore_index, dx);
}

}  // namespace gradus
