#include "../common/exercise.h"

/// N images with C channels and H x W pixels, K filters with R x S taps, padding 1, stride 1. The result has (H + 3 -
/// R) x (W + 3 - S) pixels.
struct Sizes {
  int64_t N, C, H, W, K, R, S;
  int64_t P() const { return H + 3 - R; }
  int64_t Q() const { return W + 3 - S; }
};

/// Tensors, stored row by row: x (N, C, H, W), w (K, C, R, S), y (N, K, P, Q).
using Numbers = std::vector<double>;

inline Numbers forward(const Sizes& s, const Numbers& x, const Numbers& w, const Numbers& bias) {
  Numbers y(static_cast<size_t>(s.N * s.K * s.P() * s.Q()));
  size_t at = 0;
  for (int64_t n = 0; n < s.N; ++n)
    for (int64_t k = 0; k < s.K; ++k)
      for (int64_t p = 0; p < s.P(); ++p)
        for (int64_t q = 0; q < s.Q(); ++q, ++at) {
          double z = bias[static_cast<size_t>(k)];
          for (int64_t c = 0; c < s.C; ++c)
            for (int64_t r = 0; r < s.R; ++r)
              for (int64_t t = 0; t < s.S; ++t) {
                const int64_t i = p + r - 1, j = q + t - 1;  // the pixel under the tap
                if (i < 0 || i >= s.H || j < 0 || j >= s.W) continue;
                z += x[static_cast<size_t>(((n * s.C + c) * s.H + i) * s.W + j)] *
                     w[static_cast<size_t>(((k * s.C + c) * s.R + r) * s.S + t)];
              }
          y[at] = std::max(0.0, z);
        }
  return y;
}

struct Gradients {
  Numbers dx, dw, dbias;
};

/// Computes the gradients of x, w and bias, given the result y of forward() and its gradient.
inline Gradients backward(const Sizes& s, const Numbers& x, const Numbers& w, const Numbers& y, const Numbers& dy) {
  Gradients g{Numbers(x.size()), Numbers(w.size()), Numbers(static_cast<size_t>(s.K))};
  // [hole] backward: fill g.dx, g.dw and g.dbias, which are zero
  size_t at = 0;
  for (int64_t n = 0; n < s.N; ++n)
    for (int64_t k = 0; k < s.K; ++k)
      for (int64_t p = 0; p < s.P(); ++p)
        for (int64_t q = 0; q < s.Q(); ++q, ++at) {
          const double dz = y[at] > 0 ? dy[at] : 0;
          g.dbias[static_cast<size_t>(k)] += dz;
          for (int64_t c = 0; c < s.C; ++c)
            for (int64_t r = 0; r < s.R; ++r)
              for (int64_t t = 0; t < s.S; ++t) {
                const int64_t i = p + r - 1, j = q + t - 1;
                if (i < 0 || i >= s.H || j < 0 || j >= s.W) continue;
                const size_t pixel = static_cast<size_t>(((n * s.C + c) * s.H + i) * s.W + j);
                const size_t weight = static_cast<size_t>(((k * s.C + c) * s.R + r) * s.S + t);
                g.dx[pixel] += dz * w[weight];
                g.dw[weight] += dz * x[pixel];
              }
        }
  return g;
  // [end]
}
