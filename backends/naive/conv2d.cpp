// Convolution (cross-correlation) by its definition, where c is the number of an input channel within its group,
// h = p stride - padding + r dilation, and v = q stride - padding + s dilation (v, because w is the weight):
//   y[n, k, p, q]  = sum over c, r, s  of x[n, c, h, v] w[k, c, r, s]
//   dx[n, c, h, v] = sum over k, r, s  of dy[n, k, p, q] w[k, c, r, s]
//   dw[k, c, r, s] = sum over n, p, q  of dy[n, k, p, q] x[n, c, h, v]
// x (N, C, H, W), w (K, C / groups, R, S), y (N, K, P, Q), with any strides: the loops serve NCHW and NHWC.
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>

namespace gradus {

using namespace naive_detail;
namespace {

// Sizes of a convolution under one-letter names.
struct Sizes {
  int64_t N, C, H, W, K, R, S, P, Q, channels, filters;  // channels and filters: input and output channels of a group
  Sizes(const Shape& x, const Shape& w, const Shape& y, const Conv2dGeometry& geometry)
      : N(x[0]), C(x[1]), H(x[2]), W(x[3]), K(w[0]), R(w[2]), S(w[3]), P(y[2]), Q(y[3]), channels(w[1]),
        filters(K / geometry.groups) {}
  int64_t flops() const { return 2 * N * K * P * Q * channels * R * S; }
};

}  // namespace

void NaiveBackend::conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) {
  const Sizes z(x.shape, w.shape, y.shape, geometry);
  NaiveEvent event("conv2d", {&x, &w, &y}, z.flops());
  visit_floating(y.dtype, [&]<class T> {
    loop_4d(y.shape, [&](int64_t n, int64_t k, int64_t p, int64_t q) {
      const int64_t first_channel = k / z.filters * z.channels;
      double total = 0;
      for (int64_t c = 0; c < z.channels; ++c)
        for (int64_t r = 0; r < z.R; ++r)
          for (int64_t s = 0; s < z.S; ++s) {
            const int64_t h = p * geometry.stride[0] - geometry.padding[0] + r * geometry.dilation[0];
            const int64_t v = q * geometry.stride[1] - geometry.padding[1] + s * geometry.dilation[1];
            if (h < 0 || h >= z.H || v < 0 || v >= z.W) continue;  // padding is zero
            total += static_cast<double>(at<T>(x, n, first_channel + c, h, v)) * at<T>(w, k, c, r, s);
          }
      at<T>(y, n, k, p, q) = scalar::convert<T>(total);
    });
  });
}

void NaiveBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                        const Conv2dGeometry& geometry) {
  const Sizes z(dx.shape, w.shape, dy.shape, geometry);
  NaiveEvent event("conv2d_backward_data", {&dy, &w, &dx}, z.flops());
  visit_floating(dx.dtype, [&]<class T> {
    loop_4d(dx.shape, [&](int64_t n, int64_t c, int64_t h, int64_t v) {
      const int64_t first_filter = c / z.channels * z.filters;
      double total = 0;
      for (int64_t k = first_filter; k < first_filter + z.filters; ++k)
        for (int64_t r = 0; r < z.R; ++r)
          for (int64_t s = 0; s < z.S; ++s) {
            // The position (p, q) of the output whose window has x[h, v] at tap (r, s), if there is one.
            const int64_t p_strided = h + geometry.padding[0] - r * geometry.dilation[0];
            const int64_t q_strided = v + geometry.padding[1] - s * geometry.dilation[1];
            if (p_strided < 0 || p_strided % geometry.stride[0] != 0) continue;
            if (q_strided < 0 || q_strided % geometry.stride[1] != 0) continue;
            const int64_t p = p_strided / geometry.stride[0], q = q_strided / geometry.stride[1];
            if (p >= z.P || q >= z.Q) continue;
            total += static_cast<double>(at<T>(dy, n, k, p, q)) * at<T>(w, k, c % z.channels, r, s);
          }
      at<T>(dx, n, c, h, v) = scalar::convert<T>(total);
    });
  });
}

void NaiveBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                          const Conv2dGeometry& geometry) {
  const Sizes z(x.shape, dw.shape, dy.shape, geometry);
  NaiveEvent event("conv2d_backward_weight", {&dy, &x, &dw}, z.flops());
  visit_floating(dw.dtype, [&]<class T> {
    loop_4d(dw.shape, [&](int64_t k, int64_t c, int64_t r, int64_t s) {
      const int64_t channel = k / z.filters * z.channels + c;
      double total = 0;
      for (int64_t n = 0; n < z.N; ++n)
        for (int64_t p = 0; p < z.P; ++p)
          for (int64_t q = 0; q < z.Q; ++q) {
            const int64_t h = p * geometry.stride[0] - geometry.padding[0] + r * geometry.dilation[0];
            const int64_t v = q * geometry.stride[1] - geometry.padding[1] + s * geometry.dilation[1];
            if (h < 0 || h >= z.H || v < 0 || v >= z.W) continue;
            total += static_cast<double>(at<T>(dy, n, k, p, q)) * at<T>(x, n, channel, h, v);
          }
      at<T>(dw, k, c, r, s) = scalar::convert<T>(total);
    });
  });
}

}  // namespace gradus
