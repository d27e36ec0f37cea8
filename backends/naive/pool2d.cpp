// y[n, c, p, q] = max over r, s of x[n, c, p stride - padding + r dilation, q …], with the index of the maximum in the
// plane. dx[n, c, index] += dy[n, c, p, q]: only the maximum receives the gradient. x (N, C, H, W), y (N, C, P, Q).
#include <algorithm>
#include <limits>
#include <vector>

#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {

void NaiveBackend::max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                              const Pool2dGeometry& geometry) {
  const int64_t H = x.shape[2], W = x.shape[3];
  EventScope event("max_pool2d", "naive", "loops", {&x, &y, &indices},
                   y.numel() * geometry.kernel[0] * geometry.kernel[1]);
  visit_floating(y.dtype, [&]<class T> {
    for (int64_t n = 0; n < y.shape[0]; ++n)
      for (int64_t c = 0; c < y.shape[1]; ++c) {
        const T* plane = x.as<T>() + n * x.strides[0] + c * x.strides[1];
        for (int64_t p = 0; p < y.shape[2]; ++p)
          for (int64_t q = 0; q < y.shape[3]; ++q) {
            double best = -std::numeric_limits<double>::infinity();
            int64_t best_index = -1;
            for (int64_t r = 0; r < geometry.kernel[0]; ++r)
              for (int64_t s = 0; s < geometry.kernel[1]; ++s) {
                const int64_t h = p * geometry.stride[0] - geometry.padding[0] + r * geometry.dilation[0];
                const int64_t w = q * geometry.stride[1] - geometry.padding[1] + s * geometry.dilation[1];
                if (h < 0 || h >= H || w < 0 || w >= W) continue;
                const double value = static_cast<double>(plane[h * x.strides[2] + w * x.strides[3]]);
                const bool wins = best_index < 0 || value > best || (scalar::is_nan(value) && !scalar::is_nan(best));
                if (wins) best = value, best_index = h * W + w;
              }
            y.as<T>()[n * y.strides[0] + c * y.strides[1] + p * y.strides[2] + q * y.strides[3]] =
                scalar::convert<T>(best);
            const Strides& to = indices.strides;
            indices.as<int32_t>()[n * to[0] + c * to[1] + p * to[2] + q * to[3]] = static_cast<int32_t>(best_index);
          }
      }
  });
}

void NaiveBackend::max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                       const Pool2dGeometry&) {
  EventScope event("max_pool2d_backward", "naive", "loops", {&dy, &indices, &dx}, dy.numel());
  const int64_t H = dx.shape[2], W = dx.shape[3];
  visit_floating(dx.dtype, [&]<class T> {
    std::vector<double> plane(static_cast<size_t>(H * W));
    for (int64_t n = 0; n < dx.shape[0]; ++n)
      for (int64_t c = 0; c < dx.shape[1]; ++c) {
        std::fill(plane.begin(), plane.end(), 0.0);
        for (int64_t p = 0; p < dy.shape[2]; ++p)
          for (int64_t q = 0; q < dy.shape[3]; ++q) {
            const Strides &g = dy.strides, &i = indices.strides;
            const int32_t index = indices.as<int32_t>()[n * i[0] + c * i[1] + p * i[2] + q * i[3]];
            if (index < 0) continue;  // the window is entirely outside the image
            plane[static_cast<size_t>(index)] +=
                static_cast<double>(dy.as<T>()[n * g[0] + c * g[1] + p * g[2] + q * g[3]]);
          }
        for (int64_t h = 0; h < H; ++h)
          for (int64_t w = 0; w < W; ++w)
            dx.as<T>()[n * dx.strides[0] + c * dx.strides[1] + h * dx.strides[2] + w * dx.strides[3]] =
                scalar::convert<T>(plane[static_cast<size_t>(h * W + w)]);
      }
  });
}

}  // namespace gradus
