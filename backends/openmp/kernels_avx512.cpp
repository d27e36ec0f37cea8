#define GRADUS_ISA avx512
#include <gradus/backends/openmp/kernel_table.h>

const gradus::openmp::KernelTable& gradus::openmp::kernels_avx512() {
  static constexpr KernelTable table = {
      {"combine_rows_avx512", "row_dots_avx512", "split_k_dots_avx512", "small_avx512", "blocked_avx512"},
      {"implicit_gemm_nhwc_avx512", "implicit_gemm_nchw_avx512", "direct_avx512", "depthwise_avx512",
       "winograd_2x2_avx512", "winograd_4x4_avx512"},
      "vectors_avx512",
      avx512::kernels<float>(),
      avx512::kernels<double>(),
      avx512::half_kernels(),
      avx512::philox_pairs,
      avx512::winograd_kernels<2>(),
      avx512::winograd_kernels<4>()};
  return table;
}
