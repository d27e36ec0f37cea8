// Rung 4, packed filters: a vector has numbers of different filters, and channels are innermost (NHWC). Images need not
// be rearranged: the 3 C numbers of a row of taps follow each other in memory.
//   fprop   a tile is kRows pixels of a row by two vectors of filters. A step of the depth (3 rows of 3 C) loads two
//           vectors of packed filters and multiplies them with one broadcast number of each pixel.
//   dgrad   the same for x = g and filters flipped and transposed.
//   wgrad   a tile is kRows of those 3 C numbers by two vectors of filters; its depth is the pixels of a band.
// Faster because filters fill whole vectors, which rows of 24 or 28 pixels do not; packed vectors are aligned, while
// most of rung 3's vectors cross a cache line; and gradients use tiles of the same kind. Not faster with fewer filters
// than lanes of a vector, because the other lanes multiply by 0. Workspace: (9 C + 1) K floats for the packed filters,
// and a copy of a band of rows with zeros around it (for g, also masked).
#include <gradus/benchmarks/ladders/conv2d_cpu/packed.h>

namespace gradus::ladders::packed {
namespace {

constexpr int kRows = kVectorRegisters == 32 ? 8 : 6;  // so that all operands fit into the registers

/// Calls f.template operator()<count>() for a count from 1 to kMost.
template <int kMost = kRows, class F>
void with_constant(int64_t count, F f) {
  if (count == kMost) f.template operator()<kMost>();
  else if constexpr (kMost > 1) with_constant<kMost - 1>(count, f);
}

/// Adds x[m * step] * w to sums[m], for two vectors w.
template <int kCount>
void multiply_add(const float* x, int64_t step, const float* w, FloatVector (&sums)[kCount][2]) {
  const FloatVector w0 = load(w), w1 = load(w + kVectorFloats);
#pragma GCC unroll 8
  for (int m = 0; m < kCount; ++m) {
    sums[m][0] += x[m * step] * w0;
    sums[m][1] += x[m * step] * w1;
  }
}

template <int kCount>
void add(const FloatVector (&sums)[kCount][2], float* to) {
#pragma GCC unroll 8
  for (int m = 0; m < kCount; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v, to += kVectorFloats) store(to, load(to) + sums[m][v]);
}

/// Computes kCount pixels. x is the first tap of the first pixel, w the packed filters, and `filters` the number of
/// filters.
template <int kCount>
void pixel_tile(const Product& product, const float* x, const float* w, float* y, int64_t filters) {
  const int64_t C = product.size.C, K = product.size.K, row = (product.size.W + 2) * C;
  FloatVector sums[kCount][2];
#pragma GCC unroll 8
  for (auto& sum : sums) sum[0] = load(w), sum[1] = load(w + kVectorFloats);  // the biases
  w += kFilters;
  for (int r = 0; r < 3; ++r)
    for (int64_t i = 0; i < 3 * C; ++i, w += kFilters) multiply_add(x + r * row + i, C, w, sums);
#pragma GCC unroll 8
  for (int m = 0; m < kCount; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v)
      store_first(y + m * K + v * kVectorFloats, product.relu ? relu(sums[m][v]) : sums[m][v],
                  filters - v * kVectorFloats);
}

/// Computes the gradients of kCount of the 3 C numbers. x is the first of these numbers for the band's first pixel; g
/// is (rows, W, kFilters).
template <int kCount>
void gradient_tile(const ConvSize& size, int64_t rows, const float* x, const float* g, float* dw) {
  FloatVector sums[kCount][2] = {};
  for (int64_t p = 0; p < rows; ++p, x += 2 * size.C)
    for (int64_t q = 0; q < size.W; ++q, x += size.C, g += kFilters) multiply_add(x, 1, g, sums);
  add(sums, dw);
}

void bias_gradient(int64_t pixels, const float* g, float* dbias) {
  const float one = 1;
  FloatVector sums[1][2] = {};
  for (int64_t i = 0; i < pixels; ++i) multiply_add(&one, 0, g + i * kFilters, sums);
  add(sums, dbias);
}

void multiply(const Product& product, float* scratch) {
  for (int64_t i = 0; i < band_count(product.size); ++i) multiply(product, band(product.size, i), scratch);
}

}  // namespace

void multiply(const Product& product, const Band& band, float* scratch) {
  const auto [N, H, W, C, K] = product.size;
  copy_padded(product.size, product.x, product.mask, band, scratch);
  const int64_t tiles = (W + kRows - 1) / kRows;  // number of tiles in a row, of nearly equal widths
  for (int64_t k = 0; k < K; k += kFilters)
    for (int64_t p = band.first; p < band.last; ++p)
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t q = W * tile / tiles, filters = K - k;
        const float* const x = scratch + ((p - band.first) * (W + 2) + q) * C;
        const float* const w = product.filters + packed_index(C, k, 0);
        float* const y = product.y + ((band.n * H + p) * W + q) * K + k;
        with_constant(W * (tile + 1) / tiles - q, [&]<int kCount> { pixel_tile<kCount>(product, x, w, y, filters); });
      }
}

void add_gradient(const Wgrad& conv, const Band& band, float* scratch, float* sums) {
  const auto [N, H, W, C, K] = conv.size;
  const int64_t rows = band.rows(), tiles = (3 * C + kRows - 1) / kRows;
  float *const g = scratch, *const padded = g + rows * W * kFilters;
  copy_padded(conv.size, conv.x, nullptr, band, padded);
  for (int64_t k = 0; k < K; k += kFilters) {
    copy_filters(conv.size, conv.dy, conv.y, band, k, g);
    bias_gradient(rows * W, g, sums + packed_index(C, k, 0));
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t i = 3 * C * tile / tiles;
        const float* const x = padded + r * (W + 2) * C + i;
        float* const dw = sums + packed_index(C, k, 1 + r * 3 * C + i);
        with_constant(3 * C * (tile + 1) / tiles - i,
                      [&]<int kCount> { gradient_tile<kCount>(conv.size, rows, x, g, dw); });
      }
  }
}

int64_t workspace(const ConvSize& size) { return packed_floats(size) + scratch_floats(size); }

void fprop(const Fprop& conv) { multiply(product_of(conv), conv.workspace + packed_floats(conv.size)); }
void dgrad(const Dgrad& conv) { multiply(product_of(conv), conv.workspace + packed_floats(conv.size)); }

void wgrad(const Wgrad& conv) {
  std::fill_n(conv.workspace, packed_floats(conv.size), 0.0f);
  for (int64_t i = 0; i < band_count(conv.size); ++i)
    add_gradient(conv, band(conv.size, i), conv.workspace + packed_floats(conv.size), conv.workspace);
  unpack_gradient(conv, conv.workspace);
}

}  // namespace gradus::ladders::packed
