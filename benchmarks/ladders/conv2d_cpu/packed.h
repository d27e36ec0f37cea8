// Operands of rungs 4 and 5 in the order in which their tiles read them: filters packed in groups of two vectors, and
// bands of image rows with zeros around them.
#pragma once

#include <algorithm>

#include <gradus/benchmarks/ladders/conv2d_cpu/rungs.h>
#include <gradus/benchmarks/ladders/cpu/vector.h>

namespace gradus::ladders::packed {

constexpr int64_t kFilters = 2 * kVectorFloats;

inline int64_t whole_tiles(int64_t filters) { return (filters + kFilters - 1) / kFilters * kFilters; }

// Returns the size of packed filters. Each group of kFilters filters has a row of biases, and then a row of weights for
// each r, s, c; rows are filled up with 0 after the last filter. C is the number of channels that a filter reads; in
// dgrad, these are the channels of y.
inline int64_t packed_floats(int64_t C, int64_t K) { return whole_tiles(K) * (1 + 9 * C); }
inline int64_t packed_floats(const ConvSize& size) {  // the maximum over all passes
  return std::max(packed_floats(size.C, size.K), packed_floats(size.K, size.C));
}
inline int64_t packed_index(int64_t C, int64_t k, int64_t row) {
  return (k / kFilters * (1 + 9 * C) + row) * kFilters + k % kFilters;
}
/// Calls f(index in the packed filters, k, c, r, s) for each weight.
template <class F>
void for_each_weight(int64_t C, int64_t K, F f) {
  for (int64_t k = 0; k < K; ++k)
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t s = 0; s < 3; ++s)
        for (int64_t c = 0; c < C; ++c) f(packed_index(C, k, 1 + (r * 3 + s) * C + c), k, c, r, s);
}

/// The rows [first, last) of image n.
struct Band {
  int64_t n, first, last;
  int64_t rows() const { return last - first; }
};
/// Returns the number of rows in a band: 128 KiB of x or y, whichever has more channels, because these and the filters
/// fit into the second-level cache.
inline int64_t band_rows(const ConvSize& size) {
  return std::clamp<int64_t>((int64_t{1} << 15) / (size.W * std::max(size.C, size.K)), 1, size.H);
}
inline int64_t bands_of_image(const ConvSize& size) { return (size.H + band_rows(size) - 1) / band_rows(size); }
inline int64_t band_count(const ConvSize& size) { return size.N * bands_of_image(size); }
inline Band band(const ConvSize& size, int64_t index) {
  const int64_t count = bands_of_image(size), i = index % count;
  return {index / count, size.H * i / count, size.H * (i + 1) / count};
}
/// Returns the number of floats for the copies of a band: the padded rows and, for wgrad, kFilters channels of g.
inline int64_t scratch_floats(const ConvSize& size) {
  return whole_tiles((band_rows(size) + 2) * (size.W + 2) * (std::max(size.C, size.K) + kFilters));
}

/// Copies x. If there is a mask, copies 0 where the mask is not positive.
inline void copy(int64_t count, const float* x, const float* mask, float* to) {
  if (!mask) std::copy_n(x, count, to);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = mask[i] > 0 ? x[i] : 0;
}
/// Copies a band with the rows before and after it, and adds a pixel of zeros at both ends of each row: (rows + 2, W +
/// 2, C).
inline void copy_padded(const ConvSize& size, const float* x, const float* mask, const Band& band, float* to) {
  const int64_t H = size.H, row = size.W * size.C, padded = row + 2 * size.C;
  std::fill_n(to, (band.rows() + 2) * padded, 0.0f);
  for (int64_t h = std::max<int64_t>(band.first - 1, 0); h < std::min(band.last + 1, H); ++h) {
    const int64_t from = (band.n * H + h) * row;
    copy(row, x + from, mask ? mask + from : nullptr, to + (h - band.first + 1) * padded + size.C);
  }
}
/// Copies kFilters channels of a band, starting with channel k: (rows, W, kFilters). Elements after the last channel
/// are not written.
inline void copy_filters(const ConvSize& size, const float* x, const float* mask, const Band& band, int64_t k,
                         float* to) {
  const int64_t first = (band.n * size.H + band.first) * size.W;
  for (int64_t i = 0; i < band.rows() * size.W; ++i) {
    const int64_t from = (first + i) * size.K + k;
    copy(std::min(kFilters, size.K - k), x + from, mask + from, to + i * kFilters);
  }
}

/// A convolution y = x * filters. For dgrad, y is dx, x is dy with y as its mask, and the filters are flipped and
/// transposed.
struct Product {
  ConvSize size;  ///< C: channels of x; K: channels of y
  const float *x, *mask, *filters;
  float* y;
  bool relu;
};
/// Packs the filters in conv.workspace.
inline Product product_of(const Fprop& conv) {
  const int64_t C = conv.size.C, K = conv.size.K;
  float* const packed = conv.workspace;
  std::fill_n(packed, packed_floats(C, K), 0.0f);
  for (int64_t k = 0; k < K; ++k) packed[packed_index(C, k, 0)] = conv.bias[k];
  for_each_weight(C, K, [&](int64_t i, int64_t k, int64_t c, int64_t r, int64_t s) {
    packed[i] = conv.w[((k * C + c) * 3 + r) * 3 + s];
  });
  return {conv.size, conv.x, nullptr, packed, conv.y, true};
}

inline Product product_of(const Dgrad& conv) {
  const auto [N, H, W, C, K] = conv.size;
  float* const packed = conv.workspace;
  std::fill_n(packed, packed_floats(K, C), 0.0f);
  for_each_weight(K, C, [&, C = C](int64_t i, int64_t c, int64_t k, int64_t r, int64_t s) {
    packed[i] = conv.w[((k * C + c) * 3 + 2 - r) * 3 + 2 - s];
  });
  return {{N, H, W, K, C}, conv.dy, conv.y, packed, conv.dx, false};
}

inline void unpack_gradient(const Wgrad& conv, const float* sums) {
  const int64_t C = conv.size.C, K = conv.size.K;
  for (int64_t k = 0; k < K; ++k) conv.dbias[k] = sums[packed_index(C, k, 0)];
  for_each_weight(C, K, [&](int64_t i, int64_t k, int64_t c, int64_t r, int64_t s) {
    conv.dw[((k * C + c) * 3 + r) * 3 + s] = sums[i];
  });
}

// The passes for a single band (4_packed.cpp).
void multiply(const Product& product, const Band& band, float* scratch);
/// Adds the gradient of filters and bias to `sums`, which are packed like filters.
void add_gradient(const Wgrad& conv, const Band& band, float* scratch, float* sums);

}  // namespace gradus::ladders::packed
