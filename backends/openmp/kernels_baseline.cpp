#define GRADUS_ISA baseline
#include <gradus/backends/openmp/kernel_table.h>

const gradus::openmp::KernelTable& gradus::openmp::kernels_baseline() {
  static constexpr KernelTable table = {
      {"combine_rows_baseline", "row_dots_baseline", "split_k_dots_baseline", "small_baseline", "blocked_baseline"},
      {"implicit_gemm_nhwc_baseline", "implicit_gemm_nchw_baseline", "direct_baseline", "depthwise_baseline",
       "winograd_2x2_baseline", "winograd_4x4_baseline"},
      "vectors_baseline",
      baseline::kernels<float>(),
      baseline::kernels<double>(),
      baseline::half_kernels(),
      baseline::philox_pairs,
      baseline::winograd_kernels<2>(),
      baseline::winograd_kernels<4>()};
  return table;
}
