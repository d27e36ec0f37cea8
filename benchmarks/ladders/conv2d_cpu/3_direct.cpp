// Rung 3, direct: makes no columns. A vector has neighbouring pixels of an output row, and the next tap reads the same
// row of x one pixel further. NCHW, forward only: dgrad would be the same on g with flipped filters, wgrad would have
// to add the lanes of a vector. A tile has 4 output rows and a vector of columns, for kFilters filters. Its sums stay
// in registers over all channels and taps. For each channel and each column s of the filters, the tile loads 6 rows of
// x, and uses row i for output rows i - r:
//   sum[f][p] += w[f,c,r,s] * row[p + r]     3 x 4 kFilters multiply-adds for 6 vectors and 3 kFilters weights.
// Faster because sums stay in registers, and a loaded row is used for up to three taps of every filter. The inner loop
// has no conditions, because images are first copied to planes with zeros around them, rounded up to whole tiles. This
// takes about (H + 2) (W + 2) C floats, a ninth of rung 2's columns.
#include <algorithm>

#include <gradus/benchmarks/ladders/conv2d_cpu/rungs.h>
#include <gradus/benchmarks/ladders/cpu/vector.h>

namespace gradus::ladders::direct {
namespace {

constexpr int kRows = 4, kFilters = kVectorRegisters / 8;  // the sums take half of the registers

struct Planes {
  explicit Planes(const ConvSize& size)
      : height((size.H + kRows - 1) / kRows * kRows + 2),
        width((size.W + kVectorFloats - 1) / kVectorFloats * kVectorFloats + 2) {}
  int64_t height, width;
};

void copy_image(const ConvSize& size, const float* x, const Planes& planes, float* to) {
  std::fill_n(to, size.C * planes.height * planes.width, 0.0f);
  for (int64_t c = 0; c < size.C; ++c)
    for (int64_t h = 0; h < size.H; ++h)
      std::copy_n(x + (c * size.H + h) * size.W, size.W, to + (c * planes.height + h + 1) * planes.width + 1);
}

/// Computes the tile that begins with filter k, output row p and column q.
template <int kCount>
void compute_tile(const Fprop& conv, int64_t n, int64_t k, int64_t p, int64_t q, const Planes& planes) {
  const auto [N, H, W, C, K] = conv.size;
  FloatVector sums[kCount][kRows];
#pragma GCC unroll 4
  for (int f = 0; f < kCount; ++f)
#pragma GCC unroll 4
    for (auto& sum : sums[f]) sum = FloatVector{} + conv.bias[k + f];
  for (int64_t c = 0; c < C; ++c) {
    const float* const x = conv.workspace + (c * planes.height + p) * planes.width + q;
    const float* const w = conv.w + (k * C + c) * 9;
    for (int s = 0; s < 3; ++s) {
      FloatVector rows[kRows + 2];
#pragma GCC unroll 6
      for (int i = 0; i < kRows + 2; ++i) rows[i] = load(x + i * planes.width + s);
#pragma GCC unroll 4
      for (int f = 0; f < kCount; ++f)
#pragma GCC unroll 3
        for (int r = 0; r < 3; ++r) {
          const float weight = w[f * C * 9 + r * 3 + s];
#pragma GCC unroll 4
          for (int i = 0; i < kRows; ++i) sums[f][i] += weight * rows[i + r];
        }
    }
  }
  for (int f = 0; f < kCount; ++f)
    for (int64_t i = 0; i < std::min<int64_t>(kRows, H - p); ++i)
      store_first(conv.y + ((n * K + k + f) * H + p + i) * W + q, relu(sums[f][i]), W - q);
}

}  // namespace

int64_t workspace(const ConvSize& size) { return size.C * Planes(size).height * Planes(size).width; }

void fprop(const Fprop& conv) {
  const auto [N, H, W, C, K] = conv.size;
  const Planes planes(conv.size);
  for (int64_t n = 0; n < N; ++n) {
    copy_image(conv.size, conv.x + n * C * H * W, planes, conv.workspace);
    for (int64_t k = 0; k < K;) {
      const bool whole = k + kFilters <= K;
      for (int64_t p = 0; p < H; p += kRows)
        for (int64_t q = 0; q < W; q += kVectorFloats)
          whole ? compute_tile<kFilters>(conv, n, k, p, q, planes) : compute_tile<1>(conv, n, k, p, q, planes);
      k += whole ? kFilters : 1;
    }
  }
}

}  // namespace gradus::ladders::direct
