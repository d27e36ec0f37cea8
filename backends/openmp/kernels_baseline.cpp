#define GRADUS_ISA baseline
#include <gradus/backends/openmp/kernel_table.h>

const gradus::openmp::KernelTable& gradus::openmp::kernels_baseline() {
  static constexpr KernelTable table = {"packed_baseline",
                                        "implicit_gemm_baseline",
                                        "stencil_baseline",
                                        "vectors_baseline",
                                        baseline::kernels<float>(),
                                        baseline::kernels<double>(),
                                        baseline::half_kernels(),
                                        baseline::philox_pairs,
                                        baseline::winograd_kernels<2>("winograd_2x2_baseline"),
                                        baseline::winograd_kernels<4>("winograd_4x4_baseline")};
  return table;
}
