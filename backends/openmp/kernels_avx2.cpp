#define GRADUS_ISA avx2
#include <gradus/backends/openmp/kernel_table.h>

const gradus::openmp_detail::KernelTable& gradus::openmp_detail::kernels_avx2() {
  static constexpr KernelTable table = avx2::kernel_table();
  return table;
}
