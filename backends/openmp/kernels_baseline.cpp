#define GRADUS_ISA baseline
#include <gradus/backends/openmp/kernel_table.h>

const gradus::openmp::KernelTable& gradus::openmp::kernels_baseline() {
  static constexpr KernelTable table = baseline::kernel_table();
  return table;
}
