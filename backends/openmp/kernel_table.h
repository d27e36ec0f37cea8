// The table of one instruction set. Each kernels_*.cpp defines GRADUS_ISA and includes this.
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

template <class T>
constexpr Kernels<T> kernels() {
  return {.vector_size = kLanes<T>,
          .tile_rows = kTileRows,
          .pixel_rows = kPixelRows,
          .tile_columns = kTileColumns<T>,
          .pack_a = pack_a<T>,
          .pack_b = pack_b<T>,
          .block = block<T>,
          .row_dots = row_dots<T>,
          .combine_rows = combine_rows<T>,
          .direct = direct<T>,
          .direct_sums = direct_sums<T>,
          .sum_lanes = sum_lanes<T>,
          .transpose = transpose<T>,
          .copy_rows = copy_rows<T>,
          .steps = step_kernels<T>(static_cast<rules::All<StepKernels<T>::template List>*>(nullptr)),
          .sum = sum<T>,
          .product = product<T>,
          .max = extreme<T, true>,
          .min = extreme<T, false>,
          .find = find<T>,
          .find_beyond = find_beyond<T>,
          .exp_sum = exp_sum<T>,
          .sum_about = sum_about<T>,
          .squares_about = squares_about<T>,
          .products_about = products_about<T>,
          .affine = affine<T>,
          .combine = combine<T>,
          .lane_sums = lane_sums<T>,
          .lane_squares = lane_squares<T>,
          .lane_products = lane_products<T>,
          .lane_affine = lane_affine<T>,
          .lane_combine = lane_combine<T>,
          .lane_scaled_differences = lane_scaled_differences<T>,
          .gradient_sums = gradient_sums<T>,
          .lane_extremes = lane_extremes<T>,
          .unary_ops = unary_table<T>(IndicesUpTo<kUnaryOps>()),
          .binary_ops = binary_table<T>(IndicesUpTo<kBinaryOps>()),
          .choose = choose<T>,
          .uniform = uniform<T>,
          .normal = normal<T>,
          .lstm_cell = lstm_cell<T>,
          .lstm_cell_backward = lstm_cell_backward<T>,
          .max_pool = max_pool<T>,
          .max_pool_backward_2x2 = max_pool_backward_2x2<T>,
          .max_pool_channels_backward = max_pool_channels_backward<T>,
          .gather_columns = gather_columns<T>,
          .pool_columns = pool_columns<T>,
          .repeat_columns = repeat_columns<T>,
          .weighted_sum = weighted_sum<T>,
          .nhwc_product = nhwc_product<T>,
          .nhwc_gradient = nhwc_gradient<T>,
          .nhwc_sums = nhwc_sums<T>};
}

template <class H>
constexpr HalfKernels<H> half_kernels() {
  return {
      .widen = widen<H>, .narrow = narrow<H>, .row_dots = row_dots<float, H>, .combine_rows = combine_rows<float, H>};
}

// A name that observers see: `name`_avx2.
#define GRADUS_TEXT_OF(isa) #isa
#define GRADUS_TEXT(isa) GRADUS_TEXT_OF(isa)
#define GRADUS_NAMED(name) name "_" GRADUS_TEXT(GRADUS_ISA)

constexpr KernelTable kernel_table() {
  return {
      .gemm = {GRADUS_NAMED("combine_rows"), GRADUS_NAMED("row_dots"), GRADUS_NAMED("small"), GRADUS_NAMED("blocked")},
      .conv2d = {GRADUS_NAMED("implicit_gemm_nhwc"), GRADUS_NAMED("direct"), GRADUS_NAMED("depthwise")},
      .vectors = GRADUS_NAMED("vectors"),
      .f32 = kernels<float>(),
      .f64 = kernels<double>(),
      .f16 = half_kernels<Half>(),
      .bf16 = half_kernels<BFloat16>(),
      .philox = philox_pairs};
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
