// The table of one instruction set. Each kernels_*.cpp defines GRADUS_ISA and includes this.
#pragma once

#include <gradus/backends/openmp/depthwise_kernel.h>
#include <gradus/backends/openmp/dot_kernel.h>
#include <gradus/backends/openmp/gemm_kernel.h>
#include <gradus/backends/openmp/optimizer_kernel.h>
#include <gradus/backends/openmp/pixel_kernel.h>
#include <gradus/backends/openmp/pool_kernel.h>
#include <gradus/backends/openmp/resample_kernel.h>
#include <gradus/backends/openmp/stencil_kernel.h>
#include <gradus/backends/openmp/vector_kernel.h>

namespace gradus::openmp::GRADUS_ISA {

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
          .dot = dot<T>,
          .stencil = stencil<T>,
          .stencil_sums = stencil_sums<T>,
          .channel_stencil = channel_stencil<T>,
          .channel_stencil_sums = channel_stencil_sums<T>,
          .sum_lanes = sum_lanes<T>,
          .transpose = transpose<T>,
          .transpose_masked = transpose_masked<T>,
          .copy_rows = copy_rows<T>,
          .interleave = interleave<T>,
          .steps = step_kernels<T>(static_cast<rules::All<StepKernels<T>::template List>*>(nullptr)),
          .sum = sum<T>,
          .exp_sum = exp_sum<T>,
          .sum_about = sum_about<T>,
          .squares_about = squares_about<T>,
          .products_about = products_about<T>,
          .affine = affine<T>,
          .combine = combine<T>,
          .neg = neg<T>,
          .abs = abs<T>,
          .square = square<T>,
          .exp = exp<T>,
          .sqrt = sqrt<T>,
          .rsqrt = rsqrt<T>,
          .reciprocal = reciprocal<T>,
          .relu = relu<T>,
          .sigmoid = sigmoid<T>,
          .gelu_tanh = gelu_tanh<T>,
          .mish = mish<T>,
          .silu = silu<T>,
          .add = add<T>,
          .sub = sub<T>,
          .mul = mul<T>,
          .div = div<T>,
          .maximum = maximum<T>,
          .minimum = minimum<T>,
          .relu_backward = relu_backward<T>,
          .max_pool = max_pool<T>,
          .max_pool_backward_2x2 = max_pool_backward_2x2<T>,
          .max_pool_channels = max_pool_channels<T>,
          .max_pool_channels_backward = max_pool_channels_backward<T>,
          .gather_columns = gather_columns<T>,
          .pool_columns = pool_columns<T>,
          .repeat_columns = repeat_columns<T>,
          .weighted_sum = weighted_sum<T>,
          .pixel_product = pixel_product<T>,
          .pixel_gradient = pixel_gradient<T>,
          .pixel_sums = pixel_sums<T>};
}

}  // namespace gradus::openmp::GRADUS_ISA
