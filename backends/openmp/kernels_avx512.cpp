#define GRADUS_ISA avx512
#include <gradus/backends/openmp/kernel_table.h>

const gradus::openmp_detail::KernelTable& gradus::openmp_detail::kernels_avx512() {
  static constexpr KernelTable table = avx512::kernel_table();
  return table;
}
