// The interface of the kernels, which are compiled once per instruction set: a table of plain functions. This header
// generates no code. Otherwise the linker could choose a function that was compiled for AVX-512 for all files that
// include it, and programs would fail on older processors.
#pragma once

#include <cstdint>
#include <type_traits>

#include <gradus/core/array/dtype.h>
#include <gradus/core/element_ops.h>
#include <gradus/core/formulas/optimizer_rules.h>

namespace gradus {

/// Instruction sets for which the kernels are compiled. Every processor of the architecture supports `baseline`.
enum class CpuIsa : uint8_t { baseline, avx2, avx512 };

}  // namespace gradus

namespace gradus::openmp_detail {

/// C = A B for one block of `rows` x `columns`. A is packed by pack_a() or read in place; the rows of B have stride
/// b_row_stride. B is read in tiles of Kernels::tile_columns columns (tile t starts at b + t * b_tile_step). Since it
/// is read in whole vectors, its rows must be readable up to the next multiple of the vector size. Only the block of C
/// is written.
template <class T>
struct BlockArgs {
  int64_t rows, columns, depth;
  const T* a;
  int64_t a_step = 0, a_row_stride = 1;  ///< a_step 0: A is packed; else A[m, k] is a[m * a_row_stride + k * a_step]
  const T* b;
  int64_t b_row_stride, b_tile_step;
  bool b_packed = false;  ///< B is packed by pack_b(): its tiles are contiguous in memory
  T* c;
  int64_t c_row_stride;
  bool accumulate = false;         ///< C += A B
  const T* row_bias = nullptr;     ///< C[m, n] += row_bias[m]
  const T* column_bias = nullptr;  ///< C[m, n] += column_bias[n]
};

/// A term of a direct convolution's sum: a plane, shifted by 0, 1, …, `rows` - 1 rows (at most kDirectReach shifts).
/// The plane without a shift is read from `offset` on, which is in row `row` of the plane.
struct DirectTerm {
  int64_t offset, rows, row;
};
constexpr int64_t kDirectReach = 5;

/// out[k, i, j] = bias[k] + sum over terms t and r < t.rows of w[k, t, r] * planes[t.offset + (i + r) * pitch + j],
/// then max(., 0) if `relu`. There are `filters` filters, each with `weight_count` contiguous weights. Whole vectors of
/// the planes are read, also beyond the last column; only (filters, rows, columns) of `out` is written.
template <class T>
struct DirectArgs {
  int64_t filters, rows, columns;
  const T* planes;
  int64_t pitch;
  int64_t rows_begin, rows_end;  ///< rows outside [rows_begin, rows_end) of the planes are zero
  const DirectTerm* terms;
  int64_t term_count;
  const T* weights;
  int64_t weight_count;
  const T* bias;  ///< null if there is no bias
  bool relu;
  T* out;
  int64_t out_step, out_pitch;
};

/// Gradient of DirectArgs with respect to w, as vectors of partial sums. For every filter k, term t and r < t.rows,
/// sums[k * sums_step + n][lane] += the sum over i, and over j with j % vector size == lane, of
///   g[k * g_step + i * g_pitch + j] * planes[t.offset + (i + r) * pitch + j],
/// where n = 0, 1, … numbers the pairs (t, r) in order.
/// Whole vectors of g are read; g must be 0 after its columns.
template <class T>
struct DirectSumsArgs {
  int64_t filters, rows, columns;
  const T* g;
  int64_t g_step, g_pitch;
  const T* planes;
  int64_t pitch;
  const DirectTerm* terms;
  int64_t term_count;
  T* sums;
  int64_t sums_step;
};

/// Element (i, j) is data[i * row_stride + j * column_stride].
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t row_stride = 0, column_stride = 0;
  Matrix transposed() const { return {data, column_stride, row_stride}; }
};

/// c (rows, columns) = a (rows, depth) b (depth, columns) + c (if `accumulate`) + the biases that are not null. The
/// elements of b may have a half type.
template <class T, class B = T>
struct GemmArgs {
  int64_t rows, columns, depth;
  Matrix<const T> a;
  Matrix<const B> b;
  Matrix<T> c;
  bool accumulate = false;         ///< adds the product to c
  const T* row_bias = nullptr;     ///< one element per row of c
  const T* column_bias = nullptr;  ///< one element per column of c
};

/// Copies `count` elements of each row, every `step`-th one, and surrounds each row with `left` and `right` zeros: a
/// row is written to to[0 … left + count + right). If `mask`, which has the layout of `from`, is not null, elements
/// with mask <= 0 become zero.
template <class T>
struct RowsArgs {
  int64_t rows, count;
  const T* from;
  int64_t from_stride;
  T* to;
  int64_t to_stride;
  int64_t left = 0, right = 0;
  const T* mask = nullptr;
  int64_t step = 1;
};

/// out[c * out_stride + r] = in[r * in_stride + c]. If `mask`, which has the layout of `in`, is not null, elements with
/// mask <= 0 become zero.
template <class T>
struct TransposeArgs {
  const T* in;
  int64_t in_stride, rows, columns;
  T* out;
  int64_t out_stride;
  const T* mask = nullptr;
};

/// An optimizer step for `count` elements of a parameter. `states` has the states of the rule; unused ones are null.
template <class T, class Rule>
struct StepKernel {
  void (*step)(const rules::FullStep<Rule, T>& rule, int64_t count, T* parameter, const T* gradient, T* const* states);
};
/// The kernels of all rules: one base class, and thus one member `step`, for each rule.
template <class T>
struct StepKernels {
  template <class... Rule>
  struct List : StepKernel<T, Rule>... {};
};

/// Max pooling of `rows` x `lanes` outputs whose windows have the same taps (the elements inside the image). Output
/// (r, c) is the largest, over the taps t, of
///   x[r * x_row + c * x_lane + offsets[t]],
/// whose index in its plane is places[t] + r * place_row + c * place_lane. Without taps it is -infinity with index -1.
template <class T>
struct PoolArgs {
  int64_t rows, lanes;
  const T* x;
  int64_t x_row, x_lane;
  int64_t taps;
  const int64_t* offsets;
  const int32_t* places;
  int64_t place_row, place_lane;
  T* y;
  int32_t* indices;
  int64_t y_row, index_row;
};

/// y[q] = sum over k < taps of weights[k * pitch + q] * x[sources[k * pitch + q]] for q < columns; negative sources are
/// skipped. The tables must be readable up to the next multiple of the vector size.
template <class T>
struct GatherArgs {
  using Source = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  int64_t columns, taps, pitch;
  const Source* sources;
  const T* weights;
  const T* x;
  T* y;
};

/// A box of pixels in a batch of images. The three elements of each array are for images, rows and columns: `count` has
/// their numbers, and `x_step` and `y_step` have their strides in the two batches x and y that a kernel uses.
struct PixelBox {
  int64_t count[3];
  int64_t x_step[3], y_step[3];
};

/// A part of the sum of a pixel product: `length` elements, starting `from` elements after the pixel, are multiplied by
/// the `length` rows of the weights that start at `row`.
struct DepthRun {
  int64_t from, row, length;
};

/// Up to three places in memory that a later call reads. For each tile of pixels that a kernel computes, the kernel
/// prefetches the next `bytes` bytes of each place into the second-level cache.
struct FetchAhead {
  struct Place {
    const char* at = nullptr;
    int64_t bytes = 0;
  };
  Place places[3];
};

/// For every pixel of the box and j < columns, computes the sum over runs and i < run.length
///   y[j] = sum of x[run.from + i] * weights[run.row + i][j].
/// A row of the weights has Kernels::tile_columns elements, zero after `columns`. With `depthwise`, x[run.from + i + j]
/// takes the place of x[run.from + i].
template <class T>
struct NhwcProductArgs {
  PixelBox box;
  const T* from;  ///< x
  T* to;          ///< y
  const DepthRun* runs;
  int64_t run_count;
  const T* weights;
  int64_t columns;
  bool accumulate = false;  ///< y += the sum
  const T* bias = nullptr;  ///< y[j] += bias[j]; not combined with accumulate
  bool relu = false;        ///< finally y = max(y, 0)
  bool depthwise = false;
  FetchAhead* ahead = nullptr;  ///< memory that the call prefetches; the call advances its places
};

/// out[m * tile_columns + j] += sum over the pixels of the box of x_pixel[m] * dy_pixel[j] for m < rows and
/// j < columns, which are at most Kernels::tile_rows and tile_columns. x_pixel and dy_pixel point to the channels of
/// the pixel. With `depthwise`, m counts taps instead of channels, and the factor of dy_pixel[j] is
/// x_pixel[m * x_row + j].
template <class T>
struct NhwcGradientArgs {
  PixelBox box;
  const T* x;
  const T* dy;
  int64_t rows, columns;
  T* out;
  FetchAhead* ahead = nullptr;  ///< memory that the call prefetches, as for one tile
  bool depthwise = false;
  int64_t x_row = 1;  ///< distance of two taps in x; for `depthwise`
};

/// One batch row of a step of a recurrent cell, and of its gradient (Backend::recurrent_cell): `size` elements of each
/// operand, and of each gate.
template <class T>
struct RecurrentCellKernels {
  void (*forward)(T* gates, const T* c_before, T* c, T* h, int64_t size) = nullptr;
  void (*backward)(const T* dh, const T* gates, const T* c_before, const T* c, T* dc, T* dgates,
                   int64_t size) = nullptr;
};

/// The kernels of an operator: the formulas of core/formulas/scalar_unary.h and core/formulas/scalar_binary.h over
/// contiguous elements. A kernel is null if the operator does not have it. Results may be in the same memory as an
/// operand.
template <class T>
struct UnaryKernels {
  void (*apply)(const T* x, T* y, int64_t count, const UnaryArgs& args) = nullptr;
  void (*backward)(const T* dy, const T* saved, T* dx, int64_t count, const UnaryArgs& args) = nullptr;
  void (*predicate)(const T* x, bool* y, int64_t count, const UnaryArgs& args) = nullptr;
};
template <class T>
struct BinaryKernels {
  void (*apply)(const T* a, const T* b, T* y, int64_t count) = nullptr;
  void (*predicate)(const T* a, const T* b, bool* y, int64_t count) = nullptr;
};
/// Kernels of a half type: conversion to and from float, and products with few rows.
template <class H>
struct HalfKernels {
  void (*widen)(const H* x, float* y, int64_t count);
  void (*narrow)(const float* x, H* y, int64_t count);
  /// Products whose matrix B has a half type. Its elements are converted while they are read.
  void (*row_dots)(const GemmArgs<float, H>&);
  void (*combine_rows)(const GemmArgs<float, H>&);
};

/// Rows of contiguous elements; `stride` is the distance between rows.
template <class T>
struct RowsOf {
  T* data;
  int64_t stride, rows, lanes;
};

/// The sums of normalisation's gradient over contiguous elements, in one pass: out = the sums of g[i] w[i] and of g[i]
/// w[i] (x[i] - shift), dw[i] += g[i] ((x[i] - shift - low) scale), and db[i] += g[i].
template <class T>
struct GradientSumsArgs {
  int64_t count;
  const T *g, *w, *x;
  T shift, low, scale;
  T *dw, *db;
};

template <class T>
struct Kernels {
  int vector_size;   ///< elements per vector
  int tile_rows;     ///< maximum rows of a register tile
  int dot_rows;      ///< rows of A that row_dots multiplies with each vector of B
  int pixel_rows;    ///< maximum pixels of a tile of nhwc_product
  int tile_columns;  ///< columns of a register tile
  /// Packs A (rows, depth), given by strides, into rows * depth elements.
  void (*pack_a)(const T* a, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t depth, T* packed);
  /// Packs B (depth, columns), given by strides, into tiles of depth x tile_columns; the last tile is padded with
  /// zeros.
  void (*pack_b)(const T* b, int64_t row_stride, int64_t column_stride, int64_t depth, int64_t columns, T* packed);
  void (*block)(const BlockArgs<T>&);
  /// row_dots computes a product whose A and B are contiguous along the depth. combine_rows computes C += A B without
  /// biases, for contiguous rows of B and C.
  void (*row_dots)(const GemmArgs<T>&);
  void (*combine_rows)(const GemmArgs<T>&);
  void (*direct)(const DirectArgs<T>&);
  void (*direct_sums)(const DirectSumsArgs<T>&);
  /// out[i] = the sum of the lanes of vector i, for i < count
  void (*sum_lanes)(const T* vectors, int64_t count, T* out);
  void (*transpose)(const TransposeArgs<T>&);
  void (*copy_rows)(const RowsArgs<T>&);
  rules::All<StepKernels<T>::template List> steps;
  T (*sum)(const T* x, int64_t count);
  double (*product)(const T* x, int64_t count);
  /// The largest or smallest element, or NaN if an element is NaN.
  T (*max)(const T* x, int64_t count);
  T (*min)(const T* x, int64_t count);
  /// The first index of `value`, which may be NaN; `count` if no element equals it.
  int64_t (*find)(const T* x, T value, int64_t count);
  /// The first index of an element that is above `limit` (below it if `above` is false); `count` if there is none.
  /// `limit` must not be NaN; elements that are NaN are above all numbers.
  int64_t (*find_beyond)(const T* x, T limit, bool above, int64_t count);
  /// y[i] = exp(x[i] - shift); returns the sum of y. y may be null or x.
  T (*exp_sum)(const T* x, T shift, T* y, int64_t count);
  /// sum_about returns the sum of x[i] - shift, squares_about that of (x[i] - shift)^2. products_about writes the sums
  /// of g[i] and of g[i] (x[i] - shift) to `out`.
  T (*sum_about)(const T* x, T shift, int64_t count);
  T (*squares_about)(const T* x, T shift, int64_t count);
  void (*products_about)(const T* g, const T* x, T shift, int64_t count, T (&out)[2]);
  /// y[i] = (x[i] - shift) scale + offset, then times w[i] plus b[i] unless these are null.
  void (*affine)(const T* x, T shift, T scale, T offset, const T* w, const T* b, T* y, int64_t count);
  /// y[i] = g[i] w[i] a + (x[i] - shift) b + c; a null w means 1.
  void (*combine)(const T* g, const T* w, const T* x, T shift, T a, T b, T c, T* y, int64_t count);
  /// The same functions for rows of lanes. The sums of x - shift, (x - shift)^2, g and g (x - shift) are taken over the
  /// rows, separately for each lane. lane_affine computes y = (x - shift) scale + offset and lane_combine computes
  /// y = g a + (x - shift) b + c, where shift, scale, … have one element per lane.
  void (*lane_sums)(const RowsOf<const T>& x, const T* shift, T* sum);
  void (*lane_squares)(const RowsOf<const T>& x, const T* shift, T* sum);
  void (*lane_products)(const RowsOf<const T>& g, const RowsOf<const T>& x, const T* shift, T* plain, T* product);
  void (*lane_affine)(const RowsOf<const T>& x, const T* shift, const T* scale, const T* offset, const RowsOf<T>& y);
  void (*lane_combine)(const RowsOf<const T>& g, const RowsOf<const T>& x, const T* shift, const T* a, const T* b,
                       const T* c, const RowsOf<T>& y);
  void (*gradient_sums)(const GradientSumsArgs<T>& args, T (&out)[2]);
  const UnaryKernels<T>* unary_ops;
  const BinaryKernels<T>* binary_ops;
  const UnaryKernels<T>& of(UnaryOp op) const { return unary_ops[static_cast<size_t>(op)]; }
  const BinaryKernels<T>& of(BinaryOp op) const { return binary_ops[static_cast<size_t>(op)]; }
  /// y[i] = condition[i] ? a[i] : b[i], copied bit by bit; an operand with step 0 is a single value.
  void (*choose)(const bool* condition, const T* a, int64_t a_step, const T* b, int64_t b_step, T* y, int64_t count);
  /// y[i] is number i of a uniform distribution from `low` to `high`, or `mean` + `deviation` times number i of the
  /// standard normal distribution, computed from the pairs of random words that philox() wrote. If `count` is odd,
  /// normal() reads both pairs of the last Philox block.
  void (*uniform)(const uint64_t* pairs, int64_t count, double low, double high, T* y);
  void (*normal)(const uint64_t* pairs, int64_t count, double mean, double deviation, T* y);
  const RecurrentCellKernels<T>* cells;  ///< in the order of RecurrentCell
  void (*max_pool)(const PoolArgs<T>&);
  /// The gradient of a plane of `width` columns for 2 x 2 windows with stride 2. If the number of rows or columns is
  /// odd, the last one is outside all windows and is not written. dy and indices are dense.
  void (*max_pool_backward_2x2)(const T* dy, const int32_t* indices, int64_t rows, int64_t columns, T* dx,
                                int64_t width);
  void (*gather_columns)(const GatherArgs<T>&);
  /// y[q] = sum over k < taps of weights[k] * x[q * step + k]
  void (*pool_columns)(const T* x, int64_t step, int64_t taps, const T* weights, T* y, int64_t count);
  /// y[q] = x[q / 2] * weight
  void (*repeat_columns)(const T* x, T weight, T* y, int64_t count);
  /// y[i] = sum over t < terms of weights[t] * x[offsets[t] + i]
  void (*weighted_sum)(const T* x, int64_t terms, const int64_t* offsets, const T* weights, T* y, int64_t count);
  void (*nhwc_product)(const NhwcProductArgs<T>&);
  void (*nhwc_gradient)(const NhwcGradientArgs<T>&);
  /// out[j] += sum over the pixels of dy[j], for j < columns; the strides are the box's y_step.
  void (*nhwc_sums)(const PixelBox& box, const T* dy, int64_t columns, T* out);
};

struct KernelTable {
  CpuIsa isa;
  const char* vectors;  ///< implementation name for observers
  Kernels<float> f32;
  Kernels<double> f64;
  HalfKernels<Half> f16;
  HalfKernels<BFloat16> bf16;
  /// Philox blocks `first`, first + 1, … of a draw (core/runtime/random.h). Pairs 2 i and 2 i + 1 come from block
  /// first + i.
  void (*philox)(uint64_t seed, uint64_t offset, uint64_t first, int64_t blocks, uint64_t* pairs);
  /// Kernels<float>::block for matrices A and B of bfloat16. Two neighbours along the depth are stored as a pair in the
  /// bits of a float: C[m, n] = sum over k of A[m, k].even B[k, n].even + A[m, k].odd B[k, n].odd. Subnormal numbers
  /// count as 0. Null if this processor has no instruction for such pairs.
  void (*bf16_pairs_block)(const BlockArgs<float>&) = nullptr;
};

// The kernel table of each instruction set, which kernels_<set>.cpp defines.
namespace baseline {
const KernelTable& kernels();
}
namespace avx2 {
const KernelTable& kernels();
}
namespace avx512 {
const KernelTable& kernels();
}
/// KernelTable::bf16_pairs_block for processors with AVX512_BF16.
void bf16_pairs_block_avx512(const BlockArgs<float>& args);
/// The kernel table of the instruction set cpu_isa(), or of `isa`, which this processor may lack.
const KernelTable& kernel_table();
const KernelTable& kernel_table(CpuIsa isa);

/// Size of the register tiles of an instruction set and type: elements per vector, rows and columns; rows for
/// row_dots, and for pixels of convolutions.
struct Registers {
  int64_t vector, rows, columns, dot_rows, pixel_rows;
};
inline Registers registers(const KernelTable& table, DType dtype) {
  const auto of = [](const auto& kernels) {
    return Registers{kernels.vector_size, kernels.tile_rows, kernels.tile_columns, kernels.dot_rows,
                     kernels.pixel_rows};
  };
  return dtype == DType::f64 ? of(table.f64) : of(table.f32);
}

/// Kernels<T>, or HalfKernels<T> for half types.
template <class T>
const auto& kernels_of(const KernelTable& table) {
  if constexpr (std::is_same_v<T, float>) return table.f32;
  else if constexpr (std::is_same_v<T, double>) return table.f64;
  else if constexpr (std::is_same_v<T, Half>) return table.f16;
  else return table.bf16;
}

}  // namespace gradus::openmp_detail
