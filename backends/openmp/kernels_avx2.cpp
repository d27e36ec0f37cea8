#define GRADUS_ISA avx2
#include <gradus/backends/openmp/kernel_table.h>

const gradus::openmp::KernelTable& gradus::openmp::kernels_avx2() {
  static constexpr KernelTable table = {
      {"combine_rows_avx2", "row_dots_avx2", "split_k_dots_avx2", "small_avx2", "blocked_avx2"},
      {"implicit_gemm_nhwc_avx2", "implicit_gemm_nchw_avx2", "direct_avx2", "depthwise_avx2", "winograd_2x2_avx2",
       "winograd_4x4_avx2"},
      "vectors_avx2",
      avx2::kernels<float>(),
      avx2::kernels<double>(),
      avx2::half_kernels(),
      avx2::philox_pairs,
      avx2::winograd_kernels<2>(),
      avx2::winograd_kernels<4>()};
  return table;
}
