#define GRADUS_ISA baseline
#include <gradus/backends/openmp/kernel_table.h>

const gradus::openmp_detail::KernelTable& gradus::openmp_detail::kernels_baseline() {
  static constexpr KernelTable table = baseline::kernel_table();
  return table;
}
