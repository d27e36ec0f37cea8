// Max pooling of x (N, C, H, W) to y (N, C, P, Q), where h = p stride - padding + r dilation and w likewise:
//   y[n, c, p, q] = max over r, s of x[n, c, h, w];  indices[n, c, p, q] = h W + w of that maximum
//   dx[n, c, indices[n, c, p, q]] += dy[n, c, p, q]: only the maximum receives the gradient
// Resampling, where r and s run over the entries of the stencils for p and q:
//   y[n, c, p, q] = sum over r, s of rows.weight[r] columns.weight[s] x[n, c, rows.source[r], columns.source[s]]
#include <limits>
#include <vector>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>

namespace gradus {

using namespace naive_detail;

void NaiveBackend::max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                              const Pool2dGeometry& geometry) {
  const int64_t H = x.shape[2], W = x.shape[3];
  NaiveEvent event("max_pool2d", {&x, &y, &indices}, y.numel() * geometry.kernel[0] * geometry.kernel[1]);
  visit_floating(y.dtype, [&]<class T> {
    loop_4d(y.shape, [&](int64_t n, int64_t c, int64_t p, int64_t q) {
      double best = -std::numeric_limits<double>::infinity();
      int64_t best_index = -1;
      for (int64_t r = 0; r < geometry.kernel[0]; ++r)
        for (int64_t s = 0; s < geometry.kernel[1]; ++s) {
          const int64_t h = p * geometry.stride[0] - geometry.padding[0] + r * geometry.dilation[0];
          const int64_t w = q * geometry.stride[1] - geometry.padding[1] + s * geometry.dilation[1];
          if (h < 0 || h >= H || w < 0 || w >= W) continue;
          const double value = static_cast<double>(at<T>(x, n, c, h, w));
          const bool wins = best_index < 0 || value > best || (scalar::is_nan(value) && !scalar::is_nan(best));
          if (wins) best = value, best_index = h * W + w;
        }
      at<T>(y, n, c, p, q) = scalar::convert<T>(best);
      at<int32_t>(indices, n, c, p, q) = static_cast<int32_t>(best_index);
    });
  });
}

void NaiveBackend::max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                       const Pool2dGeometry&) {
  NaiveEvent event("max_pool2d_backward", {&dy, &indices, &dx}, dy.numel());
  const int64_t H = dx.shape[2], W = dx.shape[3];
  visit_floating(dx.dtype, [&]<class T> {
    loop_4d({dx.shape[0], dx.shape[1], 1, 1}, [&](int64_t n, int64_t c, int64_t, int64_t) {
      std::vector<double> plane(static_cast<size_t>(H * W));
      for (int64_t p = 0; p < dy.shape[2]; ++p)
        for (int64_t q = 0; q < dy.shape[3]; ++q) {
          const int32_t index = at<int32_t>(indices, n, c, p, q);
          if (index < 0) continue;  // the window is entirely outside the image
          plane[static_cast<size_t>(index)] += static_cast<double>(at<T>(dy, n, c, p, q));
        }
      for (int64_t h = 0; h < H; ++h)
        for (int64_t w = 0; w < W; ++w)
          at<T>(dx, n, c, h, w) = scalar::convert<T>(plane[static_cast<size_t>(h * W + w)]);
    });
  });
}

void NaiveBackend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  NaiveEvent event("resample2d", {&x, &y}, 2 * y.numel());
  visit_floating(y.dtype, [&]<class T> {
    loop_4d(y.shape, [&](int64_t n, int64_t c, int64_t p, int64_t q) {
      double sum = 0;
      for (size_t r = rows.first(p); r < rows.first(p + 1); ++r)
        for (size_t s = columns.first(q); s < columns.first(q + 1); ++s)
          sum += rows.weight[r] * columns.weight[s] *
                 static_cast<double>(at<T>(x, n, c, rows.source[r], columns.source[s]));
      at<T>(y, n, c, p, q) = scalar::convert<T>(sum);
    });
  });
}

}  // namespace gradus
