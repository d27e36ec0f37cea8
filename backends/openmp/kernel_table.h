// Builds the kernel table of one instruction set. Each file kernels_*.cpp defines GRADUS_ISA and includes this header.
#pragma once

#include <gradus/backends/openmp/conv2d/direct_kernel.h>
#include <gradus/backends/openmp/conv2d/nhwc_kernel.h>
#include <gradus/backends/openmp/gemm/gemv_kernel.h>
#include <gradus/backends/openmp/image/resample_kernel.h>
#include <gradus/backends/openmp/optim/optimizer_kernel.h>
#include <gradus/backends/openmp/pool/pool_kernel.h>
#include <gradus/backends/openmp/random/random_kernel.h>
#include <gradus/backends/openmp/reduce/reduce_kernel.h>
#include <gradus/backends/openmp/sequence/recurrent_kernel.h>
#include <gradus/backends/openmp/simd/gemm_kernel.h>
#include <gradus/backends/openmp/simd/half_kernel.h>
#include <gradus/backends/openmp/simd/map_kernel.h>
#include <gradus/backends/openmp/simd/move_kernel.h>
#include <gradus/backends/openmp/simd/norm_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T, class... Rule>
constexpr typename StepKernels<T>::template List<Rule...> step_kernels(
    typename StepKernels<T>::template List<Rule...>*) {
  return {{optimizer_step<T, Rule>}...};
}

// The members of Kernels<T> that are set to the functions of the same names.
// clang-format off
#define GRADUS_KERNELS(KERNEL)                                                                                   \
  KERNEL(pack_a) KERNEL(pack_b) KERNEL(block) KERNEL(row_dots) KERNEL(combine_rows)                              \
  KERNEL(direct) KERNEL(direct_sums) KERNEL(sum_lanes) KERNEL(nhwc_product) KERNEL(nhwc_gradient)                \
  KERNEL(nhwc_sums) KERNEL(transpose) KERNEL(copy_rows)                                                          \
  KERNEL(sum) KERNEL(product) KERNEL(find) KERNEL(find_beyond) KERNEL(exp_sum)                                   \
  KERNEL(sum_about) KERNEL(squares_about) KERNEL(products_about) KERNEL(gradient_sums) KERNEL(affine)            \
  KERNEL(combine) KERNEL(lane_sums) KERNEL(lane_squares) KERNEL(lane_products) KERNEL(lane_affine)               \
  KERNEL(lane_combine) KERNEL(choose) KERNEL(uniform) KERNEL(normal) KERNEL(max_pool)                            \
  KERNEL(max_pool_backward_2x2) KERNEL(gather_columns) KERNEL(pool_columns)                                      \
  KERNEL(repeat_columns) KERNEL(weighted_sum)
// clang-format on

template <class T>
constexpr Kernels<T> kernels_of_type() {
  Kernels<T> table{};
  table.vector_size = kLanes<T>, table.tile_columns = kTileColumns<T>;
  table.tile_rows = kTileRows, table.pixel_rows = kPixelRows, table.dot_rows = kDotRows;
  table.steps = step_kernels<T>(static_cast<rules::All<StepKernels<T>::template List>*>(nullptr));
  table.max = extreme<T, true>, table.min = extreme<T, false>;
  using enum RecurrentCell;
  table.cells = kCellTable<T, rnn_tanh, rnn_relu, lstm, gru>;
  table.unary_ops = kUnaryTable<T>, table.binary_ops = kBinaryTable<T>;
#define GRADUS_ENTRY(name) table.name = name<T>;
  GRADUS_KERNELS(GRADUS_ENTRY)
#undef GRADUS_ENTRY
  return table;
}

// The name of the instruction set, as text.
#define GRADUS_TEXT_OF(isa) #isa
#define GRADUS_TEXT(isa) GRADUS_TEXT_OF(isa)

const KernelTable& kernels() {
  static constexpr KernelTable table = {
      .isa = CpuIsa::GRADUS_ISA,
      .vectors = "vectors_" GRADUS_TEXT(GRADUS_ISA),
      .f32 = kernels_of_type<float>(),
      .f64 = kernels_of_type<double>(),
      .f16 = {widen<Half>, narrow<Half>, row_dots<float, Half>, combine_rows<float, Half>},
      .bf16 = {widen<BFloat16>, narrow<BFloat16>, row_dots<float, BFloat16>, combine_rows<float, BFloat16>},
      .philox = philox_pairs};
  return table;
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
