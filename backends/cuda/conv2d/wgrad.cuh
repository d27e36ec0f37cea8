// What the kernels for the weights' gradient share.
//   dw[k, (c,r,s)] = sum over (n,p,q) of dy[n,k,p,q] x[n, c, p stride - padding + r dilation, q …]
//   dbias[k]       = sum over (n,p,q) of dy[n,k,p,q]
// One product of dy (rows k, positions) and gathered input (positions, columns (c,r,s)); the bias is one more column,
// of ones. dy counts only where mask > 0. The sum over positions is cut into splits, whose parts are added in order.
#pragma once

#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::cuda_detail {

/// The column of ones has this h; columns beyond the last are kOutside.
inline constexpr int kOnes = INT32_MIN;

/// The product as a kernel argument. Sizes are per group.
struct WeightGradient {
  uint32_t rows, taps, columns;   // K; C * R * S; with the bias's column
  uint32_t positions, per_split;  // N * P * Q
  uint32_t channels;              // C
  int in_height, in_width, kernel_height;
  int stride[2], padding[2], dilation[2];
  Divisor out_height, out_width;  // position -> (n, p, q)
  Divisor kernel, kernel_width;   // column -> (c, r, s)
  Strides4 dy, x;

  /// A column's distance in x from the corner of a position.
  __device__ Tap column_at(uint32_t column) const {
    if (column >= taps) return {0, column < columns ? kOnes : kOutside, 0};
    uint32_t s = column;
    const uint32_t c = kernel.split(s), r = kernel_width.split(s);
    const int h = static_cast<int>(r) * dilation[0], w = static_cast<int>(s) * dilation[1];
    return {c * x.c + h * x.h + w * x.w, h, w};
  }
  /// A position's corner in x, and its offset in dy; kOutside beyond `end`.
  __device__ Tap position_at(uint32_t position, uint32_t end, int64_t* dy_offset) const {
    *dy_offset = 0;
    if (position >= end) return {0, kOutside, kOutside};
    uint32_t q = position;
    uint32_t p = out_width.split(q);
    const uint32_t n = out_height.split(p);
    *dy_offset = n * dy.n + p * dy.h + q * dy.w;
    const int h = static_cast<int>(p) * stride[0] - padding[0], w = static_cast<int>(q) * stride[1] - padding[1];
    return {n * x.n + h * x.h + w * x.w, h, w};
  }
  /// The element of x that a column multiplies at a position: 0 outside the image, 1 in the column of ones. Without
  /// branches, so that a thread's loads are all under way at once: what is outside reads element 0 instead.
  template <class T>
  __device__ compute_t<T> input_at(const T* input, const Tap& position, const Tap& column) const {
    using C = compute_t<T>;
    const int h = position.h + column.h, w = position.w + column.w;
    const bool inside = column.h >= 0 && within(h, in_height) && within(w, in_width);
    const C value = static_cast<C>(input[inside ? position.offset + column.offset : 0]);
    return inside ? value : C(column.h == kOnes && position.h != kOutside ? 1 : 0);
  }
  /// dy of a row at a position of that offset, 0 where it does not count.
  template <bool kMasked, class T>
  __device__ compute_t<T> gradient_at(const T* gradient, const T* mask, uint32_t row, const Tap& position,
                                      int64_t dy_offset) const {
    using C = compute_t<T>;
    bool counts = position.h != kOutside && row < rows;
    const int64_t at = counts ? dy_offset + row * dy.c : 0;
    const C value = static_cast<C>(gradient[at]);
    if constexpr (kMasked) counts = counts && static_cast<C>(mask[at]) > C(0);
    return counts ? value : C(0);
  }
  /// Where a split's sums of a group go: (rows, columns) of partial (splits, groups, rows, columns).
  template <class C>
  __device__ C* partial_of(C* partial, uint32_t split, uint32_t group) const {
    return partial + (static_cast<int64_t>(split) * gridDim.y + group) * rows * columns;
  }
  /// One of them, unless it is the bias's or does not exist.
  template <class C>
  __device__ void store_partial(C* to, uint32_t row, uint32_t column, C sum) const {
    if (row < rows && column < taps) to[static_cast<int64_t>(row) * columns + column] = sum;
  }
};

/// The product that is planned, with its operands; `mask` may be null. partial (splits, groups, rows, columns) in the
/// compute type.
struct WeightCall {
  const ConvProblem& problem;
  const ConvPlan& plan;
  WeightGradient product;
  Address dy, mask, x, partial;

  uint32_t groups() const { return static_cast<uint32_t>(problem.geometry.groups); }
  /// Tiles of a block, for each of these columns.
  uint32_t tiles(uint32_t columns) const {
    return static_cast<uint32_t>(ceil_div(product.rows, plan.tile.rows) * ceil_div(columns, plan.tile.columns));
  }
};

// The kernels of ConvAlgorithm, by the plan. Columns of implicit_gemm and implicit_gemm_async go tap by tap, with
// channels innermost.
void direct_wgrad(const WeightCall& call, const Launch& launch);
void few_channel_mma_wgrad(const WeightCall& call, const Launch& launch);
void implicit_gemm_wgrad(const WeightCall& call, const Launch& launch);
void implicit_gemm_async_wgrad(const WeightCall& call, const Launch& launch);
void implicit_gemm_generic_wgrad(const WeightCall& call, const Launch& launch);

}  // namespace gradus::cuda_detail
